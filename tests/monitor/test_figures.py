from fdml.monitor.figures import TITLES, figures_line, figures_text, undefined_remark


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


def test_every_title_is_one_of_its_own():
    assert len(set(TITLES.values())) == len(TITLES)
