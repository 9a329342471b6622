"""The page of a comparison."""

import json
import re

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.experiments.compare_report import ComparisonFacts, comparison_report
from fdml.monitor.history import EpochRecord, Gain, LearningCurve
from fdml.monitor.report import render
from tests.cli.commands import fail, succeed
from tests.monitor.sample_events import SAMPLES

(RELIABILITY,) = [event for event in SAMPLES if type(event).__name__ == "Reliability"]
FACTS = ComparisonFacts(
    "people.csv", "binary", "auc", 2, 720, 180, 1, "fdml compare people.csv", {"LR: epochs": "auto"}
)


def curve(scheme, metric, model="LR", gains=None, objectives=(0.6, 0.5, 0.4995, 0.4993)):
    records = tuple(EpochRecord(at, at / 2, each, each, metric) for at, each in enumerate(objectives, 1))
    return LearningCurve(model, scheme, records, gains or {}, RELIABILITY if scheme == "joint" else None)


def curves(gain=0.1, low=0.05, high=0.15, **options):
    gains = {"alone": Gain(gain, low, high), "late fusion": Gain(0.01, -0.01, 0.02)}
    return [
        curve("alone", 0.8),
        curve("late fusion", 0.89),
        curve("pooled", 0.91),
        curve("joint", 0.9, gains=gains, **options),
    ]


def words_of(found, facts=FACTS):
    text = render(comparison_report(found, facts)).split("</style>", 1)[1]
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


def test_it_begins_with_what_joint_training_brings_over_the_label_party_alone():
    words = words_of(curves())
    first = "Worth it: joint training brought +0.100 AUC over the label party alone, between +0.050 and +0.150 (LR)."
    fusion = "Over late fusion, which takes no joint training: +0.010."
    assert f"{first} {fusion}" in words.split("What joint training would bring")[0]


def test_all_schemes_stand_in_one_table_and_in_the_curves():
    words = words_of(curves())
    for scheme, metric in (("alone", 0.8), ("late fusion", 0.89), ("pooled", 0.91), ("joint", 0.9)):
        assert f"LR {scheme} {metric:.4f}" in words
    assert "LR: joint brings no certain gain: +0.010 (-0.010 to 0.020) AUC over late fusion." in words
    for title in ("Curves of LR", "Training objective against time", "Calibration and lift of joint LR"):
        assert title in words


def test_the_best_joint_model_answers():
    other = [curve("joint", 0.95, model="MLP", gains={"alone": Gain(0.2, 0.1, 0.3)})]
    assert "+0.200 AUC over the label party alone, between +0.100 and +0.300 (MLP)" in words_of([*curves(), *other])


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([curve("alone", 0.8)], "There was no joint training to compare."),
        ([curve("joint", 0.9)], "Held-out AUC of joint training: 0.9000 (LR)."),
        ([curve("joint", 0.9, gains={"late fusion": Gain(0.1, 0.05, 0.2)})], "over late fusion"),
        (curves(-0.1, -0.2, -0.05), "Not worth it: joint training was worse"),
    ],
)
def test_other_answers(found, words):
    assert words in words_of(found)


def test_a_training_that_has_not_converged_is_named():
    assert "LR joint: not converged: the loss still falls" in words_of(curves(objectives=(0.9, 0.7, 0.5, 0.3)))


def test_the_epsilon_of_such_a_run_is_told_or_that_there_is_none():
    assert "Nothing was protected in this comparison" in words_of(curves())
    spent = ComparisonFacts(**{**FACTS.__dict__, "epsilon": ("ann spends epsilon 3.00 at delta 1e-05 in a run",)})
    assert "ann spends epsilon 3.00 at delta 1e-05 in a run." in words_of(curves(), spent)


def test_it_says_how_to_repeat_it():
    words = words_of(curves())
    assert "fdml compare people.csv" in words
    assert "LR: epochs auto" in words


# The page that the command writes.

CANARIES = ("canary_column", "canary_label", "canary-yes", "canary-no", "canary-city")


def write_people(folder, rows=240):
    """A file whose columns, classes and categories are words that nothing else has."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=rows), random.normal(size=rows)
    label = np.where(x + y > 0, "canary-yes", "canary-no")
    lines = [f"{x[at]:.6f},{y[at]:.6f},canary-city{at % 3},{label[at]}" for at in range(rows)]
    path = folder / "people.csv"
    path.write_text("canary_column,other,city,canary_label\n" + "\n".join(lines) + "\n")
    return path, [f"{value:.6f}" for value in (*x, *y)]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The page of a comparison of a file, and what must not be in it."""
    folder = tmp_path_factory.mktemp("page")
    source, values = write_people(folder)
    succeed(
        "compare", source, "--label", "canary_label", "--groups", "canary_column; other,city",
        "--models", "linear", "--epochs", "3", "--json", folder / "out.json",
    )  # fmt: skip
    return folder, values


def test_a_comparison_leaves_its_page_beside_the_source(written):
    folder, _ = written
    path = folder / "report.html"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "Comparison on people.csv" in path.read_text()


def test_the_page_has_the_figures_of_the_table(written):
    folder, _ = written
    text, rows = (folder / "report.html").read_text(), json.loads((folder / "out.json").read_text())["rows"]
    assert {row["scheme"] for row in rows} == {"alone", "late fusion", "pooled", "joint"}
    for row in rows:
        cells = [f"{row[name]:.4f}" for name in ("test_auc", "test_loss", "train_objective")]
        assert "".join(f'<td class="n">{cell}</td>' for cell in cells) in text


def test_no_feature_label_or_column_is_in_the_page(written):
    folder, values = written
    text = (folder / "report.html").read_text()
    assert [each for each in (*CANARIES, *values, str(folder)) if each in text] == []


def test_the_page_may_be_written_elsewhere(tmp_path):
    source, _ = write_people(tmp_path, 120)
    out = tmp_path / "out.html"
    succeed(
        "compare", source, "--label", "canary_label", "--models", "linear", "--epochs", "2", "--report", out
    )  # fmt: skip
    assert "Calibration and lift of joint LR" in out.read_text()
    assert not (tmp_path / "report.html").exists()


def test_a_page_that_cannot_be_written_is_named_before_the_work(tmp_path):
    source, _ = write_people(tmp_path, 20)
    assert "there is no folder" in fail(SettingsError, "compare", source, "--report", tmp_path / "none" / "r.html")
