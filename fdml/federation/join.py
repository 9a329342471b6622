"""One party of a run, as a process: it aligns its rows, trains with the others, and saves its model."""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from fdml.align.group_key import GroupKey
from fdml.align.sealed_labels import LabelSet, open_labels, seal_labels
from fdml.data.label_encoding import fit_labels
from fdml.data.row_set import RowSet, mean_one
from fdml.errors import LabelError, ServerUnreachable, SettingsError
from fdml.events import EpochDone, Event, Listener
from fdml.federation.alignment import AlignedData, Aligner
from fdml.federation.certificates import own_credentials
from fdml.models.archive import write_archive
from fdml.models.calibration import IDENTITY
from fdml.models.metrics import mean_loss, metric
from fdml.models.model import State
from fdml.party.checkpoint import CheckpointStore, SessionProgress, forget_training
from fdml.party.delivery import Delivery
from fdml.party.loop import Worker, train
from fdml.party.plan import Plan, build_worker, recalibrated
from fdml.party.settings import PartySettings, read_party
from fdml.privacy.build_guard import describe_budget, dp_sgd_for, forget_releases, guard_for, stored_key
from fdml.privacy.guard import Guard
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.randomised_response import randomised
from fdml.privacy.statement import state
from fdml.protocol.fixed_point import FIXED_POINTS, decode
from fdml.protocol.identity import Identity
from fdml.protocol.messages import HeldOutTotal, Hello, Labels, Metrics, prediction_width
from fdml.settings import RunSettings, loss_for, read_run, run_hash
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_channel import Endpoint, GrpcChannel, check_loopback

_SWITCH_SECONDS = 0.0005
_HISTORY = "history.json"


@dataclass(frozen=True)
class PartyResult:
    """How a party's training ended."""

    model_path: Path
    model_hash: bytes
    seconds: float
    waited: float
    resumed_at: int
    """The step it went on from; 0 for a fresh start."""


def join(
    path: Path, *, fresh: bool = False, plain: bool = False, listener: Listener, say: Callable[[str], None]
) -> PartyResult:
    """Take part in a run to its end, going on from where an earlier start was stopped.

    Meant for a process of its own: the interpreter is told to switch threads
    often, as the line's thread would else wait for the training's.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    threadpool_limits(1, "blas")  # its threads would spin for work that is not there, on cores that others need
    party, run = read_both(path)
    address = address_of(path, party, run, plain=plain)
    aligner = Aligner(path.parent, party, run, say)
    disk = FolderDisk(path.parent / "state")
    if fresh:
        aligner.forget()
        forget_training(disk)
        forget_releases(disk)
        (path.parent / _HISTORY).unlink(missing_ok=True)
    aligned = aligner.aligned(address)
    for remark in aligned.found.report.remarks():
        say(remark)
    facts = {
        "run.toml": run_hash(run).hex(),
        "data": aligned.found.digest.hex(),
        "model": party.model.model_dump_json(),
        "guard": party.guard.model_dump_json(),
    }
    keeper = CheckpointStore(disk, facts, run.training.checkpoint_seconds)
    noise = stored_key(disk)
    return _Member(path, party, run, aligned, keeper, noise, listener, say).take_part(address, disk)


def read_both(path: Path) -> tuple[PartySettings, RunSettings]:
    """A party's settings and those of its run."""
    party = read_party(path)
    run = read_run(party.run)
    if party.party not in run.parties:
        raise SettingsError(f"{path}: party {party.party!r} is not among the run's parties {', '.join(run.parties)}")
    return party, run


def address_of(path: Path, party: PartySettings, run: RunSettings, *, plain: bool) -> Endpoint:
    """Where a party reaches the server, and with which keys."""
    target = party.server or run.server
    if plain:
        check_loopback(target)
    identity = Identity(run.name, "party", party.party)
    credentials = None if plain else own_credentials(path.parent / "keys", identity)
    return Endpoint(target, run.name, party.party, credentials)


