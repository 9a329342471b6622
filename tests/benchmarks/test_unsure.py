"""The benchmark of asking only when unsure, on few rows."""

import pytest

from benchmarks import unsure
from benchmarks.default_sets import all_sets


@pytest.fixture(scope="module")
def found():
    return unsure.banded(all_sets(0)["breast cancer"](0).shuffled(0), 0)


@pytest.mark.slow
def test_a_wider_band_asks_for_more_rows(found):
    asked = [found[f"{low:g} to {high:g}"]["asked"] for low, high in unsure.BANDS]
    assert asked == sorted(asked, reverse=True)
    assert (asked[0], asked[-1]) == (1.0, 0.0)


@pytest.mark.slow
def test_every_band_has_its_figures(found):
    assert {name for figures in found.values() for name in figures} == {"asked", "accuracy", "AUC", "loss"}
    assert all(0.8 < figures["accuracy"] <= 1.0 for figures in found.values())
    assert all(0.8 < figures["AUC"] <= 1.0 for figures in found.values())


@pytest.mark.slow
def test_the_default_band_is_held_to_its_bars(monkeypatch):
    small = {
        f"{low:g} to {high:g}": {"asked": 0.5, "accuracy": 0.9, "AUC": 0.9, "loss": 0.3} for low, high in unsure.BANDS
    }
    monkeypatch.setattr(unsure, "banded", lambda *_: small)
    monkeypatch.setattr(unsure, "a9a_of", lambda _: all_sets(0)["wine"](0))
    said = []
    report = unsure.run(said.append, seeds=2)
    assert said == ["seed 0", "seed 1"]
    assert len(report.results) == 4 * len(unsure.BANDS)
    assert report.ratios["default band: accuracy lost"]["at_most"] == 0.001
    assert report.ratios["default band: rows asked for"] == {
        "median": 0.5, "min": 0.5, "max": 0.5, "mean": 0.5, "at_most": 0.6
    }  # fmt: skip
