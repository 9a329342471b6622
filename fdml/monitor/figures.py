"""Figures of held-out rows in words."""

from __future__ import annotations

from collections.abc import Mapping

TITLES = {
    "auc": "AUC",
    "group_auc": "AUC within groups",
    "ndcg": "NDCG at 10",
    "average_precision": "PR-AUC",
    "ks": "KS",
    "lift": "lift of the top 10 %",
    "brier": "Brier score",
    "calibration_error": "calibration error",
    "log_loss": "log loss",
    "accuracy": "accuracy",
    "threshold": "threshold",
    "macro_f1": "macro F1",
    "macro_auc": "macro AUC",
    "r2": "R2",
    "d2": "D2",
    "rmse": "RMSE",
    "poisson_deviance": "Poisson deviance",
    "pinball_loss": "pinball loss",
    "coverage": "coverage",
    "mae": "MAE",
}
"""How a person reads a figure's name."""
MEANINGS = {
    "auc": "how often a positive row scores above a negative one; 0.5 is chance, 1 is always",
    "accuracy": "the share of rows whose class is right",
    "r2": "the share of the labels' variance that is explained; 0 is what a constant explains, 1 is all",
    "d2": "the share of a constant's deviance that is taken away; 0 is none, 1 is all",
}
"""The metric of a task, in a sentence."""
LOSS = "test_loss"
LOWER_IS_BETTER = frozenset(
    (LOSS, "log_loss", "brier", "calibration_error", "rmse", "mae", "poisson_deviance", "pinball_loss")
)
"""Figures that are the better the lower they are."""
CHOSEN = (
    "held-out rows have chosen this epoch, so their figures are a little too good: for an honest test use rows that no "
    "training has seen"
)
"""What is said of a run with `stop_after`."""


def figures_text(test_loss: float | None, test_metric: float | None, metric: str = "") -> str:
    """Loss and metric in words; `metric` is its name. None where they are sealed, or of another's private labels."""
    if test_loss is None:
        return "its figures are for the parties that have the labels"
    name = TITLES.get(metric, "metric")
    found = f"test {name} is not defined" if test_metric is None else f"test {name} {test_metric:.4f}"
    return f"test loss {test_loss:.4f}, {found}"


def figures_line(figures: Mapping[str, float | None]) -> str:
    """All figures in one line, but for the threshold, which stands beside its accuracy."""
    shown = [_figure_text(name, each, figures) for name, each in figures.items() if name != "threshold"]
    return ", ".join(shown)


def undefined_remark(figures: Mapping[str, float | None]) -> str:
    """Says which figures are not defined; empty if all are."""
    names = [TITLES.get(name, name) for name, each in figures.items() if each is None]
    if not names:
        return ""
    return (
        f"{', '.join(names)} of the held-out rows {'is' if len(names) == 1 else 'are'} not defined, as a class is "
        f"missing among them or there are too many to rank; hold out more rows to have them"
    )


def gain_text(over: str, metric: str, gain: float | None, low: float | None, high: float | None) -> str:
    """What joint training brings over something else, with the interval of its gain, which may say that it is none."""
    name, alone = TITLES.get(metric, metric), f"over {over}"
    if gain is None:
        return f"what joint training brings {alone} is not known: {name} of the held-out rows is not defined"
    if low is None or high is None:
        return f"joint brings {gain:+.3f} {name} {alone}; too few held-out rows to say how sure that is"
    interval = f"{gain:+.3f} ({low:.3f} to {high:.3f}) {name} {alone}"
    if low <= 0.0 <= high:
        return f"joint brings no certain gain: {interval}"
    return f"joint brings {interval}" if gain > 0.0 else f"joint is worse: {interval}"


def _figure_text(name: str, figure: float | None, figures: Mapping[str, float | None]) -> str:
    found = "not defined" if figure is None else f"{figure:.4f}"
    threshold = figures.get("threshold") if name == "accuracy" else None
    return f"{TITLES.get(name, name)} {found}" + ("" if threshold is None else f" at threshold {threshold:g}")
