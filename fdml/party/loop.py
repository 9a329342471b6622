"""One party's training, step by step. Start reading here; `fdml.party.session` has the order of a whole run.

A step is one visit of one block: receive the total of everyone's predictions,
learn from it batch by batch, and push the predictions of a block to come.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import PrivacyBudgetSpent
from fdml.events import Event
from fdml.models.head.head import RATE as HEAD_RATE
from fdml.models.head.head import Head
from fdml.models.learner import Learner
from fdml.models.losses import Floats
from fdml.models.model import PROGRESS, State
from fdml.models.objective import Objective
from fdml.models.signals import BlockUpdate, Gradients, Scores, Signal
from fdml.party.answers import check_answer
from fdml.party.block_loss import with_loss
from fdml.party.epoch_snapshots import EpochSnapshots
from fdml.party.few_exchanges import Estimate, FewExchanges, train_alone
from fdml.party.others import OthersPart
from fdml.party.outbox import Outbox, PendingPush
from fdml.party.task import TrainingTask
from fdml.party.worker_state import WorkerState
from fdml.privacy.guard import Guard, group_of
from fdml.privacy.ledger import Ledger
from fdml.protocol.fixed_point import Codes, decode, replace_own_part
from fdml.protocol.messages import Gradient, Push, Stop, Total
from fdml.protocol.schedule import Schedule, Visit

_LARGEST_GRADIENT = 1.0
"""The gradient of a loss over classes is never larger, and private labels are always classes."""


class Worker:
    """One party's training as a state machine: totals in, releases out. It waits for nothing."""

    def __init__(self, learner: Learner, task: TrainingTask, guard: Guard) -> None:
        self.learner = learner
        self._task = task
        self.lookahead = task.lookahead
        self._guard = guard
        self._outbox = Outbox()
        self._others = OthersPart(task.party, task.others, task.others_limit)
        self.step = 0
        """The next step to learn from."""
        self.pushed = -1
        """The last step pushed."""
        self.loss_sum = 0.0
        """The sum of the losses of this epoch's totals as they were received."""
        self._end = task.schedule.steps
        self._spent = ""
        self._stop_sent = False
        """Whether this start has asked to stop."""
        self._head = task.objective.joint if isinstance(task.objective.joint, Head) else None
        """This party's copy of the head, where the run has one."""
        self._groups = task.group_totals()
        self._few = None
        if task.denoise is not None:
            self._few = FewExchanges(task.denoise, task.objective)
        self._snapshots = None
        if task.stop_after is not None:
            self._snapshots = EpochSnapshots(
                task.stop_after, task.schedule, lookahead=task.lookahead, staleness=task.staleness
            )

    def first_messages(self) -> Iterator[Push | Gradient | Stop]:
        """What to send before the first answer: all that is unanswered, then new pushes as far as lookahead goes."""
        if self.pushed < 0:
            whole = Visit(-1, 0, 0, self._task.schedule.rows)
            signal = partial(self._signal, visit=whole, echo=1.0)
            train_alone(self.learner, whole.size, self._local_passes(whole), signal)
        yield from self._outbox.pushes()
        yield from self._push_ahead()

    def learn(self, answer: Total | Gradient) -> Iterator[Push | Gradient | Stop]:
        """Learn from the answer to the current step, then push ahead."""
        task, visit = self._task, self._task.schedule.visit(self.step)
        check_answer(answer, task.schedule, task.staleness, wants_gradient=task.learns_from_gradients)
        pushed, total, echo = self._outbox.take(self.step), None, task.echo_of(answer)
        if isinstance(answer, Gradient):
            signal: Signal = self._gradients(answer, pushed, visit, echo)
        else:
            opened = self._guard.open_total(answer).reshape(pushed.codes.shape)
            total = self._others.take(opened, pushed.codes, self.step)
            signal = self._scores(total, answer.variance - pushed.release.variance, pushed, visit, echo)
            if task.gradient_party == task.party:
                of_total = self._gradient_of(total, visit)
                yield self._guard.gradient(self.step, of_total)
                if self._groups is not None:
                    signal = self._learnable(of_total, pushed, visit, echo)
        if task.learns_at(self.step):
            self._update(visit, signal)
        if self._head is not None and total is not None:
            self._update_head(self._head, visit, decode(opened))
        self.step += 1
        if self.ended_epoch:
            self._others.end_epoch(self.epoch)
            if self._snapshots is not None:
                self._snapshots.add(self.epoch, self.learner.state())
        yield from self._push_ahead()
        if task.watch_loss and total is not None:  # after the push, so that nobody waits for it
            before = self.loss_sum if (self.step - 1) % task.schedule.blocks else 0.0
            if self._groups is not None:
                self.loss_sum = before + self._groups.loss
            else:
                rows = slice(visit.start, visit.stop)
                self.loss_sum = with_loss(before, total, task.labels[rows], task.weights[rows], task.objective)

    def _gradient_of(self, total: Codes, visit: Visit) -> Floats:
        """dLoss/dtotal of a block at the totals as they were released, where this party has the labels."""
        if self._groups is not None:
            return self._groups.gradient(visit.start, decode(total))
        return self._task.objective.gradient(decode(total), self._task.labels[visit.start : visit.stop])

    def _scores(self, total: Codes, noise: float, pushed: PendingPush, visit: Visit, echo: float) -> Scores:
        """The totals of a block with the party's own part exact.

        The exact part stays here: gradients and losses that others get are made from what was released.
        """
        if self._few is None:
            exact, shrinkage = replace_own_part(total, pushed.codes, pushed.own), 1.0
        else:
            exact, shrinkage = self._few.take(total, pushed, noise)
        return self._signal(exact, pushed.own, visit=visit, echo=shrinkage * echo)

    def _signal(self, total: Floats, own: Floats, *, visit: Visit, echo: float) -> Scores:
        task, rows = self._task, slice(visit.start, visit.stop)
        return Scores(total, own, task.labels[rows], task.weights[rows], echo, task.objective)

    def _gradients(self, answer: Gradient, pushed: PendingPush, visit: Visit, echo: float) -> Gradients:
        """The gradients of a block that the label party returned."""
        task = self._task
        opened = self._guard.open_gradient(answer, task.gradient_party or "").reshape(pushed.codes.shape)
        return self._learnable(np.clip(opened, -_LARGEST_GRADIENT, _LARGEST_GRADIENT), pushed, visit, echo)

    def _learnable(self, gradient: Floats, pushed: PendingPush, visit: Visit, echo: float) -> Gradients:
        weights = self._task.weights[visit.start : visit.stop]
        return Gradients(gradient, decode(pushed.codes), pushed.own, weights, echo, self._task.objective)

    def _update(self, visit: Visit, signal: Signal) -> None:
        """All passes over the block."""
        task, passes = self._task, self._task.schedule.passes_at(self.step)
        if self._may_use(visit, passes):
            for number in range(passes):
                self.learner.update(task.block_update(visit, number, task.schedule.first_update(self.step)), signal)

    def _update_head(self, head: Head, visit: Visit, total: Floats) -> None:
        """The same passes for the head, from the total as it was exchanged: all parties have the same."""
        task, rows = self._task, slice(visit.start, visit.stop)
        first = task.schedule.first_update(self.step)
        for number in range(task.schedule.passes_at(self.step)):
            block = task.block_update(visit, number, first)
            batches = len(block.rates)
            head.learn(
                task.objective.loss,
                total,
                task.labels[rows],
                task.weights[rows],
                order=block.order,
                batch_bounds=block.batch_bounds,
                rates=replace(task.rate, start=HEAD_RATE).of(first + number * batches, batches),
            )

    def _local_passes(self, whole: Visit) -> Iterator[BlockUpdate]:
        """The passes over all rows before the first exchange, as far as the budget allows."""
        for number in range(self._task.schedule.local_passes):
            if not self._may_use(whole, 1):
                return
            yield self._task.block_update(whole, number, 0)

    def _push_ahead(self) -> Iterator[Push | Stop]:
        """Predict and push the blocks to come, as far as lookahead goes and the budget allows."""
        schedule = self._task.schedule
        while self.pushed < min(self.step + self._task.lookahead, self._end - 1):
            step = self.pushed + 1
            try:
                own, push, codes = self._release(step, schedule.visit(step))
            except PrivacyBudgetSpent as spent:
                self._spend(spent)
            else:
                self._outbox.put(step, PendingPush(own, codes, push.release))
                self.pushed = step
                yield push
        if self._spent and not self._stop_sent and self.pushed + 1 < schedule.steps:
            self._stop_sent = True
            yield Stop(self.pushed + 1)

    def _release(self, step: int, visit: Visit) -> tuple[Floats, Push, Codes]:
        """The predictions of a step, exact and as they leave; zeros where it is trained without this party."""
        if self._task.absences.at(step) == self._task.party:
            own = np.zeros((visit.size, self._task.objective.width), self.learner.dtype)
            return own, *self._guard.push_nothing(step, visit.block, own.shape)
        own = self.learner.predict(visit.start, visit.stop)
        return own, *self._guard.push(step, visit.block, own)

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

    def events(self) -> list[Event]:
        """What there is to tell of the others, and of this party's own workers, since the last call."""
        return [*self._others.events(), *self.learner.events()]

    def predict_held_out(self) -> Floats:
        """Local predictions of the held-out rows."""
        return self.learner.predict_held_out()

    def estimate(self) -> Estimate | None:
        """Where exchanges are few and one has been: the scores of the training rows by now."""
        if self._few is None or self._few.last is None:
            return None
        return self._few.estimate(self.learner.predict(0, self._task.schedule.rows), self._task.echo)

    def stop_at(self, step: int) -> None:
        """Go no further than this step; what is done is done."""
        self._end = min(self._end, step)

    def stop_pushing(self) -> Iterator[Stop]:
        """End the run with what is pushed, as held-out rows gain nothing."""
        self.stop_at(self.pushed + 1)
        if not self._stop_sent and self.pushed + 1 < self._task.schedule.steps:
            self._stop_sent = True
            yield Stop(self.pushed + 1, no_gain=True)

    def keep_epoch(self, epoch: int) -> None:
        """Become the model at the end of an epoch; training is over then."""
        if self._snapshots is not None:
            self.learner.restore(self._snapshots.of(epoch))

    @property
    def schedule(self) -> Schedule:
        """Which rows each step visits."""
        return self._task.schedule

    @property
    def objective(self) -> Objective:
        """What training lowers."""
        return self._task.objective

    @property
    def mean_loss(self) -> float:
        """Mean loss of this epoch's totals as they were received."""
        return self.loss_sum / len(self._task.labels)

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
        """Whether training ends before the schedule does, as some budget is spent or held-out rows gain nothing."""
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

    def parameters(self) -> State:
        """The model's own arrays, without the rest of the worker's state."""
        return {name: array for name, array in self.learner.state().items() if not name.startswith(PROGRESS)}

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        return WorkerState(
            step=self.step,
            pushed=self.pushed,
            end=self._end,
            loss_sum=self.loss_sum,
            spent=self._spent,
            guard=self._guard.state(),
            pending=self._outbox.pending,
            model=self.learner.state(),
            last_exchange=None if self._few is None else self._few.last,
            snapshots={} if self._snapshots is None else self._snapshots.states,
            differences={} if self._guard.differences is None else self._guard.differences.state(),
            group_scores=None if self._groups is None else self._groups.scores.copy(),
        ).to_arrays()

    def restore(self, arrays: Mapping[str, NDArray[Any]] | None) -> None:
        """Become the worker that gave this state, or with None one that starts after a crash before its first."""
        saved = None if arrays is None else WorkerState.from_arrays(arrays)
        schedule = self._task.schedule
        self._guard.restore(None if saved is None else saved.guard, lambda step: schedule.visit(step).block)
        if saved is None:
            return
        self.step, self.pushed, self._end = saved.step, saved.pushed, saved.end
        self.loss_sum, self._spent = saved.loss_sum, saved.spent
        self._outbox = Outbox(saved.pending)
        if self._guard.differences is not None:
            self._guard.differences.restore(saved.differences)
        if self._few is not None:
            self._few.last = saved.last_exchange
        if self._snapshots is not None:
            self._snapshots.restore(saved.snapshots)
        if self._groups is not None and saved.group_scores is not None:
            self._groups.restore(saved.group_scores)
        self.learner.restore(saved.model)
