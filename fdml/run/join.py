"""One party of a run, as a process: it loads its data, trains with the others, and saves its model."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fdml.align.plain import own_order
from fdml.data.disk import FolderDisk
from fdml.data.readers import load
from fdml.data.rows import width
from fdml.data.table import PartyData, Table
from fdml.errors import LabelError, ServerUnreachable, SettingsError
from fdml.exchange.certificates import Identity, own_credentials
from fdml.exchange.courier import Courier
from fdml.exchange.fixed_point import decode
from fdml.exchange.grpc_line import Address, GrpcLine, is_loopback
from fdml.exchange.messages import Hello, Labels, Metrics, Verdict
from fdml.party.loop import Worker, train
from fdml.party.models import State
from fdml.privacy.guard import OpenGuard
from fdml.run.evaluate import mean_loss, metric
from fdml.run.keeping import Diary, Keeper
from fdml.run.labels import learn_code
from fdml.run.problem import Sample, mean_one, shuffled_rows, split_rows
from fdml.run.simulate import Plan, homework_for, warm_up
from fdml.run.store import write_archive
from fdml.settings import PartySettings, RunSettings, loss_for, read_party, read_run, run_hash
from fdml.watch.events import EpochDone, Event, Listener

_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class Prepared:
    """A party's rows in the run's order."""

    train: Table
    held_out: Table
    alignment: bytes


def prepare(data: PartyData, run: RunSettings) -> Prepared:
    """Order, split and shuffle a party's rows as every other party does."""
    order, digest = own_order(data.train)
    ordered = data.train.take(order)
    seed = run.training.seed
    if data.test is None:
        keep, out = split_rows(len(ordered), run.evaluation.holdout, seed)
        kept, held_out = ordered.take(keep), ordered.take(out)
    else:
        test_order, test_digest = own_order(data.test)
        kept, held_out, digest = ordered, data.test.take(test_order), digest + test_digest
    alignment = hashlib.blake2b(digest, digest_size=32).digest()
    return Prepared(kept.take(shuffled_rows(len(kept), seed)), held_out, alignment)


@dataclass(frozen=True)
class Joined:
    """How a party's training ended."""

    model_path: Path
    model_hash: bytes
    seconds: float
    waited: float
    resumed_at: int
    """The step it went on from; 0 for a fresh start."""


