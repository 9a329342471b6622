"""One party's whole part in a run, from alignment to the saved model; a training step is in `fdml.party.loop`.

The session has no socket, thread, disk or clock of its own. It yields effects,
one by one; a driver carries each out before it asks for the next, and delivers
the messages that the session asks for. gRPC, threads in one process and the
simulator are drivers of this one order of work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from fdml import events
from fdml.align.sealed_labels import LabelSet
from fdml.data.label_encoding import LabelEncoding
from fdml.errors import ServerUnreachable
from fdml.party.aligning import align_rows
from fdml.party.alignment import SharedRows
from fdml.party.baseline import card_evaluation, compare_alone
from fdml.party.channel import Incoming
from fdml.party.checkpoint import Checkpoint, FinishedModel, Progress, SavedState, first_messages
from fdml.party.class_weights import weighted_by_class
from fdml.party.effects import (
    Emit,
    Flush,
    PartyResult,
    Receive,
    SaveCheckpoint,
    SaveResult,
    Send,
    Work,
    WriteBundle,
    WriteStatement,
    remark,
    send_all,
)
from fdml.party.evaluating import HeldOutRows
from fdml.party.evaluation import Evaluation
from fdml.party.labelling import count_labels, label_remarks, labels_received, send_labels, training_labels
from fdml.party.loop import Worker
from fdml.party.member import Member
from fdml.party.plan import recalibrated
from fdml.party.training_messages import NO_GAIN, TrainingMessages
from fdml.privacy.accounts import BudgetedAccount
from fdml.privacy.build_guard import budget_remarks, guard_for
from fdml.privacy.guard import Guard
from fdml.privacy.statement import state_of
from fdml.protocol.few_bits import few_bits_of
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.messages import (
    Checkpointed,
    Finished,
    FromParty,
    Gradient,
    Hello,
    Stopped,
    Total,
)
from fdml.settings import run_hash
from fdml.storage.arrays import hash_arrays

Phase = Literal["starting", "aligning", "labelling", "training", "evaluating", "finished"]
_FORGET_STEPS = 8
"""How often a party that saves nothing lets the server forget totals."""


class PartySession:
    """Align, exchange labels, train, evaluate, finish. It waits for nothing: waiting is an effect, too."""

    def __init__(self, member: Member, saved: SavedState, clock: Callable[[], float]) -> None:
        self.phase: Phase = "starting"
        self.worker: Worker | None = None
        """The training; None before it begins."""
        self._member = member
        self._run = member.run
        self._saved = saved
        self._checkpoint = saved.checkpoint
        self._clock = clock
        self._inbox: deque[Incoming] = deque()
        self._messages = TrainingMessages(scores_again=member.run.evaluation.stop_after is not None)
        self._label_encoding: LabelEncoding | None = None
        self._alignment_hash = b""
        self._model = member.model
        self._account: BudgetedAccount | None = None
        """Where this run is counted with all others of the party."""
        self._waited = 0.0
        self._seconds = 0.0 if saved.checkpoint is None else saved.checkpoint.progress.seconds
        """Of training, over all starts."""
        self._saved_at = clock()
        self._saved_steps = (-1, self._done)
        """Steps of the older and the newer checkpoint; -1 where it is not known."""
        self._safe = -1
        """Up to this step the server was told to forget totals."""
        self._trend: str | None = None
        """At the label party, whether training has converged."""
        self._promoted = False

    def deliver(self, message: Incoming) -> None:
        """Bring the message that the last `Receive` asked for."""
        self._inbox.append(message)

    def run(self) -> Work[PartyResult]:
        """All effects of this party's part, in order; its result is what the generator returns."""
        shared = yield from self.align()
        self._alignment_hash = shared.digest
        facts = self._member.facts(shared)
        self._saved.check_facts(facts)
        result = self._saved.result
        if result is not None and result.facts == facts:
            yield from self._report_again(shared, result)
            return (yield from self._end(result))
        self._account = self._member.open_account(shared)
        yield Send(self._hello(shared))
        labels = yield from self._exchange_labels(shared)
        worker, guard = yield from self._prepare(shared, labels)
        progress = Progress() if self._checkpoint is None else self._checkpoint.progress
        evaluation = Evaluation(self._member, shared, labels, progress, self._label_encoding, worker.objective)
        held_out = HeldOutRows(
            self._run, shared.key, worker, guard, evaluation, self._messages, self._send, self._take_in
        )
        if self._checkpoint is None:  # else it is among what a checkpoint has unacknowledged, or has arrived
            yield from held_out.predict_earlier(self._member.earlier, shared)
        yield from self._train(worker, guard, held_out, facts)
        yield from self._evaluate(worker, held_out, labels, facts)
        yield from compare_alone(self._member, shared, labels, evaluation, self._clock, Checkpointed(self._safe))
        result = yield from self._finish(worker, guard, evaluation, facts)
        return (yield from self._end(result))

    # Aligning

    def align(self) -> Work[SharedRows]:
        """Find the shared rows with the other parties, unless an earlier start has."""
        if self._member.shared is None:
            self.phase = "aligning"
        return (yield from align_rows(self._member, self._clock, self._receive))

    # Labelling

    def _hello(self, shared: SharedRows) -> Hello:
        return Hello(
            run_hash=run_hash(self._run),
            alignment_hash=shared.digest,
            rows=len(shared.train),
            held_out=len(shared.held_out),
            incarnation=self._saved.incarnation,
            done=self._done,
            line=shared.line,
        )

    @property
    def _done(self) -> int:
        """The last step of the checkpoint this start goes on from."""
        return -1 if self._saved.checkpoint is None else self._saved.checkpoint.step

    def _exchange_labels(self, shared: SharedRows) -> Work[LabelSet]:
        self.phase = "labelling"
        member = self._member
        if member.is_label_party:
            labels, self._label_encoding = member.data.labels(shared)
            if member.earlier is not None:
                member.earlier.check_labels(self._label_encoding)
            labels = weighted_by_class(labels, self._run.training, self._label_encoding)
            count_labels(member, labels, self._label_encoding)
            yield from send_labels(member, shared, labels, self._messages, self._take_in)
            yield from label_remarks(member, labels)
            return training_labels(member, shared, labels, self._label_encoding)
        while self._messages.labels is None:
            yield from self._take_in("for {} to give the labels")
        return labels_received(member, shared, self._messages.labels)

    def _prepare(self, shared: SharedRows, labels: LabelSet) -> Work[tuple[Worker, Guard]]:
        """Build guard and worker, and bring them to the last checkpoint."""
        member = self._member
        rows, training = member.data.rows(shared), member.training(shared)
        plan = member.plan(labels.classes, shared, rows)
        schedule, self._model = plan.schedule(len(shared.train)), plan.models[member.name]
        for text in budget_remarks(member.guard, schedule):
            yield remark(member.name, text)
        noise = member.noise_key(shared)
        guard = guard_for(
            member.guard,
            schedule,
            noise,
            grid=grid_of(training.value_bits, training.max_prediction),
            parties=len(self._run.parties),
            few_bits=few_bits_of(self._run),
            masks=member.masks(shared.key),
            blind=self._run.privacy.server == "blind",
            pairwise=member.pairwise_masks(shared),
            disk=member.disk,
            facts=member.facts(shared),
            account=self._account,
        )
        self.worker = worker = member.worker(plan, labels, rows, guard, noise)
        worker.restore(None if self._checkpoint is None else self._checkpoint.worker)
        bits = training.value_bits
        yield Emit(
            events.Scheduled(member.name, schedule.epochs, schedule.batch_size, schedule.blocks, schedule.rows, bits)
        )
        yield Emit(events.Joined(member.name, worker.step))
        return worker, guard

    # Training

    def _train(self, worker: Worker, guard: Guard, held_out: HeldOutRows, facts: Mapping[str, str]) -> Work[None]:
        self.phase = "training"
        began = self._clock() - self._seconds
        waited, is_first = self._waited, True
        yield from self._send(first_messages(self._checkpoint, worker.first_messages()))
        while not worker.finished:
            answer = yield from self._answer(worker.step)
            if is_first:  # the wait for the first total is no training
                began, is_first = began + self._waited - waited, False
            if isinstance(answer, Stopped):
                worker.stop_at(answer.step)
            else:
                if held_out.decides:
                    yield from held_out.stop_without_gain()
                yield from self._send(worker.learn(answer))
                self._seconds = self._clock() - began
                yield Emit(events.StepDone(worker.party, answer.step, answer.lag if isinstance(answer, Total) else 0))
                for event in worker.events():
                    yield Emit(event)
                if worker.ended_epoch:
                    yield Emit(events.EpochDone(worker.party, worker.epoch))
                    yield from held_out.end_epoch(self._seconds)
            yield from self._save(worker, guard, held_out.evaluation, facts)
        worker.learner.close()
        if worker.ended_early:  # once more, so that no slot is left from which a start is served a total past the end
            yield from self._save(worker, guard, held_out.evaluation, facts)

    def _answer(self, step: int) -> Work[Total | Gradient | Stopped]:
        """The answer to a pushed step, or that the run ends before it."""
        while (answer := self._messages.answer(step)) is None:
            yield from self._take_in(f"at step {step} for {{}}")
        return answer

    def _save(self, worker: Worker, guard: Guard, evaluation: Evaluation, facts: Mapping[str, str]) -> Work[None]:
        """Save if it is time. Totals are needed again from the older of the two checkpoints on."""
        if not self._member.is_durable:
            safe = worker.step - 1 if worker.step % _FORGET_STEPS == 0 else self._safe
        else:
            if worker.finished or self._clock() - self._saved_at >= self._run.training.checkpoint_seconds:
                yield from self._save_now(worker, evaluation, facts)
            safe = self._saved_steps[0]
        if safe > self._safe:
            self._safe = safe
            guard.forget(safe)
            yield Send(Checkpointed(safe))

    def _save_now(
        self, worker: Worker, evaluation: Evaluation, facts: Mapping[str, str], told: Sequence[FromParty] = ()
    ) -> Work[None]:
        """Save, with messages that are sent right after."""
        progress = replace(evaluation.progress, seconds=self._seconds)
        yield SaveCheckpoint(Checkpoint(facts, worker.step - 1, worker.state(), progress, tuple(told)))
        self._saved_at = self._clock()
        self._saved_steps = (self._saved_steps[1], worker.step - 1)

    # Evaluating

    def _evaluate(
        self, worker: Worker, held_out: HeldOutRows, labels: LabelSet, facts: Mapping[str, str]
    ) -> Work[None]:
        """What is left to evaluate when training has ended."""
        self.phase = "evaluating"
        evaluation = held_out.evaluation
        if worker.ended_early:
            reason = worker.spent or self._messages.why_stopped or NO_GAIN
            yield Emit(events.Stopped(worker.party, worker.step, reason))
        if self._member.is_label_party and not self._member.has_private_labels:
            evaluation.calibration = recalibrated(worker, self._run.chosen_loss, labels.train_rows({}))
        if evaluation.at_end and worker.last_epoch not in evaluation.history:  # else an earlier start has scored it
            yield from held_out.predict(worker.last_epoch, self._seconds)
        told = yield from held_out.score_rest()
        for _ in range(2 if told and self._member.is_durable else 0):  # whichever of the two is read again
            yield from self._save_now(worker, evaluation, facts, told)
        yield from self._send(told)
        self._promoted = yield from held_out.finish(self._member.earlier)
        found = evaluation.convergence
        if self._member.is_label_party and found is not None:
            self._trend = found.trend
            yield Emit(events.Convergence(worker.party, found.trend, found.text))

    # Finishing

    def _finish(
        self, worker: Worker, guard: Guard, evaluation: Evaluation, facts: Mapping[str, str]
    ) -> Work[FinishedModel]:
        """Write the model, see that the server has everything, then note the result, then report it."""
        member = self._member
        statement = state_of(
            self._run, member.name, member.guard, guard.ledger, worker.schedule, evaluation.count, plain=member.plain
        )
        yield WriteStatement(statement)
        result = FinishedModel(facts, hash_arrays(worker.parameters()), reported=False)
        yield WriteBundle(
            parameters=worker.parameters(),
            calibration=evaluation.calibration,
            labels=self._label_encoding,
            evaluated=card_evaluation(evaluation, member.guard),
            spent=statement.spent,
            alignment_hash=self._alignment_hash,
            model=self._model,
            promoted=self._promoted,
            width=evaluation.width,
        )
        yield Flush()
        yield SaveResult(result)
        yield from self._report(result)
        return result

    def _report(self, result: FinishedModel) -> Work[None]:
        yield Send(Finished(self._member.model_mac(result.model_hash, self._alignment_hash)))
        yield Flush()
        yield SaveResult(FinishedModel(result.facts, result.model_hash, reported=True))

    def _report_again(self, shared: SharedRows, result: FinishedModel) -> Work[None]:
        """An earlier start has finished; the server may not know it yet."""
        if result.reported:
            yield remark(self._member.name, "this party had finished before; a new name begins another run")
        else:
            try:
                yield Send(self._hello(shared))
                yield from self._report(result)
            except ServerUnreachable:
                yield remark(self._member.name, "this party had finished; the server is no longer there")

    def _end(self, result: FinishedModel) -> Work[PartyResult]:
        self.phase = "finished"
        yield Emit(events.Finished(self._member.name, self._seconds))
        return PartyResult(result.model_hash, self._seconds, self._waited, self._done + 1, convergence=self._trend)

    # Messages

    def _send(self, messages: Iterable[FromParty]) -> Work[None]:
        return send_all(self._member.name, messages)

    def _receive(self, what: str) -> Work[Incoming]:
        began = self._clock()
        yield Receive(what)
        self._waited += self._clock() - began
        return self._inbox.popleft()

    def _take_in(self, what: str) -> Work[None]:
        """Wait for one more message of the training part, and keep it for whoever needs it."""
        self._messages.add((yield from self._receive(what)))
