"""Small runs of a toy model, drawn from a seed, for trying out the protocol."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any

import numpy as np

from fdml.data.rows import DenseRows, Rows
from fdml.data.schedule import Schedule, schedule_for
from fdml.exchange.messages import Labels, Release, Total
from fdml.party.kernels import Floats, Lesson
from fdml.party.loop import Homework, Worker
from fdml.party.losses import LOSSES
from fdml.party.models import State
from fdml.party.rates import Rate
from fdml.privacy.guard import OpenGuard
from fdml.settings import RunSettings, TrainingSettings, run_hash

_FEATURES = 2
_MOST_STEPS = 12
_NEVER = 1e9


class ToyModel:
    """A model whose every prediction depends on every bit it was ever taught."""

    def __init__(self) -> None:
        self._weights = np.zeros(_FEATURES)
        self._memory = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return np.dtype(np.float64)

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, 1)`."""
        values = rows.values[start:stop] @ self._weights + self._memory / 2.0**32
        return values.reshape(-1, 1)

    def learn(self, rows: Rows, lesson: Lesson) -> None:
        """One pass over one block."""
        for part in (lesson.order, lesson.rates, lesson.scores, lesson.own_then, lesson.labels):
            self._memory = zlib.crc32(part.tobytes(), self._memory)
        block = rows.values[lesson.start : lesson.start + len(lesson.order)]
        self._weights = 0.5 * self._weights + np.tanh(lesson.scores[:, 0] @ block)

    def penalty(self) -> float:
        """Nothing."""
        return 0.0

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        return {"weights": self._weights.copy(), "memory": np.array(self._memory)}

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self._weights = state["weights"].copy()
        self._memory = int(state["memory"])


@dataclass(frozen=True)
class Case:
    """What one seed tries: a run's settings and data, and how often server and parties save."""

    settings: RunSettings
    rows: int
    held_out: int
    rotate_bytes: int
    features: dict[str, DenseRows]
    """Of every party, the rows to train on and then those held out."""

    @classmethod
    def draw(cls, random: Random) -> Case:
        """Any case may be drawn, but for long ones."""
        parties = tuple("abcd"[: random.randint(2, 4)])
        rows, batch, per_block = random.randint(2, 9), random.randint(1, 3), random.randint(1, 2)
        blocks = -(-rows // (batch * per_block))
        training = TrainingSettings(
            epochs=random.randint(1, max(1, min(5, _MOST_STEPS // blocks))),
            batch_size=batch,
            batches_per_block=per_block,
            passes=random.choice((1, 1, 2)),
            lookahead=random.randint(0, 2),
            staleness=random.randint(0, 3),
            seed=random.randrange(1000),
            checkpoint_seconds=random.choice((0.0, 0.01, 0.03, 0.1, _NEVER)),
        )
        settings = RunSettings(
            parties=parties, label_party=random.choice(parties), task="regression", training=training
        )
        held_out = random.randint(1, 2)
        every = (rows + held_out) * _FEATURES
        features = {
            party: DenseRows(np.array([random.random() for _ in range(every)], np.float32).reshape(-1, _FEATURES))
            for party in parties
        }
        return cls(settings, rows, held_out, random.choice((300, 2000, 20_000, 10**9)), features)

    @cached_property
    def run_hash(self) -> bytes:
        """What all sides agree on."""
        return run_hash(self.settings)

    @cached_property
    def schedule(self) -> Schedule:
        """The run's schedule."""
        chosen = self.settings.training
        return schedule_for(
            self.rows, chosen.batch_size, chosen.batches_per_block, chosen.passes, chosen.epochs, chosen.seed
        )

    @cached_property
    def labels(self) -> Labels:
        """The label party's; what would be sealed begins with the numbers themselves."""
        numbers = np.arange(self.rows, dtype=np.float64)
        return Labels(1, numbers.tobytes().ljust(Labels.sealed_size(self.rows + self.held_out)))

    def worker(self, party: str, labels: Labels) -> Worker:
        """A party before training."""
        training, rows = self.settings.training, self.features[party]
        numbers = np.frombuffer(labels.sealed, np.float64, self.rows)
        homework = Homework(
            party,
            rows,
            numbers,
            np.ones(self.rows),
            self.schedule,
            LOSSES["squared"],
            Rate(0.5, "linear", self.schedule.updates),
            float(len(self.settings.parties)),
            training.lookahead,
            watch_loss=party == self.settings.label_party,
        )
        return Worker(ToyModel(), homework, OpenGuard())

    def trial(self, party: str, worker: Worker) -> Release:
        """A party's predictions of the held-out rows."""
        return OpenGuard().pass_on(worker.model.predict(self.features[party], self.rows))


def relive(worker: Worker, total_of: Callable[[int], Total]) -> Iterator[tuple[int, Release]]:
    """All that a party releases in a training in which nothing goes wrong."""
    yield from worker.opening()
    while not worker.finished:
        yield from worker.learn(total_of(worker.step))


def undisturbed(case: Case) -> dict[str, State]:
    """The models at the end of a synchronous training in which nothing goes wrong."""
    workers = {party: case.worker(party, case.labels) for party in case.settings.parties}
    sums: dict[int, Any] = {}

    def push(releases: Iterator[tuple[int, Release]]) -> None:
        for step, release in releases:
            sums[step] = sums.get(step, 0) + release.values

    for worker in workers.values():
        push(worker.opening())
    for step in range(case.schedule.steps):
        total = Total(step, sums[step], (step,) * len(workers))
        for worker in workers.values():
            push(worker.learn(total))
    return {party: worker.model.state() for party, worker in workers.items()}
