import pytest

from fdml.monitor.figures import MEANINGS, TITLES, figures_line, figures_text, gain_text, undefined_remark
from fdml.monitor.history import metric_of


def test_loss_and_metric_are_named():
    assert figures_text(0.25, 0.75, "auc") == "test loss 0.2500, test AUC 0.7500"
    assert figures_text(0.25, 0.75, "r2") == "test loss 0.2500, test R2 0.7500"
    assert figures_text(0.25, 0.75) == "test loss 0.2500, test metric 0.7500"


def test_figures_that_are_sealed_or_not_defined_are_told_apart():
    assert figures_text(None, None, "auc") == "its figures are for the parties that have the labels"
    assert figures_text(0.25, None, "auc") == "test loss 0.2500, test AUC is not defined"


def test_all_figures_are_in_one_line_and_accuracy_has_its_threshold():
    line = figures_line({"auc": 0.9, "ks": None, "accuracy": 0.8125, "threshold": 0.3})
    assert line == "AUC 0.9000, KS not defined, accuracy 0.8125 at threshold 0.3"
    assert figures_line({"accuracy": 0.5, "macro_f1": 0.25}) == "accuracy 0.5000, macro F1 0.2500"


def test_what_is_not_defined_is_said():
    assert undefined_remark({"auc": 0.5, "accuracy": 0.5}) == ""
    assert undefined_remark({"auc": None, "ks": None}).startswith("AUC, KS of the held-out rows are not defined")
    assert undefined_remark({"macro_auc": None}).startswith("macro AUC of the held-out rows is not defined")


def test_a_gain_has_its_interval_and_says_where_it_is_none():
    assert gain_text("bank alone", "auc", 0.09, 0.08, 0.1) == "joint brings +0.090 (0.080 to 0.100) AUC over bank alone"
    assert gain_text("bank alone", "r2", 0.01, -0.01, 0.03) == (
        "joint brings no certain gain: +0.010 (-0.010 to 0.030) R2 over bank alone"
    )
    assert gain_text("bank alone", "auc", -0.02, -0.03, -0.01).startswith(
        "joint is worse: -0.020 (-0.030 to -0.010) AUC"
    )


def test_a_gain_that_is_not_known_is_said():
    assert gain_text("bank alone", "auc", None, None, None).endswith("AUC of the held-out rows is not defined")
    assert gain_text("bank alone", "auc", 0.5, None, None) == (
        "joint brings +0.500 AUC over bank alone; too few held-out rows to say how sure that is"
    )


def test_every_title_is_one_of_its_own():
    assert len(set(TITLES.values())) == len(TITLES)


@pytest.mark.parametrize(
    ("task", "loss"), [("binary", None), ("multiclass", None), ("regression", None), ("regression", "poisson")]
)
def test_the_metric_of_every_task_is_explained(task, loss):
    assert metric_of(task, loss) in MEANINGS
