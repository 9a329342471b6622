"""What a run's model brings over an earlier version on the same held-out rows, and whether that is enough."""

from __future__ import annotations

import math
from typing import Protocol

from fdml.data.row_set import RowSet
from fdml.events import ComparedVersion, Evaluated
from fdml.models.bootstrap import paired_difference
from fdml.models.losses import Floats
from fdml.monitor.figures import LOSS, LOWER_IS_BETTER, TITLES, gain_text
from fdml.party.earlier import EarlierModel
from fdml.settings import RunSettings


class HeldOut(Protocol):
    """The held-out rows at the label party."""

    rows: RowSet

    def figures(self, score: Floats) -> dict[str, float | None]:
        """All that is said of a score, the task's own metric first."""
        ...

    def loss_of(self, score: Floats) -> float:
        """The mean loss."""
        ...


def compared_version(
    run: RunSettings, found: Evaluated, earlier: EarlierModel, scores: tuple[Floats, Floats], held_out: HeldOut
) -> ComparedVersion:
    """The run's model, of which `found` was found, beside an earlier one; `scores` are of the new one and the old."""
    figures = {name: _or_none(each) for name, each in held_out.figures(scores[1]).items()}
    loss = _or_none(held_out.loss_of(scores[1]))
    main = next(iter(figures))
    metric = main if run.promotion is None or run.promotion.metric is None else run.promotion.metric
    new, old = _figure(metric, found.figures, found.test_loss), _figure(metric, figures, loss)
    gain = None if new is None or old is None else (old - new if metric in LOWER_IS_BETTER else new - old)
    interval = paired_difference(run.task, *scores, held_out.rows, seed=run.training.seed, loss=run.chosen_loss)
    promoted = None if run.promotion is None else gain is not None and gain >= run.promotion.at_least
    return ComparedVersion(
        party=found.party,
        epoch=found.epoch,
        version=earlier.version,
        run=earlier.run,
        metric=metric,
        new=new,
        old=old,
        gain=gain,
        low=interval.low,
        high=interval.high,
        rows=len(held_out.rows.labels),
        test_loss=loss,
        figures=figures,
        promoted=promoted,
        text=gain_text(earlier.text, main, *interval) + _promotion_text(run, metric, gain, promoted),
    )


def _promotion_text(run: RunSettings, metric: str, gain: float | None, promoted: bool | None) -> str:
    if promoted is None or run.promotion is None:
        return ""
    name = "test loss" if metric == LOSS else TITLES.get(metric, metric)
    what = "is not known" if gain is None else f"is {gain:+.4f} better"
    rule = f"its {name} {what}, the rule is at least {run.promotion.at_least:g}"
    return f"; promoted: {rule}" if promoted else f"; not promoted: {rule}"


def _figure(name: str, figures: dict[str, float | None], loss: float | None) -> float | None:
    return _or_none(loss if name == LOSS else figures.get(name))


def _or_none(figure: float | None) -> float | None:
    return figure if figure is not None and math.isfinite(figure) else None
