"""What "auto" means in `[training]`: rules of the number of rows, of parties and of the slowest line.

Every side computes them for itself and finds the same. The figures were measured: `python -m benchmarks defaults`
repeats it, docs/decisions/0021 has the tables.
"""

from __future__ import annotations

import math
from typing import Literal

from fdml.settings import AgreedTraining, TrainingSettings
from fdml.settings.choices import Bits

_UPDATES = 5_000
"""What a small training needs, counted in batches over all epochs."""
_FEWEST_EPOCHS, _MOST_EPOCHS = 10, 250
_SMALLEST_BATCH, _LARGEST_BATCH = 16, 256
_SMALL_ROWS = 4_800
"""Up to so many rows batches are the smallest; from there on they grow with the power 5/4 of the rows."""
_BATCHES_PER_EPOCH = 300
"""By which epochs are counted where batches are not set: larger batches are not to bring more epochs."""
_FEWEST_BLOCKS, _MOST_BLOCKS = 4, 8
"""Exchanges of an epoch on a fast line: more cost time, fewer cost quality. Small data has time."""
_JOINT_BLOCKS = 8
"""Times as many exchanges of an epoch where parties' features interact: what a vector means depends on the others'."""
_ROWS_EACH = 100_000
"""Rows times exchanges of an epoch, between these, and at least one for each party. Parties that push ahead need twice
as many: their predictions are twice as old when they are used."""
_FEWEST_BATCHES = 4
"""Of a block, where there are several."""
_MOST_BATCHES = 1024
"""Of a block: more save nothing."""
_FAST_SECONDS = 0.02
"""A round trip up to this long is class 0; each class after it is twice as long."""
SLOWEST_LINE = 6
_MANY_ROWS = 1_000_000
"""From so many on predictions travel in 16 bits."""
_FEW_PARTIES = 4
"""Up to so many can share the range of 16 bits: each has 16 or more to either side."""


def line_class(round_trip: float) -> int:
    """The class of a line by its shortest round trip in seconds: few classes, so that repeated runs find the same."""
    if not round_trip > _FAST_SECONDS:
        return 0
    return min(SLOWEST_LINE, math.ceil(math.log2(round_trip / _FAST_SECONDS)))


def agreed_training(training: TrainingSettings, rows: int, parties: int, line: int = 0) -> AgreedTraining:
    """The settings with every "auto" replaced; `line` is the class of the slowest line of the run."""
    rows = max(rows, 1)
    batch_size = _batch_size(rows) if training.batch_size == "auto" else training.batch_size
    batches = -(-rows // batch_size)
    counted = _usual_batch(rows) if training.batch_size == "auto" else batch_size
    epochs = _epochs(rows / counted, training.exchanges or 0) if training.epochs == "auto" else training.epochs
    ahead = _lookahead(training, line) if training.lookahead == "auto" else training.lookahead
    per_block, times = training.batches_per_block, 1 if training.joint == "sum" else _JOINT_BLOCKS
    values = training.model_dump() | {
        "batch_size": batch_size,
        "epochs": epochs,
        "batches_per_block": _batches_per_block(batches, times * _blocks(rows, parties, ahead), line)
        if per_block == "auto"
        else per_block,
        "lookahead": ahead,
        "value_bits": _value_bits(rows, parties, line) if training.value_bits == "auto" else training.value_bits,
    }
    return AgreedTraining.model_construct(training.model_fields_set, **values)


def _batch_size(rows: int) -> int:
    """A power of two: small data needs many updates, and every update costs time, however few rows it is of."""
    wanted = _SMALLEST_BATCH * (rows / _SMALL_ROWS) ** 1.25
    power: int = 2 ** round(math.log2(max(wanted, 1.0)))
    return min(max(power, _SMALLEST_BATCH), _LARGEST_BATCH)


def _usual_batch(rows: int) -> float:
    return min(max(rows / _BATCHES_PER_EPOCH, _SMALLEST_BATCH), _LARGEST_BATCH)


def _epochs(batches: float, exchanges: int) -> int:
    enough = math.ceil(_UPDATES / batches)
    return max(min(max(enough, _FEWEST_EPOCHS), _MOST_EPOCHS), exchanges + 1)


def most_lookahead(training: TrainingSettings) -> int:
    """The largest lookahead that these settings can mean, known before the rows and the line are."""
    if training.exchanges is not None:
        return 0
    return 1 if training.lookahead == "auto" else training.lookahead


def _lookahead(training: TrainingSettings, line: int) -> int:
    """0 where waiting costs little: on a fast line, with the blocks of the rule, which are then few and large."""
    waits = line == 0 and training.joint == "sum" and training.batches_per_block == "auto"
    return 0 if waits else most_lookahead(training)


def _blocks(rows: int, parties: int, ahead: int) -> int:
    """Exchanges of an epoch of a sum on a fast line; what many parties have in common they correct all at once."""
    times = 2 if ahead else 1
    return min(max(times * _ROWS_EACH // rows, times * parties, _FEWEST_BLOCKS), times * _MOST_BLOCKS)


def _batches_per_block(batches: int, blocks: int, line: int) -> int | Literal["all"]:
    """A slow line gets larger blocks, up to one block an epoch."""
    per_block = min(max(-(-batches // blocks), _FEWEST_BATCHES), _MOST_BATCHES) * 2**line
    return "all" if per_block >= batches else per_block


def _value_bits(rows: int, parties: int, line: int) -> Bits:
    """16 bits round to .002: for many rows, and for slow lines."""
    return 16 if parties <= _FEW_PARTIES and (rows >= _MANY_ROWS or line > 0) else 64
