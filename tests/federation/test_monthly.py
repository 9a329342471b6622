"""A run that goes on from an earlier version: kept encoders, out-of-time test, comparison on the same rows, promotion."""

import json
import shutil

import numpy as np
import pytest

from fdml.audit.load_recording import read_recording
from fdml.data.label_encoding import fit_labels
from fdml.errors import LabelError, SettingsError, StateCorrupt
from fdml.events import ComparedVersion
from fdml.federation.check import check
from fdml.federation.join import join
from fdml.federation.party_folder import PartyFolder
from fdml.federation.versions import Promotions, held_versions
from fdml.models.bundle import Bundle
from fdml.models.metrics import Ranking
from fdml.settings.federation import read_run
from tests.federation.folders import serving, together

BOTH = ("ann", "bob")
CITIES = ("lisbon", "porto", "faro")


def write_month(home, month, *, rows=150, drift=0.0, cities=CITIES, regression=False):
    """The month's files of both parties; their ids go on from month to month."""
    random = np.random.default_rng(month)
    ids = month * 1000 + np.arange(rows)
    x, y = random.normal(size=(2, rows))
    city = random.integers(len(cities), size=rows)
    score = (1.0 + drift) * x + (1.0 - drift) * y + 0.5 * city + 0.3 * random.normal(size=rows)
    labels = 100.0 + 10.0 * score if regression else np.where(score > 0.5, "yes", "no")
    lines = {
        "ann": ["id,x,label", *(f"{ids[at]},{x[at]},{labels[at]}" for at in range(rows))],
        "bob": ["id,y,city", *(f"{ids[at]},{y[at]},{cities[city[at]]}" for at in random.permutation(rows))],
    }
    for party, text in lines.items():
        (home / party).mkdir(parents=True, exist_ok=True)
        (home / party / f"month-{month}.csv").write_text("\n".join(text) + "\n")


def write_parties(home, train, test=None, more=""):
    """Both party.toml: which month is trained on, and which is tested on."""
    (home / "federation.toml").write_text('name = "small"\nserver = "127.0.0.1:0"\nparties = ["ann", "bob"]\n')
    for party in BOTH:
        label = 'label = "label"\n' if party == "ann" else ""
        out_of_time = "" if test is None else f'test_path = "month-{test}.csv"\n'
        (home / party / "party.toml").write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\nthreads = 1\n[align]\nmax_rows = 1000\n[data]\n'
            f'path = "month-{train}.csv"\n{out_of_time}id = "id"\n{label}{more}'
        )


def run(home, name, text="", epochs=2, task="binary"):
    """A whole run; gives the label party's events."""
    events = []
    path = home / f"{name}.toml"
    path.write_text(
        f'name = "{name}"\nlabel_party = "ann"\ntask = "{task}"\n{text}\ntraining.epochs = {epochs}\n'
        f"training.batch_size = 10\ntraining.batches_per_block = 2\ntraining.value_bits = 64\ntraining.checkpoint_seconds = 0.0\n"
    )
    with serving(path) as server:
        together(
            *(
                lambda party=party: join(
                    home / party / "party.toml",
                    path,
                    plain=True,
                    server=server.address,
                    on_event=events.append if party == "ann" else lambda _: None,
                )
                for party in BOTH
            )
        )
    assert server.error is None
    return events


def version(home, name, party="ann"):
    return held_versions(home / party)[name].version


def bundle(home, name, party="ann"):
    return Bundle.load(home / party / "runs" / name / "model")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A first run on October, and November's files in place, with a city that October has not."""
    home = tmp_path_factory.mktemp("october")
    for month, cities in ((10, CITIES), (11, (*CITIES, "evora"))):
        write_month(home, month, cities=cities)
    write_parties(home, 10)
    run(home, "october")
    return home


@pytest.fixture
def october(trained, tmp_path):
    """A copy of its folders, in which further runs may begin."""
    return shutil.copytree(trained, tmp_path / "home")


@pytest.mark.slow
def test_a_run_from_a_version_keeps_its_encoders_and_begins_with_its_parameters(october):
    write_parties(october, 11)
    still = "training.learning_rate = 1e-12"
    events = run(october, "november", f'from = "{version(october, "october")}"\n{still}', epochs=1)
    for party in BOTH:
        assert bundle(october, "november", party).encoder == bundle(october, "october", party).encoder
    assert "city=evora" not in bundle(october, "november", "bob").encoder.names
    for party in BOTH:
        before, after = (bundle(october, name, party).parameters for name in ("october", "november"))
        assert np.abs(before["theta"]).max() > 0.1
        assert np.allclose(before["theta"], after["theta"], atol=1e-6)
    run(october, "anew", epochs=1)
    assert "city=evora" in bundle(october, "anew", "bob").encoder.names
    (found,) = [event for event in events if isinstance(event, ComparedVersion)]
    assert (found.version, found.run) == (version(october, "october"), "october")
    assert version(october, "november") == version(october, "november", "bob") != version(october, "october")


