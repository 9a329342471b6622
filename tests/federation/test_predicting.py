"""Prediction over a standing server: the same numbers, somebody missing and back, changed files, rights, versions."""

import json

import pyarrow as pa
import pyarrow.csv
import pytest
from typer.testing import CliRunner

import fdml
from fdml.cli.app import app_for
from fdml.errors import DataError, FdmlError, SettingsError
from fdml.federation.predicting import asking, chosen_run, published_runs
from fdml.models.bundle import Bundle
from fdml.privacy.accounts import AccountFile
from fdml.serving.asking import AskedRows
from fdml.serving.publication import read_facts
from fdml.storage.disk import FolderDisk
from tests.federation.standing_models import StandingModels
from tests.transport.served import until

pytestmark = pytest.mark.slow
IDS = ["r1", "r2", "r3", "stranger"]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with StandingModels(tmp_path_factory.mktemp("models"), kinds={"bob": "fm", "cid": "mlp"}) as found:
        found.train()
        found.up("bob", "cid")
        yield found


def scores(served, ids=IDS, **options):
    with asking(served.party("ann"), plain=True, server=served.address, **options) as asker:
        return asker.ask(AskedRows(pa.array(ids, pa.large_string())))


def all_answer(served):
    until(lambda: scores(served, ids=["r1"]).has_score.all(), "answers of all parties")


def local(served, ids=IDS):
    return fdml.predict(served.folder / "federation.toml", ids).column("score").to_pylist()


def run_command(served, *words, code=0):
    words = [str(word) for word in words]
    result = CliRunner().invoke(app_for(words), words)
    if result.exception is not None and not isinstance(result.exception, SystemExit | FdmlError):
        raise result.exception
    assert (result.exit_code == 0) == (code == 0), result.output
    return f"{result.output}{'' if result.exception is None else result.exception}"


def test_a_score_over_the_network_is_the_same_number_as_in_process(served):
    all_answer(served)
    answers = scores(served)
    assert [None if value != value else value for value in answers.score[:, 0].tolist()] == local(served)
    assert answers.has_score.tolist() == [True, True, True, False]


def test_the_versions_of_all_parties_are_the_same(served):
    versions = {read_facts(served.folder / name / "runs" / "first" / "serving").version for name in served.parties}
    assert versions == {Bundle.check(served.folder / "ann" / "runs" / "first" / "model").version}
    assert published_runs(served.folder / "ann").keys() == {"first"}


def test_a_party_that_stops_is_named_and_used_again_when_it_is_back(served):
    all_answer(served)
    served.down("cid")
    until(lambda: "cid" in scores(served, ids=["r1"]).absent, "cid to be missed")
    answers = scores(served, ids=["r1"])
    assert not answers.has_score.any()
    assert answers.missing_text(answers.lacks[0]) == "cid"
    served.up("cid")
    all_answer(served)


def test_the_command_writes_a_row_for_every_id_and_says_who_is_missing(served, tmp_path):
    all_answer(served)
    (tmp_path / "ids.csv").write_text("id\n" + "\n".join(IDS) + "\n")
    words = ("predict", served.party("ann"), "--ids", tmp_path / "ids.csv", "--out", tmp_path / "out.csv")
    said = run_command(served, *words, "--plain", "--server", served.address, "--json", tmp_path / "out.json")
    assert "3 of 4 rows have a score of run 'first'" in said
    assert "without bob: 1 rows" in said
    found = pa.csv.read_csv(tmp_path / "out.csv")
    assert found.column("id").to_pylist() == IDS
    assert found.column("score").to_pylist() == local(served)
    assert json.loads((tmp_path / "out.json").read_text())["scored"] == 3


