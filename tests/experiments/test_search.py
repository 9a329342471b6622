"""A search: which run is the best, what is shown of those that failed, and that it goes on where it was."""

import json
import math
from dataclasses import replace

import pytest

from fdml.errors import SettingsError
from fdml.experiments.search import End, SearchedRun, SearchResult, Spent, run_search
from fdml.experiments.search_settings import read_search
from fdml.experiments.search_sides import OneMachine, StandingSides
from fdml.federation.run_folder import RunFolder
from fdml.models.bundle import Bundle
from fdml.party.settings import read_party, with_model
from fdml.settings import RunSettings
from tests.end_to_end.cluster import write_run
from tests.federation.homes import home_of, write_homes

TUNE = """
name = "small"
[search]
training.epochs = [1, 4]
models.ann.l2 = [0.0, 5.0]
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search") / "run"
    write_run(folder, 0, ("ann", "bob"), 200, {})
    (folder / "tune.toml").write_text(TUNE)
    with (folder / "bob" / "party.toml").open("a") as file:
        file.write('[guard]\nclip = 3.0\nnoise = "gaussian"\nsigma = 50.0\n')
    return folder


@pytest.fixture(scope="module")
def found(home, warm_starts):
    """The search, and the order in which its runs were started."""
    search, started = read_search(home / "tune.toml"), []
    result = run_search(search, OneMachine(search), on_start=lambda each: started.append(each.name))
    return result, started


def candidates(home):
    return read_search(home / "tune.toml").candidates


def result_of(home, figures, choose_by="auc"):
    """A search whose runs had these figures; None is a run that failed."""
    runs = [
        SearchedRun(each, End("failed", "no room") if value is None else End("finished"), "v", value, {"auc": value})
        for each, value in zip(candidates(home), figures, strict=True)
    ]
    return SearchResult("small", choose_by, tuple(runs), {})


def test_the_best_has_the_highest_auc_or_the_lowest_loss(home):
    figures = [0.7, None, 0.8, 0.6]
    assert result_of(home, figures).best.candidate.name == "small-3"
    assert result_of(home, figures, "test_loss").best.candidate.name == "small-4"


def test_the_first_of_equal_ones_is_the_best_and_what_is_no_number_is_none(home):
    assert result_of(home, [0.7, 0.7, math.nan, 0.1]).best.candidate.name == "small-1"
    assert result_of(home, [None, math.nan, None, math.inf]).best is None


def test_a_figure_that_is_no_number_is_not_known(home):
    first = candidates(home)[0]
    run = SearchedRun(first, End("finished"), "v", 0.5, {"auc": None, "brier": math.inf, "ks": 0.25})
    assert [run.figure(name) for name in ("test_loss", "auc", "brier", "ks", "lift")] == [0.5, None, None, 0.25, None]


def test_a_run_that_did_not_finish_is_never_the_best_whatever_its_figures(home):
    first, second, *_ = candidates(home)
    runs = (
        SearchedRun(first, End("stopped", "by bob"), "v", 0.1, {"auc": 0.99}),
        SearchedRun(second, End("finished"), "v", 0.9, {"auc": 0.51}),
    )
    assert SearchResult("small", "auc", runs, {}).best is runs[1]


def test_the_runs_of_a_search_say_what_they_try(home):
    assert [each.text for each in candidates(home)][::3] == [
        "training.epochs = 1, models.ann.l2 = 0.0",
        "training.epochs = 4, models.ann.l2 = 5.0",
    ]


@pytest.mark.slow
def test_every_run_has_its_folder_model_and_figures_over_one_alignment(home, found):
    result, started = found
    assert started == ["small-1", "small-2", "small-3", "small-4"]
    assert [run.end.state for run in result.runs] == ["finished"] * 4
    for party in ("ann", "bob"):
        assert len(list((home / party / "alignments").glob("*/generation-*"))) == 1
    cards = [Bundle.check(home / "ann" / "runs" / name / "model") for name in started]
    assert [card.settings.model["l2"] for card in cards] == [0.0, 5.0, 0.0, 5.0]
    assert [card.metrics.epoch for card in cards] == [1, 1, 4, 4]
    assert len({card.version for card in cards}) == 4
    bob = [Bundle.check(home / "bob" / "runs" / name / "model") for name in started]
    assert len({card.settings.model["l2"] for card in bob}) == 1, "the other party's model is as its file says"


@pytest.mark.slow
def test_the_best_is_that_of_the_figures_in_the_bundles(home, found):
    result, _ = found
    figures = [Bundle.check(home / "ann" / "runs" / f"small-{each}" / "model").figures["auc"] for each in range(1, 5)]
    assert [run.figures["auc"] for run in result.runs] == figures
    assert result.best.figures["auc"] == max(figures)


@pytest.mark.slow
def test_every_release_of_every_run_is_counted(home, found):
    result, _ = found
    assert result.spent["ann"] == Spent(releases=10, epsilon=math.inf, delta=1e-5)
    assert result.spent["bob"].releases == 10
    assert 0 < result.spent["bob"].epsilon < math.inf
    accounts = json.loads((home / "bob" / "ledger" / "accounts.json").read_text())["runs"].values()
    assert sorted((each["run"], each["counts"]["releases"]) for each in accounts) == [
        ("small-1", 1),
        ("small-2", 1),
        ("small-3", 4),
        ("small-4", 4),
    ]


@pytest.mark.slow
def test_finished_runs_are_not_repeated_and_missing_ones_are_run(home, found):
    search, started = read_search(home / "tune.toml"), []
    again = run_search(search, OneMachine(search), on_start=lambda each: started.append(each.name))
    assert started == []
    assert again == found[0]


@pytest.mark.slow
def test_another_search_under_the_same_name_is_refused_before_anything_starts(home, found, tmp_path):
    for text, words in ((("[1, 4]", "[2, 4]"), "training.epochs is 2 here, 1 when"), (("5.0", "6.0"), "models began")):
        (home / "other.toml").write_text(TUNE.replace(*text))
        search = read_search(home / "other.toml")
        with pytest.raises(SettingsError, match=f"{words}.*give the search a new name"):
            run_search(search, OneMachine(search))


@pytest.mark.slow
def test_a_run_that_fails_is_noted_and_the_search_goes_on(tmp_path, warm_starts):
    write_run(tmp_path / "run", 0, ("ann", "bob"), 200, {})
    tune = tmp_path / "run" / "tune.toml"
    tune.write_text('name = "wild"\n[search]\ntraining.learning_rate = [1e9, 0.1]\n')
    search = read_search(tune)
    result = run_search(search, OneMachine(search))
    assert [run.end.state for run in result.runs] == ["failed", "finished"]
    assert "learning_rate 1e+09 times l2" in result.runs[0].end.reason
    assert result.best.candidate.name == "wild-2"


def test_a_figure_to_choose_by_that_is_not_there_is_refused_with_those_that_are(home):
    search = read_search(home / "tune.toml")
    wrong = replace(search, settings=search.settings.model_copy(update={"choose_by": "f1"}))
    finished = [run for run in search.candidates if (home / "ann" / "runs" / run.name / "model").is_dir()]
    if finished:
        with pytest.raises(SettingsError, match="choose_by is 'f1', and the held-out figures are test_loss, auc"):
            run_search(replace(wrong, candidates=tuple(finished)), OneMachine(search))


def test_only_the_label_party_can_compare_and_only_its_own_model_is_its_to_set(tmp_path):
    folder = write_homes(tmp_path)
    (folder / "run.toml").write_text('label_party = "ann"\n')
    (folder / "tune.toml").write_text('name = "few"\n[search.models.bob]\nl2 = [0.1]\n')
    search = read_search(folder / "tune.toml")
    for party, words in (("bob", "start the search there"), ("ann", "search.models.bob is not this party's to set")):
        with pytest.raises(SettingsError, match=words):
            run_search(search, StandingSides(home_of(folder, party), accept_seconds=1.0))


def test_a_model_that_cannot_be_is_refused_before_anything_starts(home):
    (home / "wrong.toml").write_text('name = "wrong"\n[search.models.ann]\nfactors = [4]\n')
    search = read_search(home / "wrong.toml")
    with pytest.raises(SettingsError, match="unknown setting 'factors'"):
        run_search(search, OneMachine(search))


def test_a_party_without_the_right_to_start_runs_cannot_search(tmp_path):
    folder = write_homes(tmp_path, rights='[rights]\nstart = ["bob"]')
    with pytest.raises(SettingsError, match="no right to start runs"):
        StandingSides(home_of(folder, "ann"), accept_seconds=1.0)


def test_a_run_s_own_model_is_set_once_and_before_it_begins(tmp_path):
    run = RunSettings(name="one", parties=("ann",), label_party="ann")
    folder = RunFolder(tmp_path, run)
    assert folder.own_model() == {}
    folder.set_own_model({"l2": 0.1})
    folder.set_own_model({"l2": 0.1})
    assert RunFolder(tmp_path, run).own_model() == {"l2": 0.1}
    with pytest.raises(SettingsError, match="began with other settings"):
        folder.set_own_model({"l2": 0.2})
    later = RunFolder(tmp_path, run.model_copy(update={"name": "two"}))
    later.begin()
    with pytest.raises(SettingsError, match="began with other settings"):
        later.set_own_model({"l2": 0.2})


def test_a_changed_model_keeps_what_was_set_unless_its_kind_changes(tmp_path):
    folder = write_homes(tmp_path, party='[model]\nkind = "mlp"\nhidden = [8]\nl2 = 0.5')
    own = read_party(folder / "ann" / "party.toml")
    assert with_model(own, {}) is own
    assert with_model(own, {"l2": 0.1}).model.model_dump()["hidden"] == (8,)
    assert with_model(own, {"kind": "fm", "factors": 2}).model.l2 == "auto"