def join(
    path: Path, *, fresh: bool = False, plain: bool = False, listener: Listener, say: Callable[[str], None]
) -> Joined:
    """Take part in a run to its end, going on from where an earlier start was stopped.

    Meant for a process of its own: the interpreter is told to switch threads
    often, as the line's thread would else wait for the training's.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    party = read_party(path)
    run = read_run(party.run)
    if party.party not in run.parties:
        raise SettingsError(f"{path}: party {party.party!r} is not among the run's parties {', '.join(run.parties)}")
    address = _address(path, party, run, plain=plain)
    prepared = prepare(load(party.data), run)
    facts = {"run.toml": run_hash(run).hex(), "data": prepared.alignment.hex(), "model": party.model.model_dump_json()}
    keeper = Keeper(FolderDisk(path.parent / "state"), facts, run.training.checkpoint_seconds)
    if fresh:
        keeper.forget()
    return _Member(path, party, run, prepared, keeper, listener, say).take_part(address)


def _address(path: Path, party: PartySettings, run: RunSettings, *, plain: bool) -> Address:
    target = party.server or run.server
    if plain:
        check_loopback(target)
    identity = Identity(run.name, "party", party.party)
    credentials = None if plain else own_credentials(path.parent / "keys", identity)
    return Address(target, run.name, party.party, credentials)


def check_loopback(address: str) -> None:
    """Raise unless the address cannot be reached from outside this machine."""
    if not is_loopback(address):
        raise SettingsError(f"plain lines are for loopback only, and {address!r} is not; leave --plain out")


class _Member:
    """One party's part in a run."""

    def __init__(
        self,
        path: Path,
        party: PartySettings,
        run: RunSettings,
        prepared: Prepared,
        keeper: Keeper,
        listener: Listener,
        say: Callable[[str], None],
    ) -> None:
        self._model_path = path.parent / "model.npz"
        self._party = party
        self._run = run
        self._prepared = prepared
        self._keeper = keeper
        self._listener = listener
        self._say = say
        self._diary = Diary()
        self._began: float | None = None
        """When the first total of this start came, less the seconds of earlier starts."""

    @property
    def _leads(self) -> bool:
        return self._party.party == self._run.label_party

    def take_part(self, address: Address) -> Joined:
        saved = self._keeper.load(self._diary)
        done = -1 if saved is None else int(saved["position"][0]) - 1
        before = self._keeper.result()
        if before is not None and self._keeper.is_stored:
            self._say("this party had finished before; --fresh starts it over, at every side")
            return Joined(self._model_path, before, self._diary.seconds, 0.0, done + 1)
        hello = Hello(
            run_hash(self._run),
            self._prepared.alignment,
            len(self._prepared.train),
            len(self._prepared.held_out),
            self._keeper.next_incarnation(),
            done,
        )
        line = GrpcLine(address, Courier(hello), self._run.training.patience)
        try:
            if before is not None:
                return self._already_done(line, before, done)
            labels = self._exchange_labels(line)
            worker = self._worker(labels)
            if saved is not None:
                worker.restore(saved)
                self._say(f"going on at step {worker.step}")
            self._train(worker, line, labels)
            return self._finish(worker, line, done + 1)
        finally:
            line.close()

    def _already_done(self, line: GrpcLine, model_hash: bytes, done: int) -> Joined:
        """The model was saved before; the server may not know it yet."""
        try:
            line.finish(model_hash)
            self._keeper.note_stored(model_hash)
        except ServerUnreachable:
            self._say("this party had finished; the server is no longer there")
        return Joined(self._model_path, model_hash, self._diary.seconds, line.waited, done + 1)

    def _exchange_labels(self, line: GrpcLine) -> Labels:
        if not self._leads:
            return line.await_labels()
        train, held_out = self._prepared.train, self._prepared.held_out
        if train.labels is None or held_out.labels is None:
            raise LabelError(f"label party {self._party.party!r} has no labels; set data.label to its label column")
        code = learn_code(self._run.task, train.labels, train.weights)
        labels = Labels(
            code.outputs,
            code.numbers(train.labels),
            code.numbers(held_out.labels),
            mean_one(train.weights, len(train)),
            mean_one(held_out.weights, len(held_out)),
        )
        line.give_labels(labels)
        return labels

    def _worker(self, labels: Labels) -> Worker:
        name, rows = self._party.party, self._prepared.train.rows
        loss = loss_for(self._run.task, self._run.loss)
        plan = Plan(
            self._run.training,
            {name: self._party.model},
            self._run.label_party,
            loss,
            labels.outputs,
            parties=len(self._run.parties),
        )
        sample = Sample({name: rows}, labels.train, labels.train_weights)
        homework = homework_for(plan, sample, name, watch_loss=self._leads)
        model = plan.model(name, width(rows))
        warm_up(model, rows, labels.outputs)
        return Worker(model, homework, OpenGuard())

    def _train(self, worker: Worker, line: GrpcLine, labels: Labels) -> None:
        guard = OpenGuard()

        def hear(event: Event) -> None:
            if self._began is None:
                self._began = time.monotonic() - self._diary.seconds
            self._diary.seconds = time.monotonic() - self._began
            if isinstance(event, EpochDone):
                line.send_trial(event.epoch, guard.pass_on(worker.model.predict(self._prepared.held_out.rows)))
                if self._leads:
                    self._diary.pending[event.epoch] = (self._diary.seconds, worker.loss_sum / len(labels.train))
                    self._judge(line.verdicts(self._diary.pending), line, labels)
            self._listener(event)

        def keep(worker: Worker) -> int:
            self._diary.letters = line.letters()
            return self._keeper.after_step(worker, self._diary)

        line.send_again(self._diary.letters)
        train(worker, line, hear, keep)
        for epoch in sorted(self._diary.pending):
            verdict = line.await_verdict(epoch)
            self._judge([] if verdict is None else [verdict], line, labels)

    def _judge(self, verdicts: list[Verdict], line: GrpcLine, labels: Labels) -> None:
        """Turn sums of held-out predictions into metrics; only the label party is sent them."""
        sample = Sample({}, labels.held_out, labels.held_out_weights)
        for verdict in verdicts:
            seconds, train_loss = self._diary.pending.pop(verdict.epoch)
            score = decode(verdict.values).reshape(-1, labels.outputs)
            loss = mean_loss(loss_for(self._run.task, self._run.loss), score, sample)
            line.report(Metrics(verdict.epoch, seconds, train_loss, loss, metric(self._run.task, score, sample)))

    def _finish(self, worker: Worker, line: GrpcLine, resumed_at: int) -> Joined:
        state = worker.model.state()
        model_hash = hash_state(state)
        facts = {"kind": "party", "party": self._party.party, "model": self._party.model.model_dump()}
        write_archive(self._model_path, facts, {self._party.party: state})
        line.flush()
        self._keeper.note_result(model_hash)
        line.finish(model_hash)
        self._keeper.note_stored(model_hash)
        return Joined(self._model_path, model_hash, self._diary.seconds, line.waited, resumed_at)


def hash_state(state: State) -> bytes:
    """A hash over a model's arrays: equal only if all bits are."""
    digest = hashlib.blake2b(digest_size=32)
    for name, array in sorted(state.items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.digest()
