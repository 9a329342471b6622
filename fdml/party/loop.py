"""The loop each party runs. Start reading here.

A step is one visit of one block: receive the total of everyone's predictions,
learn from it batch by batch, and push the predictions of a block to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows
from fdml.errors import DataError, MessageRefused, PrivacyBudgetSpent, Refusal
from fdml.events import EpochDone, Listener, StepDone
from fdml.models.compiled import Model
from fdml.models.kernels import BlockUpdate, Floats
from fdml.models.learning_rate import LearningRate
from fdml.models.objective import Objective
from fdml.models.predict_pool import PredictPool
from fdml.party.channel import Channel
from fdml.party.denoising import denoise, probit_scale
from fdml.privacy.guard import Guard, group_of
from fdml.privacy.ledger import Ledger
from fdml.protocol.fixed_point import Codes, decode, replace_own_part
from fdml.protocol.messages import Gradient, Push, Release, Stop, Stopped, Total
from fdml.protocol.schedule import Schedule, Visit

_AT_ONCE = 8192
"""Rows whose loss is computed at once."""


def train(worker: Worker, channel: Channel, listener: Listener, keep: Callable[[Worker], int]) -> None:
    """Run all steps that are left; `keep` is called after each and says after which step the state is safe."""
    for message in worker.first_messages():
        channel.send(message)
    while not worker.finished:
        answer = channel.receive(worker.step)
        if isinstance(answer, Stopped):
            worker.stop_at(answer.step)
            channel.keep(keep(worker))
            break
        for message in worker.learn(answer):
            channel.send(message)
        listener(StepDone(worker.party, answer.step, answer.lag if isinstance(answer, Total) else 0))
        if worker.ended_epoch:
            listener(EpochDone(worker.party, worker.epoch))
        channel.keep(keep(worker))


@dataclass(frozen=True)
class TrainingTask:
    """What a party trains on and how. Row i is the same person at every party."""

    party: str
    rows: Rows
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    """One per row, mean 1."""
    schedule: Schedule
    objective: Objective
    rate: LearningRate
    echo: float
    lookahead: int
    staleness: int
    watch_loss: bool = False
    """Whether to sum up the loss of the totals as they come."""
    gradient_party: str | None = None
    """The label party where labels are private: it alone has `labels`, and returns gradients."""

    held_out: Rows | None = None
    """Rows to predict for evaluation."""

    @property
    def learns_from_gradients(self) -> bool:
        """Whether this party learns from another's gradients."""
        return self.gradient_party not in (None, self.party)


@dataclass(frozen=True)
class PendingPush:
    """A push that was not answered yet."""

    own: Floats
    """The exact predictions."""
    codes: Codes
    """The same as they left, but for the mask."""
    release: Release


class LastExchange(NamedTuple):
    """What the last exchange told: the others' predictions, this party's own, and how uncertain the others' are."""

    others: Floats
    own: Floats
    variance: float


