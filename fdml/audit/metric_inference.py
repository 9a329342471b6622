"""A13: what the server can read of the metrics that pass it, and which held-out labels follow from them.

A plain server knows the score z of every held-out row. A log loss is then
n * loss = sum(softplus(z)) - sum(y * z): one exact equation in the labels y for
each epoch, as scores are whole numbers on the grid. An AUC tells how many
labels are positive, whatever else the server knows.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fdml.audit.lattice import solve_bits
from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.models.losses import Logistic
from fdml.protocol.messages import SealedMetrics

_LABELS, _BALANCE = "labels from metrics", "class balance from metrics"
_MOST_ROWS = 120
"""Held-out rows whose labels are looked for: more take longer than an audit should."""
_DOUBLE = struct.Struct("<d")
_LOSSES, _AUCS = (1e-4, 1e4), (0.01, 1.0)
"""What a loss and an AUC may be; anything else in the bytes is no figure."""
_WHOLE = 1e-6
"""A number this near to a whole one is taken for it."""

Figures = Mapping[int, float]
"""By epoch."""


def infer_from_metrics(recording: Recording) -> list[AttackResult]:
    """A13: held-out labels, and how many are positive, by a server that reads what it can of every epoch's metrics."""
    labels = recording.truth.held_out_labels
    if not recording.metrics or not len(labels):
        return [not_applicable("A13", _LABELS, "server", "no held-out rows were evaluated")]
    if not isinstance(recording.objective.loss, Logistic):
        return [not_applicable("A13", _LABELS, "server", "the equations are those of a log loss of two classes")]
    return [_labels_found(recording, labels), _balance_found(recording, labels)]


def _labels_found(recording: Recording, labels: NDArray[np.float64]) -> AttackResult:
    share = float(labels.mean())
    guess = max(share, 1.0 - share)
    read = list(readable_figures(recording.metrics, _LOSSES))
    found = _solved(recording, read) if len(labels) <= _MOST_ROWS else None
    score = guess if found is None else float((found == labels).mean())
    if recording.run.privacy.server == "blind":
        known = "the scores are under masks"
    elif not read:
        known = f"no figure can be read in the metrics of {len(recording.metrics)} epochs"
    elif len(labels) > _MOST_ROWS:
        known = f"exact losses can be read; more than {_MOST_ROWS} rows are not solved for here, but may be elsewhere"
    else:
        known = "exact losses can be read" if found is not None else "what may be losses fits no labels"
    return passed_if(
        score <= guess and (not read or recording.run.privacy.server == "blind" or len(labels) <= _MOST_ROWS),
        "A13",
        _LABELS,
        "server",
        score=score,
        baseline=guess,
        bar="no more right than the guess by class balance",
        reason=f"{len(labels)} held-out rows; {known}",
        details={"rows": len(labels), "epochs": len(recording.metrics), "solved": float(found is not None)},
    )


def _balance_found(recording: Recording, labels: NDArray[np.float64]) -> AttackResult:
    """The number of positive labels, or that number or of the negative ones, which an AUC does not tell apart."""
    positive = int(labels.sum())
    told = [positives_by_auc(figures, len(labels)) for figures in readable_figures(recording.metrics, _AUCS)]
    found = any(len(each) <= 2 and positive in each for each in told)
    return passed_if(
        not found,
        "A13",
        _BALANCE,
        "server",
        score=float(found),
        baseline=0.0,
        bar="how many labels are positive does not follow",
        reason="from the AUC of every epoch, which has a denominator of its own"
        if found
        else "no AUC can be read that fits one number of positive labels",
    )


def readable_figures(metrics: Mapping[int, SealedMetrics], bounds: tuple[float, float]) -> Iterator[Figures]:
    """Numbers of this size that stand at the same place in the metrics of every epoch."""
    size = min(len(each.sealed) for each in metrics.values())
    for place in range(size - _DOUBLE.size + 1):
        found = {epoch: float(_DOUBLE.unpack_from(each.sealed, place)[0]) for epoch, each in metrics.items()}
        if all(bounds[0] <= value <= bounds[1] for value in found.values()):
            yield found


def _solved(recording: Recording, read: Sequence[Figures]) -> NDArray[np.int64] | None:
    """Labels that fit all losses of any reading; None if there are none, or the scores are not known."""
    if recording.run.privacy.server == "blind":
        return None
    step = recording.grid.step
    codes = _held_out_codes(recording)
    for losses in read:
        epochs = sorted(set(losses) & set(codes))
        equations = [codes[epoch] for epoch in epochs]
        sums = [sum_of_positives(codes[epoch], step, losses[epoch]) for epoch in epochs]
        found = solve_bits(equations, sums) if equations else None
        if found is not None:
            return found
    return None


def _held_out_codes(recording: Recording) -> dict[int, list[int]]:
    """By epoch, the sums of all parties' held-out predictions as whole numbers."""
    parts = list(recording.held_out.values())
    whole = set.intersection(*(set(each) for each in parts))
    return {
        epoch: np.sum([each[epoch].release.values.reshape(-1).astype(np.int64) for each in parts], axis=0).tolist()
        for epoch in sorted(whole)
    }


def sum_of_positives(codes: Sequence[int], step: float, loss: float) -> int:
    """The sum of the scores of positive rows, in steps of the grid."""
    softplus = math.fsum(math.log1p(math.exp(-abs(code * step))) + max(code * step, 0.0) for code in codes)
    return round((softplus - len(codes) * loss) / step)


def positives_by_auc(aucs: Figures, rows: int) -> list[int]:
    """Numbers of positive rows for which every AUC is a number of half pairs: 2 * auc * p * (n - p) is whole."""
    found = []
    for positive in range(1, rows):
        pairs = 2 * positive * (rows - positive)
        if all(abs(auc * pairs - round(auc * pairs)) < _WHOLE for auc in aucs.values()):
            found.append(positive)
    return found


attacks: dict[str, Attack] = {"A13": infer_from_metrics}
