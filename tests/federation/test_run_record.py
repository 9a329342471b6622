"""What a party's files of a run say, and the figures of other schemes beside it."""

import json
import shutil
from dataclasses import replace

import pytest

from fdml.federation.findings import OtherSchemes, keep_comparison
from fdml.federation.run_record import read_record
from fdml.federation.run_report import write_report
from fdml.federation.watch import Watch
from tests.cli.commands import call
from tests.federation.test_run_report import RUN, finished, words_of
from tests.federation.test_watch import NOBODY, shown
from tests.monitor.sample_events import Clock

__all__ = ["finished"]  # a fixture
FIGURES = {"alone": (0.6, 0.7), "late fusion": (0.5, 0.8), "pooled": (0.3, 0.93), "joint": (0.35, 0.9)}


@pytest.fixture
def home(finished, tmp_path):
    """A copy of the run, to be compared."""
    shutil.copytree(finished, tmp_path / "run")
    return tmp_path / "run"


def compared(home, version=None):
    """Keep figures of other schemes, of the rows of this version; of the run's where none is given."""
    record = read_record(home / "ann", "ann", "first")
    keep_comparison(home / "ann", record.settings, OtherSchemes("auc", 24, 1, FIGURES, version or record.card.version))
    return read_record(home / "ann", "ann", "first")


def alone_of(home):
    return json.loads((home / "ann" / RUN / "history.json").read_text())[-1]["compared"]


def test_figures_on_the_same_rows_are_flat_lines_beside_the_label_party_alone(home):
    alone = alone_of(home)
    assert compared(home).levels == {
        "test_loss": {"ann alone": alone["figures"]["log_loss"], "late fusion": 0.5, "pooled": 0.3},
        "test_metric": {"ann alone": alone["alone"], "late fusion": 0.8, "pooled": 0.93},
    }


@pytest.mark.parametrize("version", ["", "another"])
def test_figures_of_other_rows_are_no_lines(home, version):
    record = replace(compared(home), schemes=OtherSchemes("auc", 24, 1, FIGURES, version))
    assert record.same_rows is None
    assert set(record.levels["test_metric"]) == {"ann alone"}
    assert "not known in a run" in record.levels_note


def test_a_run_says_which_lines_it_has_and_how_to_have_more(home):
    record = read_record(home / "ann", "ann", "first")
    assert record.levels_note.endswith("There, `fdml compare run.toml` adds them here, on the same held-out rows.")
    assert replace(record, card=None).levels_note.startswith("ann alone is added when the run ends. Late fusion")
    assert "mean of 1 seed." in compared(home).levels_note
    assert read_record(home / "bob", "bob", "first").levels_note == "", "it has no figures to compare"


def test_the_page_takes_up_a_comparison_that_comes_while_it_is_open(home):
    clock = Clock()
    found = Watch(home / "ann" / "party.toml", plain=True, server=NOBODY, seconds=0.1, clock=clock)
    found.look()
    assert [name for name, _ in found.state()["curves"]["test_metric"]["levels"]] == ["ann alone"]
    compared(home)
    clock.now += 10.0
    found.look()
    state = found.state()
    assert state["curves"]["test_metric"]["levels"][1:] == [["late fusion", 0.8], ["pooled", 0.93]]
    assert state["curves"]["test_loss"]["levels"][1:] == [["late fusion", 0.5], ["pooled", 0.3]]
    assert "on the same held-out rows" in state["levels_note"]


def test_the_report_draws_the_lines_and_says_of_which_rows_they_are(home):
    compared(home)
    text = write_report(home / "ann", "ann", "first").read_text()
    gain = json.loads((home / "ann" / RUN / "history.json").read_text())[-1]["test_metric"] - 0.8
    assert f"Over late fusion, which takes no joint training: {gain:+.3f}." in words_of(text)
    assert "by <code>fdml compare</code>, on the same held-out rows" in text
    assert 'class="line fusion"' in text
    assert 'class="line pooled"' in text
    assert "Of the same 24 held-out rows as the figures above" in words_of(text)


def test_the_report_of_a_run_says_that_late_fusion_is_not_known(home):
    unknown = "Not known here: what late fusion reaches"
    assert unknown in words_of(write_report(home / "ann", "ann", "first").read_text())
    compared(home)
    assert unknown not in words_of(write_report(home / "ann", "ann", "first").read_text())


def test_the_report_says_what_its_metric_means_and_what_it_is_good_for(home):
    text = words_of((home / "ann" / RUN / "report.html").read_text())
    lift = {
        "joint": json.loads((home / "ann" / RUN / "history.json").read_text())[-1]["figures"]["lift"],
        "alone": alone_of(home)["figures"]["lift"],
    }
    assert f"joint training finds {lift['joint']:.2f} times as many positive ones as among all, ann alone" in text
    assert f"ann alone {lift['alone']:.2f} times as many." in text
    assert "AUC: how often a positive row scores above a negative one" in text


def test_a_comparison_after_the_run_is_of_its_rows_and_ends_up_on_its_page_and_report(home):
    said = call("compare", home / "run.toml")
    assert "of the rows that run 'first' held out" in said.stderr
    state = shown(home / "ann" / "party.toml")
    lines = dict(state["curves"]["test_metric"]["levels"])
    assert set(lines) == {"ann alone", "late fusion", "pooled"}
    figures = json.loads((home / "ann" / "comparison.json").read_text())["figures"]
    assert lines["pooled"] == figures["pooled"][1]
    assert figures["joint"][1] == pytest.approx(state["curves"]["test_metric"]["values"][-1], abs=1e-9), "the same rows"
    report = (home / "ann" / RUN / "report.html").read_text()
    assert f">{lines['pooled']:.4f}<" in report
    assert shown(home / "bob" / "party.toml")["curves"] == {}, "figures are made of labels"