def test_evaluation_of_the_held_out_rows_gives_the_figures_of_the_run(served, tmp_path):
    all_answer(served)
    words = ("evaluate", served.party("ann"), "--plain", "--server", served.address, "--json", tmp_path / "e.json")
    said = run_command(served, *words)
    card = Bundle.check(served.folder / "ann" / "runs" / "first" / "model")
    found = json.loads((tmp_path / "e.json").read_text())
    assert found["loss"] == card.metrics.test_loss
    assert found["figures"] == card.figures
    assert card.compared.text in said
    assert found["scored"] == found["complete"] == found["rows"]


def test_evaluation_of_a_file_of_labelled_rows(served, tmp_path):
    all_answer(served)
    lines = (served.folder / "ann" / "data.csv").read_text().splitlines()
    table = [line.split(",") for line in lines[:41]]
    (tmp_path / "rows.csv").write_text("\n".join(f"{row[0]},{row[-1]}" for row in table) + "\n")
    words = ("evaluate", served.party("ann"), "--plain", "--server", served.address, "--rows", tmp_path / "rows.csv")
    assert "40 of 40 rows have a score" in run_command(served, *words)


def test_answers_are_counted_in_the_ledger_of_each_party_once(served):
    all_answer(served)
    scores(served)
    for party in ("bob", "cid"):
        runs = AccountFile(FolderDisk(served.folder / party / "ledger")).read().runs.values()
        counts = {each.run: each.counts.releases for each in runs}
        assert counts["first (predictions)"] == 1
        assert counts["first"] > 0


def test_another_party_may_not_ask(served):
    with (
        pytest.raises(SettingsError, match="may not ask"),
        asking(served.party("bob"), plain=True, server=served.address),
    ):
        pass


def test_a_version_or_run_that_is_not_there_is_named(served):
    home = served.folder / "ann"
    assert chosen_run(home, None, published_runs(home)["first"].version[:6]) == "first"
    with pytest.raises(DataError, match=r"version 'ffff'.*first \("):
        chosen_run(home, None, "ffff")
    with pytest.raises(DataError, match="run 'second'"):
        chosen_run(home, "second", None)


def test_changed_and_new_rows_are_answered_after_a_while(served):
    all_answer(served)
    before = scores(served, ids=["r1", "r2"]).score[:, 0].tolist()
    path = served.folder / "bob" / "data.csv"
    lines = path.read_text().splitlines()
    header, rows = lines[0], {line.split(",")[0]: line for line in lines[1:]}
    rows["r1"] = "r1,3.5,-2.5"
    rows["ann-1"] = "ann-1,0.25,0.5"
    path.write_text("\n".join([header, *rows.values()]) + "\n")
    until(lambda: scores(served, ids=["r1"]).score[0, 0] != before[0], "the new row")
    after = scores(served, ids=["r1", "r2"]).score[:, 0].tolist()
    assert after[1] == before[1], "a row that did not change keeps its bits"
    assert after == local(served, ["r1", "r2"])
    assert read_facts(served.folder / "bob" / "runs" / "first" / "serving").generation == 2
    assert "bob" not in scores(served, ids=["ann-1"]).why_text(scores(served, ids=["ann-1"]).lacks[0])


def test_models_are_listed_shown_compared_and_forgotten(served, tmp_path):
    party = ("--party", served.party("ann"))
    said = run_command(served, "model", "list", *party, "--json", tmp_path / "m.json")
    (found,) = json.loads((tmp_path / "m.json").read_text())["models"]
    assert found["version"][:12] in said
    assert found["rows"] == 250
    assert "published: 250 rows" in run_command(served, "model", "show", "first", *party)
    assert "auc" in run_command(served, "model", "compare", "first", found["version"][:8], *party)
    assert "no model 'nix'" in run_command(served, "model", "show", "nix", *party, code=1)
    assert "model" in run_command(served, "model", "forget", "first", "--yes", "--party", served.party("cid"))
    assert not (served.folder / "cid" / "runs" / "first" / "serving").exists()
    until(lambda: "cid" in scores(served, ids=["r1"]).absent, "cid to be missed")
    assert "no model of run 'first'" in scores(served, ids=["r1"]).absent["cid"]
