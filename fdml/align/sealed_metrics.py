"""The label party's metrics on their way to the other parties: sealed, as exact figures disclose labels to the server.

A plain server knows every held-out score. Of a log loss it then has one linear
equation in the labels for each epoch, and a lattice reduction solves them (A13).
"""

from __future__ import annotations

import math
import struct

from fdml.align.group_key import GroupKey
from fdml.protocol.messages import BestEpoch, Metrics, SealedMetrics

_FIGURES = struct.Struct("<4d")
"""Always as long, whatever is known: a figure that is not is NaN."""
_OUTCOME = struct.Struct("<q")
"""Twice the epoch, and one more where it is promoted."""
_BEST_EPOCH = "outcome"


def seal_metrics(key: GroupKey, metrics: Metrics) -> SealedMetrics:
    """As they travel, for the parties alone."""
    figures = (metrics.seconds, metrics.train_loss, metrics.test_loss, metrics.test_metric)
    return SealedMetrics(metrics.epoch, key.seal(_purpose(metrics.epoch), pack_figures(*figures)))


def open_metrics(key: GroupKey, message: SealedMetrics) -> Metrics:
    """What the label party found; the epoch alone where it kept the figures to itself."""
    if not message.sealed:
        return Metrics(message.epoch)
    figures = _FIGURES.unpack(key.open(_purpose(message.epoch), message.sealed))
    return Metrics(message.epoch, *(None if math.isnan(figure) else figure for figure in figures))


def pack_figures(*figures: float | None) -> bytes:
    """Figures as they are under the seal."""
    return _FIGURES.pack(*(math.nan if figure is None else figure for figure in figures))


def seal_outcome(key: GroupKey, epoch: int, *, promoted: bool = False) -> BestEpoch:
    """The number of the epoch that all parties keep, and whether it is promoted, as they travel."""
    return BestEpoch(key.seal(_BEST_EPOCH, _OUTCOME.pack(2 * epoch + promoted)))


def open_outcome(key: GroupKey, message: BestEpoch) -> tuple[int, bool]:
    """The number of the epoch that all parties keep, and whether it is promoted."""
    (both,) = _OUTCOME.unpack(key.open(_BEST_EPOCH, message.sealed))
    return int(both) // 2, bool(both % 2)


def _purpose(epoch: int) -> str:
    """With the epoch in it, so that none can be passed off as another's."""
    return f"metrics of epoch {epoch}"