class History:
    """What the label party has found, epoch by epoch, in a file of its own that survives any crash."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else []
        self._found = {each["epoch"]: Metrics(**each) for each in known}

    @property
    def last(self) -> Metrics | None:
        """Of the last epoch that was evaluated."""
        return self._found[max(self._found)] if self._found else None

    def add(self, found: Metrics) -> None:
        """Write down one epoch; the file is replaced as a whole."""
        self._found[found.epoch] = found
        rows = [asdict(self._found[epoch]) for epoch in sorted(self._found)]
        beside = self._path.with_name(f".{self._path.name}.partial")
        beside.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
        beside.chmod(0o600)
        beside.replace(self._path)


class _Member:
    """One party's part in a run."""

    def __init__(
        self,
        path: Path,
        party: PartySettings,
        run: RunSettings,
        aligned: AlignedData,
        keeper: CheckpointStore,
        noise: NoiseKey,
        listener: Listener,
        say: Callable[[str], None],
    ) -> None:
        self._model_path = path.parent / "model.npz"
        self._party = party
        self._run = run
        self._aligned = aligned
        self._keeper = keeper
        self._noise = noise
        self._listener = listener
        self._say = say
        self._diary = SessionProgress()
        self._history = History(path.parent / _HISTORY)
        self._began: float | None = None
        """When this start began to train, less the seconds of earlier starts; the wait for the first total is none."""
        self._reading = IDENTITY
        """How the joint score is to be read at the end."""

    @property
    def _leads(self) -> bool:
        return self._party.party == self._run.label_party

    @property
    def _private(self) -> bool:
        return self._run.privacy.labels == "private"

    def take_part(self, address: Endpoint, disk: FolderDisk) -> PartyResult:
        saved = self._keeper.load(self._diary)
        done = -1 if saved is None else int(saved["position"][0]) - 1
        before = self._keeper.result()
        if before is not None and self._keeper.is_stored:
            self._say("this party had finished before; --fresh starts it over, at every side")
            return PartyResult(self._model_path, before, self._diary.seconds, 0.0, done + 1)
        hello = Hello(
            run_hash(self._run),
            self._aligned.found.digest,
            len(self._aligned.found.train),
            len(self._aligned.found.held_out),
            self._keeper.next_incarnation(),
            done,
        )
        line = GrpcChannel(address, Delivery(hello), self._run.training.peer_timeout_seconds)
        try:
            if before is not None:
                return self._already_done(line, before, done)
            labels = self._exchange_labels(line)
            plan = self._plan(labels)
            schedule = plan.schedule(len(labels.train))
            describe_budget(self._party.guard, schedule, self._say)
            guard = guard_for(
                self._party.guard,
                schedule,
                self._noise,
                grid=FIXED_POINTS[self._run.training.value_bits],
                parties=len(self._run.parties),
                masks=new_masks(self._aligned.found.key, self._run, self._party.party),
                blind=self._run.privacy.server == "blind",
                disk=disk,
            )
            worker = self._worker(plan, labels, guard)
            worker.restore(saved)
            if saved is not None:
                self._say(f"going on at step {worker.step}")
            self._train(worker, guard, line, labels)
            statement = state(
                self._run,
                self._party.party,
                self._party.guard,
                guard.ledger,
                schedule,
                self._diary.trials,
                plain=address.credentials is None,
            )
            self._say(f"what this run showed of this party: {statement.write(self._model_path.parent)}")
            if (last := self._history.last) is not None:
                self._say(f"epoch {last.epoch}: test loss {last.test_loss:.4f}, test metric {last.test_metric:.4f}")
            return self._finish(worker, line, done + 1)
        finally:
            line.close()

    def _already_done(self, line: GrpcChannel, model_hash: bytes, done: int) -> PartyResult:
        """The model was saved before; the server may not know it yet."""
        try:
            line.finish(model_hash)
            self._keeper.mark_reported(model_hash)
        except ServerUnreachable:
            self._say("this party had finished; the server is no longer there")
        return PartyResult(self._model_path, model_hash, self._diary.seconds, line.waited, done + 1)

    def _exchange_labels(self, line: GrpcChannel) -> LabelSet:
        found = self._aligned.found
        if not self._leads:
            given, task = line.await_labels(), self._run.task
            if self._private:
                return _no_labels(given.classes, len(found.train), len(found.held_out))
            return open_labels(found.key, given, len(found.train), len(found.held_out), task, self._run.label_party)
        (train, held_out), (train_weights, weights) = self._aligned.labels(), self._aligned.weights()
        encoding = fit_labels(self._run.task, train, train_weights)
        labels = LabelSet(
            encoding.class_count,
            encoding.transform(train),
            encoding.transform(held_out),
            mean_one(train_weights, len(train)),
            mean_one(weights, len(held_out)),
        )
        if not self._private:
            line.give_labels(seal_labels(found.key, labels, self._run.task))
            return labels
        if train_weights is not None:
            raise LabelError("weights could disclose private labels; leave data.weight out")
        line.give_labels(Labels(labels.classes))
        return self._shown(labels)

    def _shown(self, labels: LabelSet) -> LabelSet:
        """Private labels as training may use them: randomised once, unless that is switched off."""
        epsilon = self._run.privacy.label_epsilon
        if epsilon == "off":
            self._say(
                "warning: label_epsilon is off: every gradient this party returns discloses its row's label to the "
                "other parties"
            )
            return labels
        shown = randomised(labels.train, labels.classes, epsilon, self._noise)
        return replace(labels, train=shown)

    def _plan(self, labels: LabelSet) -> Plan:
        return Plan(
            self._run.training,
            {self._party.party: self._party.model},
            self._run.label_party,
            loss_for(self._run.task, self._run.loss),
            labels.classes,
            parties=len(self._run.parties),
        )

    def _worker(self, plan: Plan, labels: LabelSet, guard: Guard) -> Worker:
        name, rows = self._party.party, self._aligned.train
        sample = RowSet({name: rows}, labels.train, labels.train_weights)
        gradient_party = self._run.label_party if self._private else None
        wanted = self._party.threads
        return build_worker(
            plan,
            sample,
            name,
            guard,
            held_out=self._aligned.held_out,
            dp_sgd=dp_sgd_for(self._party.guard, self._noise),
            threads=(os.cpu_count() or 1) if wanted == "auto" else wanted,
            watch_loss=self._leads,
            gradient_party=gradient_party,
        )

    def _train(self, worker: Worker, guard: Guard, line: GrpcChannel, labels: LabelSet) -> None:
        each_epoch = evaluation_schedule(self._run) == "epoch"
        started = time.monotonic()

        def hear(event: Event) -> None:
            if self._began is None:
                self._began = started + line.waited - self._diary.seconds
            self._diary.seconds = time.monotonic() - self._began
            if isinstance(event, EpochDone) and each_epoch:
                self._try_out(event.epoch, worker, guard, line, labels)
            self._listener(event)

        def keep(worker: Worker) -> int:
            self._diary.unacknowledged = line.unacknowledged()
            safe = self._keeper.after_step(worker, self._diary)
            guard.forget(safe)
            return safe

        line.send_again(self._diary.unacknowledged)
        train(worker, line, hear, keep)
        if worker.ended_early:
            self._say(f"training ended before step {worker.end}: {worker.spent or line.stopped_by}")
        if self._leads and not self._private:
            sample = RowSet({}, labels.train, labels.train_weights)
            self._reading = recalibrated(worker, loss_for(self._run.task, self._run.loss), sample)
        if not each_epoch:
            self._try_out(worker.last_epoch, worker, guard, line, labels)
        blocks = self._plan(labels).schedule(len(labels.train)).blocks
        for epoch in sorted(self._diary.pending):
            verdict = line.await_verdict(epoch, blocks if each_epoch else 0)
            self._judge([] if verdict is None else [verdict], guard, line, labels)

    def _try_out(self, epoch: int, worker: Worker, guard: Guard, line: GrpcChannel, labels: LabelSet) -> None:
        """Predict the held-out rows; the label party judges what has come back by now."""
        line.send_trial(guard.trial(epoch, worker.predict_held_out()))
        self._diary.trials += 1
        if self._leads:
            self._diary.pending[epoch] = (self._diary.seconds, worker.loss_sum / len(labels.train))
            self._judge(line.verdicts(self._diary.pending), guard, line, labels)

    def _judge(self, verdicts: list[HeldOutTotal], guard: Guard, line: GrpcChannel, labels: LabelSet) -> None:
        """Turn sums of held-out predictions into metrics; only the label party is sent them."""
        sample = RowSet({}, labels.held_out, labels.held_out_weights)
        width = prediction_width(self._run.task, labels.classes)
        for verdict in verdicts:
            seconds, train_loss = self._diary.pending.pop(verdict.epoch)
            score = self._reading.apply(decode(guard.open_held_out(verdict)).reshape(-1, width))
            loss = mean_loss(loss_for(self._run.task, self._run.loss), score, sample)
            found = Metrics(verdict.epoch, seconds, train_loss, loss, metric(self._run.task, score, sample))
            self._note(found, verdict.variance)
            line.report(Metrics(found.epoch, found.seconds) if self._private else found)

    def _note(self, found: Metrics, variance: float) -> None:
        """Keep the label party's own copy of what was found: of private labels it is the only one."""
        if variance > 0.0 and self._history.last is None:
            self._say(
                f"the held-out predictions carry noise of {math.sqrt(variance):.3g} in all: their metrics are those of "
                f'the noisy sums, worse than the model; guard.evaluation = "exact" would release them as they are'
            )
        self._history.add(found)

    def _finish(self, worker: Worker, line: GrpcChannel, resumed_at: int) -> PartyResult:
        state = worker.parameters()
        model_hash = hash_state(state)
        facts = {
            "kind": "party",
            "party": self._party.party,
            "model": self._party.model.model_dump(),
            "scale": self._reading.scale,
            "offset": self._reading.offset.tolist(),
        }
        write_archive(self._model_path, facts, {self._party.party: state})
        self._model_path.chmod(0o600)
        line.flush()
        self._keeper.note_result(model_hash)
        line.finish(model_hash)
        self._keeper.mark_reported(model_hash)
        return PartyResult(self._model_path, model_hash, self._diary.seconds, line.waited, resumed_at)


def evaluation_schedule(run: RunSettings) -> str:
    """After every epoch, or at the end: where exchanges are few, so are the releases of held-out rows."""
    return run.evaluation.every or ("epoch" if run.training.exchanges is None else "end")


def new_masks(key: GroupKey, run: RunSettings, party: str) -> Masks:
    """The masks of one start of a party, under a mask_id that no other start has."""
    return Masks(key.derive("masks"), run.parties, party, secrets.randbits(63) + 1)


def _no_labels(classes: int, rows: int, held_out: int) -> LabelSet:
    """What a party has of private labels."""
    return LabelSet(classes, np.zeros(rows), np.zeros(held_out), np.ones(rows), np.ones(held_out))


def hash_state(state: State) -> bytes:
    """A hash over a model's arrays: equal only if all bits are."""
    digest = hashlib.blake2b(digest_size=32)
    for name, array in sorted(state.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
