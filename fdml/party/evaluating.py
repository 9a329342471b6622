"""A session's work on the held-out rows: predict them, score their totals, with `stop_after` stop and keep the best.

The label party decides when to stop by figures alone, at a step that follows from the schedule. So at staleness 0 a run
ends at the same step and keeps the same epoch, whatever the timing and whoever was started again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from fdml import events
from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_outcome, seal_outcome
from fdml.monitor.figures import undefined_remark
from fdml.party.alignment import SharedRows
from fdml.party.earlier import EARLIER, EarlierModel
from fdml.party.effects import Emit, Work, remark
from fdml.party.evaluation import Evaluation, noise_remark
from fdml.party.loop import Worker
from fdml.party.training_messages import TrainingMessages
from fdml.privacy.guard import Guard
from fdml.protocol.messages import FromParty, SealedMetrics
from fdml.protocol.row_pieces import cut
from fdml.settings import RunSettings


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """The held-out rows of one party, in one start of it."""

    run: RunSettings
    key: GroupKey
    worker: Worker
    guard: Guard
    evaluation: Evaluation
    messages: TrainingMessages
    send: Callable[[Iterable[FromParty]], Work[None]]
    take_in: Callable[[str], Work[None]]
    """Waits for one more message; takes what is waited for, with a place for whom."""

    @property
    def _is_label_party(self) -> bool:
        return self.worker.party == self.run.label_party

    @cached_property
    def decides(self) -> bool:
        """Whether this party decides when to stop."""
        return self._is_label_party and self.run.evaluation.stop_after is not None

    def predict_earlier(self, earlier: EarlierModel | None, shared: SharedRows) -> Work[None]:
        """Before training: send what an earlier version predicts of the held-out rows, if the run is compared with one.

        The label party looks at their total at the end. The server keeps it until then, as no metrics of it are told.
        """
        if earlier is None or not self.evaluation.is_on:
            return
        predictions = earlier.predict(shared, self.evaluation.width)
        yield from self.send(cut(self.guard.held_out(EARLIER, predictions), self.evaluation.pieces))
        self.evaluation.count += 1

    def end_epoch(self, seconds: float) -> Work[None]:
        """An epoch has ended after so many seconds of training."""
        epoch = self.worker.epoch
        if self._is_label_party:
            self.evaluation.losses[epoch - 1 :] = [self.worker.mean_loss]
        if self.evaluation.each_epoch:
            yield from self.predict(epoch, seconds)
            if not self.worker.finished:  # else they are scored at the end, and told once they are stored
                yield from self.send((yield from self._score(sorted(self.evaluation.pending))))

    def predict(self, epoch: int, seconds: float) -> Work[None]:
        """Send the held-out predictions; the label party scores their total once it has come."""
        pieces = self.evaluation.pieces
        yield from self.send(cut(self.guard.held_out(epoch, self.worker.predict_held_out()), pieces))
        self.evaluation.count += 1
        if self._is_label_party:
            self.evaluation.wait_for(epoch, seconds, self.worker.mean_loss)

    def stop_without_gain(self) -> Work[None]:
        """Before the next step, at the party that `decides`: score the epochs that are due, and stop if they say so.

        An epoch that was scored before it is due does not count yet.
        """
        due = self.worker.schedule.epochs_scored(self.worker.step, self.worker.lookahead)
        yield from self.send((yield from self._score_all(due)))
        final_at = self.evaluation.best_so_far.final_at
        if final_at is not None and final_at <= due:
            yield from self.send(self.worker.stop_pushing())

    def score_rest(self) -> Work[list[SealedMetrics]]:
        """When training has ended: score what is left; gives what the others are to be told.

        Once they are, the server has no total any more, so what was found must be stored before.
        """
        if not self.evaluation.pending:
            return []
        return (yield from self._score_all(max(self.evaluation.pending)))

    def finish(self, earlier: EarlierModel | None = None) -> Work[bool]:
        """When all is scored: where held-out rows choose it, keep the best epoch.

        Gives whether the run's version is promoted.
        """
        promoted = (yield from self._compare(earlier)) if self._is_label_party else False
        if self._is_label_party and (reliability := self.evaluation.reliability) is not None:
            yield Emit(reliability)
        if not self.run.has_outcome:
            return promoted
        if self._is_label_party:
            epoch = self.evaluation.best_so_far.epoch if self.decides else 0
            yield from self.send([seal_outcome(self.key, epoch, promoted=promoted)])
        else:
            while self.messages.best_epoch is None:
                yield from self.take_in("for {} to tell how the run ends")
            epoch, promoted = open_outcome(self.key, self.messages.best_epoch)
        if epoch:
            self.worker.keep_epoch(epoch)
            self.evaluation.keep(epoch)
            yield Emit(events.EpochChosen(self.worker.party, epoch))
        return promoted

    def _compare(self, earlier: EarlierModel | None) -> Work[bool]:
        """At the label party: compare with an earlier version; gives whether the rule of the run promotes this one."""
        if earlier is None or not self.evaluation.is_on:
            return False
        while EARLIER not in self.messages.held_out:
            yield from self.take_in(f"for {{}} to predict the held-out rows with {earlier.text}")
        found = self.evaluation.compared_with(earlier, self.messages.held_out[EARLIER], self.guard)
        if found is None:
            yield remark(self.worker.party, f"no figures to compare with {earlier.text}: training ended too soon")
            return False
        yield Emit(found)
        return found.promoted is True

    def _score_all(self, last: int) -> Work[list[SealedMetrics]]:
        """Score all epochs up to this one; wait for the totals that will come. Gives what the others are to be told."""
        blocks = self.worker.schedule.blocks if self.evaluation.each_epoch else 0
        epochs = [each for each in sorted(self.evaluation.pending) if each <= last]
        for epoch in epochs:
            while not self.messages.is_settled(epoch, blocks):
                yield from self.take_in(f"for {{}} to predict the held-out rows of epoch {epoch}")
        return (yield from self._score(epochs))

    def _score(self, epochs: Iterable[int]) -> Work[list[SealedMetrics]]:
        """Turn the totals of these epochs that have come into metrics; only the label party is sent any."""
        told = []
        for epoch in epochs:
            totals = self.messages.held_out.pop(epoch, None)
            if totals is None:
                continue
            if totals[0].variance > 0.0 and not self.evaluation.history:
                yield remark(self.worker.party, noise_remark(totals[0].variance))
            is_first = not self.evaluation.history
            found, sealed = self.evaluation.score(totals, self.guard)
            undefined = undefined_remark(found.figures) if is_first else ""
            if undefined:
                yield remark(self.worker.party, undefined)
            yield Emit(found)
            told.append(sealed)
        return told
