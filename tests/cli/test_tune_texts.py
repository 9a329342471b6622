"""A search as people and programs read it."""

import math
import tomllib

import pytest
from rich.console import Console

from fdml.cli.tune_texts import (
    OPTIMISTIC,
    best_lines,
    best_toml,
    ended_text,
    plotted,
    search_json,
    search_table,
    spent_lines,
)
from fdml.errors import SettingsError
from fdml.experiments.search import End, SearchedRun, SearchResult, Spent
from fdml.experiments.search_settings import read_search
from tests.cli.commands import fail
from tests.federation.homes import write_homes

TUNE = 'name = "rates"\n[search]\ntraining.epochs = [2, 5, 9]\nmodels.ann.l2 = [0.5]\n'


@pytest.fixture
def found(tmp_path):
    """A search with a good run, a better one and one that was refused."""
    folder = write_homes(tmp_path)
    (folder / "run.toml").write_text('name = "first"\nlabel_party = "ann"\n[training]\nepochs = 1\nbatch_size = 16\n')
    (folder / "tune.toml").write_text(TUNE)
    first, second, third = read_search(folder / "tune.toml").candidates
    runs = (
        SearchedRun(first, End("finished"), "v1", 0.6, {"auc": 0.7, "brier": 0.2}),
        SearchedRun(second, End("finished"), "v2", 0.5, {"auc": 0.75, "brier": 0.1}),
        SearchedRun(third, End("refused", "by bob: rule policy.tuning")),
    )
    spent = {"ann": Spent(7, math.inf, 1e-5), "bob": Spent(7, 3.25, 1e-5), "cid": Spent(0, 0.0, 1e-5)}
    return SearchResult("rates", "auc", runs, spent)


def printed(table):
    console = Console(width=150)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


def test_the_table_has_a_line_for_each_run_its_settings_figures_and_state(found):
    heading, *lines = printed(search_table(found))
    assert heading.split() == ["run", "training.epochs", "models.ann.l2", "test", "loss", "AUC"]
    assert lines[0].split() == ["rates-1", "2", "0.5", "0.6000", "0.7000"]
    assert lines[1].split() == ["rates-2", "5", "0.5", "0.5000", "0.7500", "best"]
    assert lines[2].split() == ["rates-3", "9", "0.5", "-", "-", "refused"]


def test_the_last_lines_say_what_failed_which_is_best_and_what_that_is_worth(found):
    refused, best, settings, worth = best_lines(found)
    assert refused == "rates-3: refused: by bob: rule policy.tuning"
    assert best == "best by AUC: rates-2, 0.7500"
    assert settings.strip() == "training.epochs = 5, models.ann.l2 = 0.5"
    assert worth == OPTIMISTIC
    assert "test on rows that no run of the search has seen" in worth


def test_what_was_released_is_told_for_each_party(found):
    assert list(spent_lines(found)) == [
        "ann: all runs of the search released each row at most 7 times, without noise",
        "bob: all runs of the search released each row at most 7 times, epsilon 3.25 at delta 1e-05",
        "cid: nothing was released",
    ]


def test_a_line_for_each_run_as_it_ends(found):
    assert [ended_text(run) for run in found.runs] == [
        "rates-1: test loss 0.6000, AUC 0.7000",
        "rates-2: test loss 0.5000, AUC 0.7500",
        "rates-3: refused: by bob: rule policy.tuning",
    ]


def test_programs_get_all_of_it(found):
    told = search_json(found)
    assert (told["name"], told["choose_by"], told["best"]) == ("rates", "auc", "rates-2")
    assert [run["state"] for run in told["runs"]] == ["finished", "finished", "refused"]
    assert told["runs"][1]["settings"] == {"training.epochs": 5, "models.ann.l2": 0.5}
    assert told["spent"]["ann"]["epsilon"] is None
    assert told["spent"]["bob"] == {"releases": 7, "epsilon": 3.25, "delta": 1e-5}


def test_only_runs_with_a_figure_are_drawn_and_one_is_the_best(found):
    assert [(each.figure, each.is_best) for each in plotted(found)] == [(0.7, False), (0.75, True)]


def test_the_best_run_as_a_run_toml_keeps_all_settings_but_the_name(found):
    text = best_toml(found.best)
    assert tomllib.loads(text) == {"label_party": "ann", "training": {"epochs": 5, "batch_size": 16}}
    assert "# and in [model] of the party.toml of ann: l2 = 0.5" in text


def test_a_search_without_a_finished_run_names_no_best(found):
    none = SearchResult("rates", "auc", found.runs[2:], {})
    assert list(best_lines(none)) == ["rates-3: refused: by bob: rule policy.tuning"]
    assert search_json(none)["best"] is None


def test_wrong_files_and_pictures_are_refused_before_anything_starts(tmp_path):
    folder = write_homes(tmp_path)
    assert "there is no file" in fail(SettingsError, "tune", folder / "tune.toml")
    assert "let its name end in" in fail(SettingsError, "tune", folder / "tune.toml", "--plot", folder / "x.txt")
    assert "there is no folder" in fail(SettingsError, "tune", folder / "tune.toml", "--json", folder / "no" / "x.json")
