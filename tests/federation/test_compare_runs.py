"""Runs beside each other, as a person reads them."""

from io import StringIO

import pytest
from rich.console import Console

from fdml.errors import SettingsError
from fdml.federation.compare_runs import ComparedRun, compare_runs, comparison_remarks, comparison_table

FIGURES = {"auc": 0.9, "average_precision": 0.8, "ks": 0.7, "lift": 3.0, "brier": 0.1, "accuracy": 0.8}


def lines_of(*runs):
    output = StringIO()
    Console(file=output, width=100).print(comparison_table(runs))
    return [line.split() for line in output.getvalue().splitlines()]


def run(name, figures=FIGURES, gain=(0.031, 0.014, 0.046), **more):
    settings = {"training.epochs": "5", "training.seed": "7"}
    return ComparedRun(name, "2026-11-18T02:18:07+00:00", "v", settings, 0.34, figures, gain, **more)


def test_a_line_has_the_settings_that_differ_the_metric_and_what_it_brings():
    heading, line = lines_of(run("first"))
    assert heading == ["run", "finished", "epochs", "seed", "test", "loss", "AUC", "over", "alone"]
    assert line[:7] == ["first", "2026-11-18", "02:18", "5", "7", "0.3400", "0.9000"]
    assert line[7:] == ["+0.031", "(0.014", "to", "0.046)"]


def test_settings_of_the_same_name_keep_their_table():
    twice = ComparedRun("first", "2026-11-18T02:18", "v", {"training.rate": "1", "privacy.rate": "2"})
    (heading, line) = lines_of(twice)
    assert heading[2:4] == ["training.rate", "privacy.rate"]
    assert line[-3:] == ["2", "-", "-"], "a party without labels has no figures"


def test_a_gain_without_an_interval_or_without_a_metric():
    _, few, none = lines_of(run("few", gain=(0.031, None, None)), run("none", gain=(None, None, None)))
    assert few[-1] == "+0.031"
    assert none[-1] == "-"


def test_runs_that_have_not_converged_are_named():
    falling = run("short", convergence="falling", remark="not converged: the loss still falls 12 % an epoch")
    assert comparison_remarks([run("long"), falling]) == ["short: not converged: the loss still falls 12 % an epoch"]


@pytest.mark.parametrize(("names", "words"), [((), "no run has finished"), (("first",), "run 'first' has not")])
def test_runs_that_have_not_finished_are_named(tmp_path, names, words):
    with pytest.raises(SettingsError, match=f"{words}.* at party 'ann'; finished there: none"):
        compare_runs(tmp_path, "ann", names)