@pytest.mark.slow
def test_the_earlier_version_is_tested_on_the_same_rows_to_the_last_bit(october):
    """What the run says of October's models is what they predict of November's rows, by their own encoders."""
    write_parties(october, 10, test=11)
    (found,) = [
        event
        for event in run(october, "november", f'evaluation.against = "{version(october, "october")}"')
        if isinstance(event, ComparedVersion)
    ]
    settings = read_run(october / "november.toml", october / "federation.toml")
    score, labels = 0.0, None
    for party in BOTH:
        folder = PartyFolder(october / party / "party.toml", settings)
        shared = folder.shared_rows()
        earlier = folder.member(folder.endpoint(plain=True, server="127.0.0.1:1")).earlier
        score = score + np.round(earlier.predict(shared, 1).astype(np.float64), 6)
        labels = folder.files.labels(shared)[0] if party == "ann" else labels
    assert found.rows == 150 == len(score)
    auc = Ranking.of(labels.held_out, score[:, 0], np.ones(len(score))).auc
    assert found.figures["auc"] == pytest.approx(auc, abs=1e-3)
    card = bundle(october, "november").card
    assert card.earlier == found
    assert (card.earlier.new, card.earlier.old) == (card.figures["auc"], found.figures["auc"])
    assert found.gain == found.new - found.old
    rows = json.loads((october / "ann" / "runs" / "november" / "history.json").read_text())
    assert rows[-1]["earlier"]["text"] == found.text
    assert "over version" in found.text


@pytest.mark.slow
def test_a_run_that_is_compared_releases_held_out_rows_once_more_and_trains_the_same(october):
    write_parties(october, 10, test=11)
    run(october, "plain")
    run(october, "compared", f'evaluation.against = "{version(october, "october")}"')
    ours, theirs = (bundle(october, name, "bob").parameters for name in ("plain", "compared"))
    assert all(np.array_equal(ours[name], theirs[name]) for name in ours)
    accounts = json.loads((october / "bob" / "ledger" / "accounts.json").read_text())["runs"].values()
    assert {each["run"]: each["counts"]["held_out"] for each in accounts} == {"october": 2, "plain": 2, "compared": 3}
    spent = {each.rows: each.releases for each in bundle(october, "compared", "bob").card.privacy}
    assert spent["held-out rows"] == 3


@pytest.mark.slow
@pytest.mark.parametrize(("at_least", "promoted"), [(-1.0, True), (0.9, False)])
def test_the_rule_promotes_at_every_party_or_at_none(october, at_least, promoted):
    write_parties(october, 10, test=11)
    for party in BOTH:
        Promotions(october / party).promote(version(october, "october"), "october", "person")
    text = f'from = "{version(october, "october")}"\npromotion.at_least = {at_least}\npromotion.metric = "test_loss"'
    events = run(october, "november", text)
    (found,) = [event for event in events if isinstance(event, ComparedVersion)]
    assert found.promoted is promoted
    assert found.metric == "test_loss"
    assert found.gain == found.old - found.new
    wanted = "november" if promoted else "october"
    for party in BOTH:
        current = Promotions(october / party).current
        assert (current.run, current.version) == (wanted, version(october, wanted))
        assert len(Promotions(october / party).all()) == 1 + promoted
        assert current.by == ("rule" if promoted else "person")
    assert ("; promoted: " if promoted else "; not promoted: ") in found.text


@pytest.mark.slow
def test_the_rule_goes_with_early_stopping(october):
    write_parties(october, 10, test=11)
    text = f'from = "{version(october, "october")}"\npromotion.at_least = -1.0\nevaluation.stop_after = 1'
    run(october, "november", text, epochs=6)
    assert [Promotions(october / party).current.run for party in BOTH] == ["november"] * 2
    assert bundle(october, "november").card.earlier.epoch == bundle(october, "november").card.metrics.epoch


def folder_of(home, text, party="ann"):
    """What a party would join, without a server."""
    path = home / "next.toml"
    path.write_text(f'name = "next"\nlabel_party = "ann"\n{text}\n')
    return PartyFolder(home / party / "party.toml", path)


def test_a_version_that_a_party_does_not_hold_is_refused_with_its_name(october):
    unknown = "0" * 32
    with pytest.raises(SettingsError, match=f"party 'bob' does not hold version {unknown}"):
        folder_of(october, f'from = "{unknown}"', "bob")
    folder = folder_of(october, f'evaluation.against = "{unknown}"')
    with pytest.raises(SettingsError, match=f"party 'ann' does not hold version {unknown}"):
        folder.member(folder.endpoint(plain=True, server="127.0.0.1:1"))


@pytest.mark.slow
def test_regressions_are_compared_in_the_units_of_their_own_labels(tmp_path):
    for month in (10, 11):
        write_month(tmp_path, month, regression=True)
    write_parties(tmp_path, 10)
    run(tmp_path, "october", task="regression", epochs=20)
    write_parties(tmp_path, 11)
    against = f'evaluation.against = "{version(tmp_path, "october")}"'
    events = run(tmp_path, "november", against, task="regression", epochs=20)
    (found,) = [event for event in events if isinstance(event, ComparedVersion)]
    assert found.old > 0.8
    assert 1.0 < found.figures["rmse"] < 6.0


