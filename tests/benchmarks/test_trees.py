"""What the benchmark of trees trains, on few rows of Adult."""

import pytest

from benchmarks import trees
from benchmarks.trees import CASES, Case, NativeProblem, pooled, raw_adult, trained


def small():
    return raw_adult().first(1500, seed=1)


@pytest.fixture(scope="module")
def few():
    return NativeProblem.of(small(), 0)


def test_adult_is_cut_behind_its_eighth_column(few):
    widths = {name: rows.values.shape[1] for name, rows in few.problem.train.parts.items()}
    assert widths == {"p0": 8, "p1": 6}
    categories = {name: known.categories for name, known in few.native.items()}
    assert categories == {"p0": (1, 3, 5, 6, 7), "p1": (0, 1, 5)}
    assert list(few.alone().problem.train.parts) == ["p0"]


@pytest.mark.slow
def test_few_rows_of_adult_are_learned_jointly_and_pooled(few):
    assert trained(few, 0, exchanges=4, epochs=8) > 0.85
    assert pooled(few) > 0.85


@pytest.mark.slow
def test_the_report_has_every_contender_and_the_bar(monkeypatch):
    monkeypatch.setitem(CASES, "few rows", Case(small, 0.8, {"joint, 2 exchanges": {"exchanges": 2, "epochs": 4}}))
    heard: list[str] = []
    report = trees.run(heard.append, seeds=1, only="few rows")
    assert heard == ["few rows, seed 1 of 1"]
    assert [each["contender"] for each in report.results] == [
        f"few rows, {who}" for who in ("alone", "joint", "joint, 2 exchanges", "pooled LightGBM")
    ]
    assert report.ratios["few rows: joint"]["at_least"] == 0.8
