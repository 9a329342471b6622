"""What a run would cost a party, before it begins: seconds, memory, disk and bytes on the line.

An estimate: the rows that all share are not known yet, so all of the party's rows count; the figures behind it were
measured on a machine with 2 cores (docs/performance.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from fdml.data.encoding import SPARSE_SHARE
from fdml.models.fm.kind import FmSettings
from fdml.models.linear.kind import LinearSettings
from fdml.models.mlp.kind import MlpSettings
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.schedule import Schedule, schedule_of
from fdml.settings import AgreedTraining, ModelSettings, RunSettings, evaluation_schedule

_LINEAR_NS, _NET_NS = 3.3, 47.0
"""Nanoseconds of an update for each value of a row that is not zero: `python -m benchmarks kernels`."""
_NET_UNITS, _NET_FACTORS = 64, 8
"""What the second was measured with."""
_JOINT = 2.0
"""A joint epoch in epochs of the kernel alone, at most: it predicts too, and two parties may share cores."""
_STEP_SECONDS = 0.01
"""Of an exchange that nothing hides."""
_TOKEN_SECONDS, _ECDH_SECONDS = 1.6e-6, 180e-6
"""Of an id: `python -m benchmarks align`."""
_PROCESS_BYTES = 250 * 2**20
_ROW_BYTES, _VALUE_BYTES = 150, 40
"""Of memory for each row: its id while rows are matched; for each value of its prediction while they train."""
_TOKEN_BYTES, _POINT_BYTES, _PLACE_BYTES = 16, 32, 8


@dataclass(frozen=True)
class Estimate:
    """One party's part in a run over all of its rows."""

    train_rows: int
    held_out_rows: int
    features: int
    epochs: int
    batch_size: int
    exchanges: int
    """In the whole training."""
    value_bits: int
    read_seconds: float
    """To learn the columns and to write the features, by how long the check's own pass took."""
    align_seconds: float
    train_seconds: float | None
    """None where nothing is known of the kind of model."""
    memory_bytes: int
    disk_bytes: int
    """Of the features in the run's order; they are mapped, so memory holds what it can of them."""
    sent_bytes: int
    received_bytes: int


def estimate_for(
    run: RunSettings,
    model: ModelSettings,
    *,
    features: int,
    entries: float,
    rows: int,
    test_rows: int | None,
    width: int,
    pass_seconds: float,
) -> tuple[Estimate, AgreedTraining, Schedule]:
    """The estimate, and how the run would train.

    `entries` are the values of a row that may be other than zero, `width` those of its prediction.
    """
    held_out = min(round(rows * run.evaluation.holdout), rows - 1) if test_rows is None else test_rows
    train = rows - held_out if test_rows is None else rows
    agreed = agreed_training(run.training, train, len(run.parties))
    schedule = schedule_of(train, agreed)
    every, evaluations = train + held_out, schedule.epochs if evaluation_schedule(run) == "epoch" else 1
    is_sparse = entries <= SPARSE_SHARE * features
    stored = round(every * (8 * entries + 8 if is_sparse else 4 * features))
    passes = agreed.epochs if agreed.exchanges is not None else schedule.passes * schedule.epochs
    kernel = _nanoseconds(model)
    pushed = agreed.value_bits / 8 * width * (train * schedule.epochs + held_out * evaluations)
    ids = _TOKEN_BYTES if run.align == "tokens" else _POINT_BYTES * (len(run.parties) + 1)
    work = None if kernel is None else 1e-9 * kernel * width * train * passes * (entries if is_sparse else features)
    return (
        Estimate(
            train_rows=train,
            held_out_rows=held_out,
            features=features,
            epochs=agreed.epochs,
            batch_size=agreed.batch_size,
            exchanges=schedule.steps,
            value_bits=agreed.value_bits,
            read_seconds=2 * pass_seconds,
            align_seconds=every * (_TOKEN_SECONDS if run.align == "tokens" else _ECDH_SECONDS),
            train_seconds=None if work is None else _JOINT * work + _STEP_SECONDS * schedule.steps,
            memory_bytes=round(_PROCESS_BYTES + every * (_ROW_BYTES + _VALUE_BYTES * width)),
            disk_bytes=stored,
            sent_bytes=round(every * ids + pushed),
            received_bytes=round(every * (ids - _TOKEN_BYTES + _PLACE_BYTES) + pushed),
        ),
        agreed,
        schedule,
    )


def _nanoseconds(model: ModelSettings) -> float | None:
    """Of an update, for each value of a row that is not zero."""
    match model:
        case LinearSettings():
            return _LINEAR_NS
        case MlpSettings():
            return _NET_NS * sum(model.hidden) / _NET_UNITS
        case FmSettings():
            return _NET_NS * model.factors / _NET_FACTORS
        case _:
            return None