def test_another_kind_of_model_cannot_be_gone_on_from(october):
    write_parties(october, 10, more='[model]\nkind = "fm"\n')
    with pytest.raises(SettingsError, match=r"model of kind 'linear' at party 'ann', and party\.toml says 'fm'"):
        folder_of(october, f'from = "{version(october, "october")}"')


def test_another_optimizer_cannot_be_gone_on_with(october):
    write_parties(october, 10, more='[model]\noptimizer = "sgd"\n')
    with pytest.raises(
        SettingsError, match=r"with optimizer 'adam' at party 'ann', .* model\.optimizer = 'sgd'; put it"
    ):
        folder_of(october, f'from = "{version(october, "october")}"')


@pytest.mark.slow
def test_a_party_that_sets_no_optimizer_goes_on_with_that_of_the_version(tmp_path):
    """Also where the default has become another one since."""
    write_month(tmp_path, 10)
    write_parties(tmp_path, 10, more='[model]\nkind = "mlp"\nhidden = [3]\noptimizer = "adam"\n')
    run(tmp_path, "october")
    write_parties(tmp_path, 10, more='[model]\nkind = "mlp"\nhidden = [3]\n')
    begin = f'from = "{version(tmp_path, "october")}"'
    assert folder_of(tmp_path, begin).settings.model.optimizer == "adam"
    run(tmp_path, "november", begin)
    assert Bundle.load(tmp_path / "ann" / "runs" / "november" / "model").card.settings.model["optimizer"] == "adam"


def test_other_classes_cannot_be_compared_and_are_not_shown(october):
    path = october / "ann" / "month-10.csv"
    path.write_text(path.read_text().replace(",yes", ",maybe"))
    folder = folder_of(october, f'evaluation.against = "{version(october, "october")}"')
    earlier = folder.member(folder.endpoint(plain=True, server="127.0.0.1:1")).earlier
    now = fit_labels("binary", folder.files.sources[0].labels())
    with pytest.raises(LabelError, match="not the same ones") as raised:
        earlier.check_labels(now)
    assert "maybe" not in str(raised.value)
    earlier.check_labels(earlier.labels)


def test_noise_in_training_cannot_go_on_from_a_model(october):
    write_parties(october, 10, more="[guard.training]\nclip = 1.0\nsigma = 1.0\n")
    with pytest.raises(SettingsError, match=r"\[guard\.training\] counts what this run's own training tells"):
        folder_of(october, f'from = "{version(october, "october")}"')


def test_noise_in_training_is_not_compared_with_a_model_that_had_none(october):
    write_parties(october, 10, more="[guard.training]\nclip = 1.0\nsigma = 1.0\n")
    against = f'evaluation.against = "{version(october, "october")}"\ntraining.learning_rate = 0.1'
    folder = folder_of(october, against, "bob")
    with pytest.raises(SettingsError, match="was trained without it"):
        folder.member(folder.endpoint(plain=True, server="127.0.0.1:1"))


def test_a_damaged_bundle_is_told_before_anything_leaves(october):
    (october / "bob" / "runs" / "october" / "model" / "parameters.npz").unlink()
    with pytest.raises(StateCorrupt, match=r"runs/october/model' is damaged: parameters\.npz"):
        folder_of(october, f'from = "{"0" * 32}"', "bob")


def test_with_noise_the_comparison_is_paid_for_and_counted(october):
    guard = '[guard]\nclip = 3.0\nnoise = "gaussian"\nsigma = "auto"\nepsilon = 2.0\n'
    write_parties(october, 10, test=11, more=guard)
    against = f'evaluation.against = "{version(october, "october")}"\nevaluation.every = "end"'
    run(october, "november", against)
    assert bundle(october, "november").card.earlier is not None
    spent = {each.rows: each for each in bundle(october, "november", "bob").card.privacy}
    assert spent["held-out rows"].releases == 2
    assert spent["held-out rows"].epsilon == pytest.approx(2.0, rel=1e-3)


def test_a_check_at_home_knows_versions_by_name_and_tells_those_that_are_not_there(october):
    path = october / "next.toml"
    words = ('name = "next"', 'label_party = "ann"', "from = {!r}")
    for named, lacking in (("october", False), ("0" * 32, True), ("promoted", True)):
        path.write_text("\n".join(words).format(named).replace("'", '"') + "\n")
        faults = [
            each
            for each in check(october / "bob" / "party.toml", path, plain=True).faults
            if "version" in each or "promoted" in each
        ]
        assert bool(faults) is lacking, faults


def test_a_party_that_joins_by_itself_may_name_a_run_and_the_audit_refuses_what_it_cannot_replay(october):
    path = october / "next.toml"
    path.write_text('name = "next"\nlabel_party = "ann"\nevaluation.against = "october"\n')
    assert PartyFolder(october / "bob" / "party.toml", path).run.compared_version == version(october, "october")
    path.write_text(f'name = "next"\nlabel_party = "ann"\nfrom = "{version(october, "october")}"\n')
    with pytest.raises(SettingsError, match="audit a run without `from`"):
        read_recording(path)
