"""The loop each party runs. Start reading here.

A step is one visit of one block: receive the total of everyone's predictions,
learn from it batch by batch, and push the predictions of a block to come.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows
from fdml.data.schedule import Schedule, Visit
from fdml.exchange.channel import Channel
from fdml.exchange.fixed_point import Codes, decode
from fdml.exchange.messages import Total
from fdml.party.kernels import Floats, Lesson
from fdml.party.losses import Loss
from fdml.party.models import Model
from fdml.party.rates import Rate
from fdml.privacy.guard import Guard
from fdml.watch.events import EpochDone, Listener, StepDone


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
        others = decode(total.values - pushed)
        return (others + own).astype(own.dtype), own


def train(model: Model, homework: Homework, channel: Channel, guard: Guard, listener: Listener) -> None:
    """Run all steps of the schedule for one party."""
    schedule, outbox = homework.schedule, Outbox()

    def push(step: int) -> None:
        visit = schedule.visit(step)
        own = model.predict(homework.rows, visit.start, visit.stop)
        release = guard.pass_on(own)
        outbox.put(step, own, release.values)
        channel.send(step, release)

    for step in range(min(1 + homework.lookahead, schedule.steps)):
        push(step)
    for step in range(schedule.steps):
        total = channel.receive(step)
        visit = schedule.visit(step)
        scores, own_then = outbox.settle(total)
        for turn in range(schedule.passes):
            model.learn(homework.rows, _lesson(homework, visit, step, turn, scores, own_then))
        ahead = step + 1 + homework.lookahead
        if ahead < schedule.steps:
            push(ahead)
        listener(StepDone(homework.party, step, total.lag))
        if schedule.ends_epoch(step):
            listener(EpochDone(homework.party, visit.epoch + 1))


def _lesson(homework: Homework, visit: Visit, step: int, turn: int, scores: Floats, own_then: Floats) -> Lesson:
    edges = homework.schedule.edges(visit)
    batches = len(edges) - 1
    first = homework.schedule.first_update(step) + turn * batches
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
