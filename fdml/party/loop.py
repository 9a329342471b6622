"""The loop each party runs. Start reading here.

A step is one visit of one block: receive the total of everyone's predictions,
learn from it batch by batch, and push the predictions of a block to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows
from fdml.data.schedule import Schedule, Visit
from fdml.exchange.channel import Channel
from fdml.exchange.fixed_point import Codes, decode
from fdml.exchange.messages import Release, Total
from fdml.party.kernels import Floats, Lesson
from fdml.party.losses import Loss
from fdml.party.models import Model
from fdml.party.rates import Rate
from fdml.privacy.guard import Guard
from fdml.watch.events import EpochDone, Listener, StepDone


def train(worker: Worker, channel: Channel, listener: Listener, keep: Callable[[Worker], int]) -> None:
    """Run all steps that are left; `keep` is called after each and says after which step the state is safe."""
    for step, release in worker.opening():
        channel.send(step, release)
    while not worker.finished:
        total = channel.receive(worker.step)
        for step, release in worker.learn(total):
            channel.send(step, release)
        listener(StepDone(worker.party, total.step, total.lag))
        if worker.ended_epoch:
            listener(EpochDone(worker.party, worker.epoch))
        channel.keep(keep(worker))


@dataclass(frozen=True)
class Homework:
    """What a party trains on and how. Row i is the same person at every party."""

    party: str
    rows: Rows
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    """One per row, mean 1."""
    schedule: Schedule
    loss: Loss
    rate: Rate
    echo: float
    lookahead: int
    watch_loss: bool = False
    """Whether to sum up the loss of the totals as they come."""


class Outbox:
    """What was pushed and not yet answered: the exact predictions, and their form as it left."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[Floats, Codes]] = {}

    def put(self, step: int, own: Floats, pushed: Codes) -> None:
        """Keep a push until its total comes."""
        self._waiting[step] = own, pushed

    def settle(self, total: Total) -> tuple[Floats, Floats]:
        """The scores a total means, with the party's own part exact, and that part."""
        own, pushed = self._waiting.pop(total.step)
        others = decode(total.values.reshape(pushed.shape) - pushed)
        return (others + own).astype(own.dtype), own

    def releases(self) -> list[tuple[int, Release]]:
        """Everything unanswered, as it was pushed."""
        return [(step, Release(pushed)) for step, (_, pushed) in sorted(self._waiting.items())]

    def state(self) -> dict[str, NDArray[Any]]:
        """As arrays."""
        own = {f"own/{step}": own for step, (own, _) in self._waiting.items()}
        return own | {f"pushed/{step}": pushed for step, (_, pushed) in self._waiting.items()}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the outbox that gave these arrays."""
        steps = [int(key.removeprefix("own/")) for key in arrays if key.startswith("own/")]
        self._waiting = {step: (arrays[f"own/{step}"], arrays[f"pushed/{step}"]) for step in steps}


class Worker:
    """One party's training as a machine: totals in, releases out. It waits for nothing."""

    def __init__(self, model: Model, homework: Homework, guard: Guard) -> None:
        self.model = model
        self._homework = homework
        self._guard = guard
        self._outbox = Outbox()
        self.step = 0
        """The next step to learn from."""
        self.pushed = -1
        """The last step pushed."""
        self.loss_sum = 0.0
        """The sum of the losses of this epoch's totals as they were received."""

    @property
    def party(self) -> str:
        """Whose training this is."""
        return self._homework.party

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self._homework.schedule.steps

    @property
    def ended_epoch(self) -> bool:
        """Whether the last step learned from was the last of its epoch."""
        return self.step > 0 and self._homework.schedule.ends_epoch(self.step - 1)

    @property
    def epoch(self) -> int:
        """How many epochs are complete."""
        return self.step // self._homework.schedule.blocks

    def opening(self) -> Iterator[tuple[int, Release]]:
        """What to send before the first total: all that is unanswered, then new pushes as far as lookahead goes."""
        yield from self._outbox.releases()
        yield from self._push_ahead()

    def learn(self, total: Total) -> Iterator[tuple[int, Release]]:
        """Learn from the total of the current step, then push ahead."""
        visit = self._homework.schedule.visit(self.step)
        scores, own_then = self._outbox.settle(total)
        for turn in range(self._homework.schedule.passes):
            self.model.learn(self._homework.rows, self._lesson(visit, turn, scores, own_then))
        self.step += 1
        yield from self._push_ahead()
        if self._homework.watch_loss:  # after the push, so that nobody waits for it
            self._add_loss(visit, scores)

    def _add_loss(self, visit: Visit, scores: Floats) -> None:
        homework = self._homework
        values = homework.loss.value(scores, homework.labels[visit.start : visit.stop])
        first = (self.step - 1) % homework.schedule.blocks == 0
        self.loss_sum = (0.0 if first else self.loss_sum) + float(values @ homework.weights[visit.start : visit.stop])

    def _push_ahead(self) -> Iterator[tuple[int, Release]]:
        schedule = self._homework.schedule
        while self.pushed < min(self.step + self._homework.lookahead, schedule.steps - 1):
            step = self.pushed + 1
            visit = schedule.visit(step)
            own = self.model.predict(self._homework.rows, visit.start, visit.stop)
            release = self._guard.pass_on(own)
            self._outbox.put(step, own, release.values)
            self.pushed = step
            yield step, release

    def _lesson(self, visit: Visit, turn: int, scores: Floats, own_then: Floats) -> Lesson:
        homework = self._homework
        edges = homework.schedule.edges(visit)
        batches = len(edges) - 1
        first = homework.schedule.first_update(self.step) + turn * batches
        return Lesson(
            visit.start,
            homework.schedule.order(visit, turn),
            edges,
            homework.rate.of(first, batches),
            scores,
            own_then,
            homework.echo,
            homework.labels[visit.start : visit.stop],
            homework.weights[visit.start : visit.stop],
            homework.loss.code,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        position = np.array([self.step, self.pushed])
        model = {f"model/{name}": array for name, array in self.model.state().items()}
        return {"position": position, "loss_sum": np.array(self.loss_sum), **self._outbox.state(), **model}

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the worker that gave this state."""
        self.step, self.pushed = (int(number) for number in arrays["position"])
        self.loss_sum = float(arrays["loss_sum"])
        self._outbox.restore(arrays)
        self.model.restore({key.removeprefix("model/"): a for key, a in arrays.items() if key.startswith("model/")})
