"""How a run is tested on held-out rows, and when it takes the place of an earlier one."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from fdml.errors import SettingsError
from fdml.settings.file import Settings


class EvaluationSettings(Settings):
    """Which rows are held out where the parties bring no test files."""

    holdout: Annotated[float, Field(gt=0, lt=1)] = 0.2
    """The share of rows that nobody trains on."""
    every: Literal["epoch", "end"] | None = None
    """When the held-out rows are predicted, which is a release of them: after every epoch or only at the end. None is
    every epoch, but the end where `exchanges` is set."""
    stop_after: PositiveInt | None = None
    """Training ends once the held-out loss has not been lower for so many epochs, and all parties keep the model of
    the epoch in which it was lowest. None trains to the end and keeps the last."""
    baseline: Literal["alone", "none"] = "alone"
    """What the label party compares the joint model with: one of its own features alone, which releases nothing."""
    threshold: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Of a binary task: the probability from which on a row counts as class 1 where accuracy is printed."""
    against: str | None = None
    """The version of an earlier run whose models predict the same held-out rows once, to be compared with; None is
    the one that training begins with, if any."""


class PromotionSettings(Settings):
    """The rule by which the label party promotes a run's version at all parties, or keeps the one before."""

    metric: str | None = None
    """A figure of the held-out rows: "auc", "brier", "test_loss"; None is the task's own."""
    at_least: float = 0.0
    """By how much it must be better than that of the version it is compared with, on the same rows; below 0 it may be
    so much worse."""


def check_stop_after(evaluation: EvaluationSettings, exchanges: int | None) -> None:
    """Raise where held-out rows are to end a run and have no epochs to compare."""
    if evaluation.stop_after is None:
        return
    if exchanges is not None:
        raise SettingsError(
            "evaluation.stop_after compares epochs, and training.exchanges has none to compare; leave one of them out"
        )
    if evaluation.every == "end":
        raise SettingsError(
            'evaluation.stop_after needs the held-out rows after every epoch; set evaluation.every = "epoch"'
        )
