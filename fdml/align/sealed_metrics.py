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
_EPOCH = struct.Struct("<q")
_BEST_EPOCH = "best epoch"


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


def seal_epoch(key: GroupKey, epoch: int) -> BestEpoch:
    """The number of the epoch that all parties keep, as it travels."""
    return BestEpoch(key.seal(_BEST_EPOCH, _EPOCH.pack(epoch)))


def open_epoch(key: GroupKey, message: BestEpoch) -> int:
    """The number of the epoch that all parties keep."""
    return int(_EPOCH.unpack(key.open(_BEST_EPOCH, message.sealed))[0])


def _purpose(epoch: int) -> str:
    """With the epoch in it, so that none can be passed off as another's."""
    return f"metrics of epoch {epoch}"
