"""A party's model for other programs, and two versions side by side: promoted, rolled back to, never mixed."""

import csv

import numpy as np
import pytest
from typer.testing import CliRunner

from fdml.cli.app import app_for
from fdml.data.origins import origins_of
from fdml.data.sources import open_encoded
from fdml.errors import DataError, MissingExtra, SettingsError
from fdml.federation import export as exporting
from fdml.federation.export import BIAS, export_onnx, export_scorecard
from fdml.federation.models import promote_model, roll_back
from fdml.federation.predicting import answerer_of, asking_locally
from fdml.federation.publish import refreshed
from fdml.federation.run_folder import begun_run
from fdml.federation.versions import Promotions
from fdml.models.bundle import Bundle
from fdml.models.onnx_file import predicted
from fdml.party.settings import read_party
from fdml.serving.asking import Asker
from fdml.serving.local_line import LocalLine
from fdml.serving.publishing import local_predictions, model_of
from tests.serving.published import ask
from tests.serving.trained import PARTIES, train, trained

pytestmark = pytest.mark.slow
KINDS = {"ann": "linear", "bob": "fm", "cid": "mlp"}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Two runs over the same rows, of other numbers of epochs."""
    found = trained(tmp_path_factory.mktemp("export"), kinds=KINDS)
    run = found / "run.toml"
    run.write_text(run.read_text().replace('name = "first"', 'name = "second"').replace("epochs = 2", "epochs = 4"))
    train(run)
    return found


def local(home, party, run="first"):
    """Encoded rows of a party's file, and its model's own predictions of them."""
    folder, settings = home / party, read_party(home / party / "party.toml")
    bundle = Bundle.load(folder / "runs" / run / "model")
    source = open_encoded(settings.data, bundle.encoder, origins_of(settings.data)[0])
    rows = np.concatenate([chunk.values for chunk in source.chunks()])
    return rows, local_predictions(model_of(bundle, begun_run(folder, run)), source)


@pytest.mark.parametrize("party", PARTIES)
def test_an_onnx_file_of_every_kind_predicts_the_partys_part(home, tmp_path, party):
    path = tmp_path / "model.onnx"
    assert export_onnx(home / party, "first", path) < 1e-6
    rows, expected = local(home, party)
    np.testing.assert_allclose(predicted(path.read_bytes(), rows), expected, rtol=1e-5, atol=1e-6)


def test_a_scorecard_adds_up_to_the_partys_part(home, tmp_path):
    path = tmp_path / "card.csv"
    assert export_scorecard(home / "ann", "first", path) == 3
    card = {row["feature"]: row for row in csv.DictReader(path.read_text().splitlines())}
    _, expected = local(home, "ann")
    raw = list(csv.DictReader((home / "ann" / "data.csv").read_text().splitlines()))
    for number in range(20):
        points = float(card[BIAS]["weight"]) + sum(
            (float(raw[number][name]) - float(card[name]["minus"]))
            / float(card[name]["divided_by"])
            * float(card[name]["weight"])
            for name in ("a", "b")
        )
        assert points == pytest.approx(float(expected[number, 0]), abs=1e-5)


def test_a_model_without_such_a_form_is_named(home, tmp_path):
    with pytest.raises(SettingsError, match="a scorecard is for linear models, and this one is of kind 'fm'"):
        export_scorecard(home / "bob", "first", tmp_path / "card.csv")
    assert not (tmp_path / "card.csv").exists()


def test_without_the_extra_it_says_what_to_install(home, tmp_path, monkeypatch):
    def missing(module, what):
        raise MissingExtra(f"{what} needs {module}")

    monkeypatch.setattr(exporting, "need", missing)
    with pytest.raises(MissingExtra, match="an ONNX file needs onnx"):
        export_onnx(home / "ann", "first", tmp_path / "x.onnx")


def command(*words):
    return CliRunner().invoke(app_for("model"), [str(word) for word in words])


def test_the_command_writes_both(home, tmp_path):
    party = ("--party", home / "ann" / "party.toml")
    card, onnx = tmp_path / "c.csv", tmp_path / "m.onnx"
    result = command("model", "export", "first", "--onnx", onnx, "--scorecard", card, *party)
    assert result.exit_code == 0, result.output
    assert "predictions differ by" in result.output
    assert card.is_file()
    assert onnx.is_file()
    assert command("model", "export", "first", *party).exit_code == 2


# Two versions side by side


def scores(home, **chosen):
    with asking_locally(home / "federation.toml", **chosen) as asker:
        answers = ask(asker, [f"r{number}" for number in range(9)])
        assert answers.has_score.all()
        return asker.own.run.name, answers.score.tolist()


def test_both_versions_are_asked_and_one_is_promoted_and_rolled_back_to(home):
    first, second = (scores(home, run=name) for name in ("first", "second"))
    assert first[1] != second[1]
    assert scores(home) == second, "the newest where none is promoted"
    promote_model(home / "ann", "first")
    assert scores(home) == first
    promote_model(home / "ann", "second")
    assert scores(home) == second
    back = roll_back(home / "ann")
    assert (back.run, back.reason[:16]) == ("first", "rolled back from")
    assert scores(home) == first
    assert [each.run for each in Promotions(home / "ann").all()] == ["first", "second", "first"]


def test_there_may_be_nothing_to_roll_back_to(home):
    with pytest.raises(DataError, match="there is nothing to roll back to"):
        roll_back(home / "bob")
    promote_model(home / "bob", "first")
    with pytest.raises(DataError, match="there is nothing to roll back to"):
        roll_back(home / "bob")


def test_a_mix_of_versions_is_refused(home):
    """One party answers with the other version under the run's name: its part is in no score."""
    settings = {name: read_party(home / name / "party.toml") for name in PARTIES}
    own = refreshed(settings["ann"], home / "ann", "second")
    right = refreshed(settings["bob"], home / "bob", "second")
    wrong = refreshed(settings["cid"], home / "cid", "first")
    answerers = {"bob": answerer_of(settings["bob"], right), "cid": answerer_of(settings["cid"], wrong)}
    object.__setattr__(answerers["cid"], "find", lambda _: wrong)
    answers = ask(Asker(own, LocalLine("ann", answerers, PARTIES)), ["r0", "r1"])
    assert not answers.has_score.any()
    assert "cannot be opened" in answers.absent["cid"]