class Outbox:
    """What was pushed and not yet answered."""

    def __init__(self) -> None:
        self._waiting: dict[int, PendingPush] = {}

    def put(self, step: int, sent: PendingPush) -> None:
        """Keep a push until its answer comes."""
        self._waiting[step] = sent

    def take(self, step: int) -> PendingPush:
        """The push that an answer has come to."""
        return self._waiting.pop(step)

    def pushes(self) -> list[Push]:
        """Everything unanswered, as it was pushed."""
        return [Push(step, sent.release) for step, sent in sorted(self._waiting.items())]

    def state(self) -> dict[str, NDArray[Any]]:
        """As arrays."""
        arrays: dict[str, NDArray[Any]] = {}
        for step, sent in self._waiting.items():
            arrays[f"own/{step}"], arrays[f"pushed/{step}"] = sent.own, sent.codes
            arrays[f"variance/{step}"] = np.array(sent.release.variance)
            if sent.release.mask_id:
                arrays[f"mask_id/{step}"] = np.array(sent.release.mask_id, np.uint64)
                arrays[f"masked/{step}"] = sent.release.values
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the outbox that gave these arrays."""
        steps = [int(key.removeprefix("own/")) for key in arrays if key.startswith("own/")]
        self._waiting = {step: _pending_push(arrays, step) for step in steps}


def _pending_push(arrays: Mapping[str, NDArray[Any]], step: int) -> PendingPush:
    own, codes, variance = arrays[f"own/{step}"], arrays[f"pushed/{step}"], float(arrays[f"variance/{step}"])
    if f"mask_id/{step}" not in arrays:
        return PendingPush(own, codes, Release(codes, 0, variance))
    return PendingPush(own, codes, Release(arrays[f"masked/{step}"], int(arrays[f"mask_id/{step}"]), variance))


class Worker:
    """One party's training as a machine: totals in, releases out. It waits for nothing."""

    def __init__(self, model: Model, task: TrainingTask, guard: Guard, threads: int = 1) -> None:
        self.model = model
        self._task = task
        self._guard = guard
        self._crew = PredictPool(threads)
        self._outbox = Outbox()
        self.step = 0
        """The next step to learn from."""
        self.pushed = -1
        """The last step pushed."""
        self.loss_sum = 0.0
        """The sum of the losses of this epoch's totals as they were received."""
        self._end = task.schedule.steps
        self._spent = ""
        """Why this party may release nothing more."""
        self._last: LastExchange | None = None
        """Only where exchanges are few."""
        self._stop_sent = False
        """Whether this start has said so."""

    @property
    def party(self) -> str:
        """Whose training this is."""
        return self._task.party

    @property
    def ledger(self) -> Ledger:
        """What this party has released so far."""
        return self._guard.ledger

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self._end

    @property
    def ended_early(self) -> bool:
        """Whether training ends before the schedule does, as some party's budget is spent."""
        return self._end < self._task.schedule.steps

    @property
    def end(self) -> int:
        """The step before which training ends."""
        return self._end

    @property
    def last_epoch(self) -> int:
        """The number under which all parties predict the held-out rows at the end, also where that comes early."""
        return self._task.schedule.epochs

    @property
    def spent(self) -> str:
        """Why this party may release nothing more; empty while it may."""
        return self._spent

    @property
    def ended_epoch(self) -> bool:
        """Whether the last step learned from was the last of its epoch."""
        return self.step > 0 and self._task.schedule.ends_epoch(self.step - 1)

    @property
    def epoch(self) -> int:
        """How many epochs are complete."""
        return self.step // self._task.schedule.blocks

    def stop_at(self, step: int) -> None:
        """Go no further than this step; what is done is done."""
        self._end = min(self._end, step)

    def first_messages(self) -> Iterator[Push | Gradient | Stop]:
        """What to send before the first answer: all that is unanswered, then new pushes as far as lookahead goes."""
        if self.pushed < 0:
            self._train_alone()
        yield from self._outbox.pushes()
        yield from self._push_ahead()

    def learn(self, answer: Total | Gradient) -> Iterator[Push | Gradient | Stop]:
        """Learn from the answer to the current step, then push ahead."""
        task = self._task
        visit = task.schedule.visit(self.step)
        self._check_kind(answer)
        if isinstance(answer, Total):
            self._check_fresh(answer)
        sent = self._outbox.take(self.step)
        labels = task.labels[visit.start : visit.stop]
        total, probit = None, 1.0
        if isinstance(answer, Gradient):
            scores, labels = self._inverted(answer, sent)
        else:
            total = self._guard.open_total(answer).reshape(sent.codes.shape)
            if task.gradient_party == task.party:
                yield self._guard.gradient(self.step, task.objective.gradient(decode(total), labels))
            scores, probit = self._scores(total, answer.variance - sent.release.variance, sent)
        passes = task.schedule.passes_at(self.step)
        if self._may_use(visit, passes):
            for pass_number in range(passes):
                update = self._lesson(visit, pass_number, scores, sent.own, labels)
                self.model.learn(task.rows, update._replace(echo=probit * task.echo))
        self.step += 1
        yield from self._push_ahead()
        if task.watch_loss and total is not None:  # after the push, so that nobody waits for it
            self._add_loss(visit, total)

    def _scores(self, total: Codes, noise: float, sent: PendingPush) -> tuple[Floats, float]:
        """The scores that a total means, the party's own part exact, and by what they were multiplied.

        The exact part stays here: gradients and losses that others are told of are made
        from what was released. Noise that is exchanged once and used for many passes would
        pull every pass the same way, so it is read with care; noise that is new in every
        step averages out.
        """
        own = sent.own
        if not self._task.schedule.passes_per_exchange:
            return replace_own_part(total, sent.codes, own), 1.0
        reading = denoise(decode(total - sent.codes), max(0.0, noise), self._task.rows)
        self._last = LastExchange(reading.values, own, reading.variance)
        probit = probit_scale(reading.variance) if self._task.objective.loss.has_odds else 1.0
        return (probit * (reading.values + own)).astype(own.dtype), probit

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows."""
        if self._task.held_out is None:
            raise DataError("this party has no held-out rows; raise evaluation.holdout")
        return self.model.predict(self._task.held_out)

    def estimate(self) -> tuple[Floats, float] | None:
        """Where exchanges are few: what the sum of all predictions of the training rows should be by now.

        The others are taken to have moved as this party has since the last exchange.
        The second value is the variance of what is not known. None before the first exchange.
        """
        if self._last is None:
            return None
        now = self._predicted(0, self._task.schedule.rows)
        moved = self._task.echo * (now - self._last.own)
        return self._last.others + self._last.own + moved, self._last.variance

    def _inverted(self, gradient: Gradient, sent: PendingPush) -> tuple[Floats, NDArray[np.float64]]:
        """The scores and labels that a gradient means, with the party's own part exact."""
        given = self._guard.open_gradient(gradient, self._task.gradient_party or "").reshape(sent.codes.shape)
        scores, labels = self._task.objective.invert_gradient(given)
        return (scores - decode(sent.codes) + sent.own).astype(sent.own.dtype), labels

    def _check_kind(self, answer: Total | Gradient) -> None:
        if isinstance(answer, Gradient) != self._task.learns_from_gradients:
            wanted = "a gradient" if self._task.learns_from_gradients else "a total"
            raise MessageRefused(
                f"step {answer.step} was answered with a {type(answer).__name__} where {wanted} belongs; both sides "
                f"need the same run.toml",
                Refusal.INVALID,
            )

    def _check_fresh(self, total: Total) -> None:
        """A server may be late; it may not pass off as new what is older than the run allows."""
        if total.pushed_at and all(made == total.step for made in total.pushed_at):
            return
        schedule = self._task.schedule
        block = schedule.visit(total.step).block
        oldest = schedule.last_visit(block, total.step - self._task.staleness)
        for made in total.pushed_at or (total.step + 1,):
            if not oldest <= made <= total.step or (made >= 0 and schedule.visit(made).block != block):
                raise MessageRefused(
                    f"the total of step {total.step} has a part of step {made}; the run allows none before {oldest}",
                    Refusal.INVALID,
                )

    def _may_use(self, visit: Visit, times: int) -> bool:
        """Count the use of the block's rows in noisy gradients; no more learning once that would overspend."""
        if self._guard.ledger.gradients is None:
            return True
        if not self._spent:
            try:
                self._guard.ledger.count_use(group_of(visit.block), times)
            except PrivacyBudgetSpent as spent:
                self._spend(spent)
        return not self._spent

    def _spend(self, spent: PrivacyBudgetSpent) -> None:
        self._spent = str(spent)
        self._end = min(self._end, self.pushed + 1)

    def _train_alone(self) -> None:
        """Before the first exchange the party's own prediction is all of the score."""
        schedule, task = self._task.schedule, self._task
        whole = Visit(-1, 0, 0, schedule.rows)
        for pass_number in range(schedule.local_passes):
            if not self._may_use(whole, 1):
                return
            own = self._predicted(0, schedule.rows)
            update = self._lesson(whole, pass_number, own, own, task.labels)
            self.model.learn(task.rows, update._replace(echo=1.0))

    def _add_loss(self, visit: Visit, total: Codes) -> None:
        """Of scores as they were released: the sum is told to others. Few rows at a time stay in the cache."""
        task = self._task
        if (self.step - 1) % task.schedule.blocks == 0:
            self.loss_sum = 0.0
        for first in range(0, visit.size, _AT_ONCE):
            some = slice(visit.start + first, min(visit.start + first + _AT_ONCE, visit.stop))
            scores = decode(total[first : first + _AT_ONCE]).astype(np.float32)
            values = task.objective.value(scores, task.labels[some])
            self.loss_sum += float(values.astype(np.float64) @ task.weights[some])

    def _push_ahead(self) -> Iterator[Push | Stop]:
        schedule = self._task.schedule
        while self.pushed < min(self.step + self._task.lookahead, self._end - 1):
            step = self.pushed + 1
            visit = schedule.visit(step)
            own = self._predicted(visit.start, visit.stop)
            try:
                push, codes = self._guard.push(step, visit.block, own)
            except PrivacyBudgetSpent as spent:
                self._spend(spent)
            else:
                self._outbox.put(step, PendingPush(own, codes, push.release))
                self.pushed = step
                yield push
        if self._spent and not self._stop_sent and self.pushed + 1 < schedule.steps:
            self._stop_sent = True
            yield Stop(self.pushed + 1)

    def _predicted(self, start: int, stop: int) -> Floats:
        return self._crew.predict(self.model, self._task.rows, start, stop)

    def _lesson(
        self, visit: Visit, pass_number: int, scores: Floats, own_at_push: Floats, labels: NDArray[np.float64]
    ) -> BlockUpdate:
        task = self._task
        batch_bounds = task.schedule.batch_bounds(visit)
        batches = len(batch_bounds) - 1
        before = task.schedule.first_update(self.step) if visit.epoch >= 0 else 0
        first = before + pass_number * batches
        return BlockUpdate(
            visit.start,
            task.schedule.order(visit, pass_number),
            batch_bounds,
            task.rate.of(first, batches),
            scores,
            own_at_push,
            task.echo,
            labels,
            task.weights[visit.start : visit.stop],
            task.objective.loss.code,
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        arrays = {
            "position": np.array([self.step, self.pushed, self._end]),
            "loss_sum": np.array(self.loss_sum),
            "spent": np.array(self._spent),
            "guard": np.array(self._guard.state()),
        }
        if self._last is not None:
            arrays |= {f"last/{name}": np.asarray(value) for name, value in self._last._asdict().items()}
        model = {f"model/{name}": array for name, array in self.model.state().items()}
        return {**arrays, **self._outbox.state(), **model}

    def restore(self, arrays: Mapping[str, NDArray[Any]] | None) -> None:
        """Become the worker that gave this state, or with None one that starts after a crash before its first."""
        schedule = self._task.schedule
        counted = None if arrays is None else str(arrays["guard"])
        self._guard.restore(counted, lambda step: schedule.visit(step).block)
        if arrays is None:
            return
        self.step, self.pushed, self._end = (int(number) for number in arrays["position"])
        self.loss_sum = float(arrays["loss_sum"])
        self._spent = str(arrays["spent"])
        if "last/others" in arrays:
            self._last = LastExchange(arrays["last/others"], arrays["last/own"], float(arrays["last/variance"]))
        self._outbox.restore(arrays)
        self.model.restore({key.removeprefix("model/"): a for key, a in arrays.items() if key.startswith("model/")})
