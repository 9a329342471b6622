"""Evaluation of a published model on labelled rows of the asker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdml.errors import DataError
from fdml.models.metrics import mean_loss
from fdml.models.task_metrics import task_metrics
from fdml.serving.absence import LabelledRows
from fdml.serving.asking import AskedRows, Asker


@dataclass(frozen=True)
class EvaluatedRows:
    """What was found of some rows."""

    rows: int
    scored: int
    """Rows with a score; the figures are of these."""
    complete: int
    """Rows whose score has the parts of all parties."""
    loss: float
    figures: dict[str, float | None]
    """All metrics of the task, its own first."""
    why: tuple[str, ...]
    """Why rows have no score, or one without some party; the first few."""


def evaluate(asker: Asker, labelled: LabelledRows) -> EvaluatedRows:
    """Ask for all rows, and compare their scores with the labels."""
    run, reading = asker.own.run, asker.reading
    size, scores, complete, why = asker.rows_at_once, [], 0, dict[str, None]()
    for start in range(0, len(labelled.rows), size):
        answers = asker.ask(_part(labelled.rows, start, size))
        scores.append(answers.score)
        complete += int((~answers.lacks.any(axis=1)).sum())
        why |= dict.fromkeys(text for pattern in answers.patterns()[0] if (text := answers.why_text(pattern)))
    score = np.concatenate(scores) if scores else np.zeros((0, 1))
    has = ~np.isnan(score).any(axis=1)
    if reading is None or not has.any():
        raise DataError(f"none of {len(score)} rows has a score: {'; '.join(why) or 'there are no rows'}")
    sample, loss = labelled.labels.take(np.flatnonzero(has)), run.chosen_loss
    figures = task_metrics(
        run.task, loss, score[has], sample, threshold=run.evaluation.threshold, unit=reading.labels.spread
    )
    return EvaluatedRows(
        len(score), int(has.sum()), complete, mean_loss(loss, score[has], sample), figures, tuple(why)[:5]
    )


def _part(rows: AskedRows, start: int, size: int) -> AskedRows:
    leads = {other: keys.slice(start, size) for other, keys in rows.leads.items()}
    return AskedRows(rows.ids.slice(start, size), leads)
