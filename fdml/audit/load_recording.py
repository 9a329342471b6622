"""Recordings: of a finished run of processes on this machine, or of a run made in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fdml.audit.message_log import MessageLog, any_masks
from fdml.audit.recording import GroundTruth, Recording
from fdml.data.row_set import RowSet
from fdml.data.rows import width
from fdml.errors import DataError, FdmlError
from fdml.experiments.party_folders import dataset_of, load_model, plan_of, read_party_folders
from fdml.party.loop import Worker
from fdml.party.plan import Plan, build_worker
from fdml.privacy.build_guard import dp_sgd_for, guard_for, mechanism_of, seeded_key, stored_key
from fdml.privacy.guard import Guard
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.randomised_response import randomised
from fdml.protocol.messages import Checkpointed, FromParty, Gradient, Push, Stop, Stopped, Total
from fdml.protocol.wire import decode_from_party
from fdml.protocol.wire_pb2 import Record
from fdml.server.coordinator import Coordinator
from fdml.settings import PrivacySettings, RunSettings, Task, read_run
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal

_SECRET = bytes(32)
"""Masks of a run in one process hide nothing from the one who runs it."""


def read_recording(run_toml: Path) -> Recording:
    """The recording of a finished run whose parties all have their folders beside its run.toml."""
    run = read_run(run_toml)
    messages = list(_logged(run_toml.parent / "server" / "state"))
    folders = read_party_folders(run_toml, run)
    lead = folders[run.label_party]
    tape = MessageLog(run, any_masks(lead.aligned.found.key.derive("masks"), run.parties))
    for sender, message in messages:
        tape.take(sender, message)
    problem = dataset_of(run, folders)
    plan = plan_of(run, folders, problem)
    train = problem.train
    schedule = plan.schedule(len(train))
    disk = FolderDisk(lead.folder / "state")
    truth = GroundTruth(
        features=train.parts,
        labels=train.labels,
        shown_labels=_shown(run.privacy, train.labels, plan.classes, lambda: stored_key(disk)),
        held_out=problem.test.parts,
        held_out_labels=problem.test.labels,
        models={name: load_model(plan, home) for name, home in folders.items()},
        weights=train.weights,
    )
    mechanisms = {name: mechanism_of(plan.guard(name), schedule) for name in run.parties}
    return tape.recording(schedule, plan.objective, plan.echo, mechanisms, truth, plan.models)


def _logged(state: Path) -> Iterator[tuple[str, FromParty]]:
    """All messages the server acted on, in order."""
    if not (state / "journal").is_file():
        raise DataError(f"there is no log {str(state / 'journal')!r}; run `fdml simulate` first")
    for number, raw in enumerate(Journal(FolderDisk(state), "journal").replay(), 1):
        record = Record.FromString(raw)
        if record.number != number or not record.message:
            raise DataError(
                f"the server's log begins anew at message {record.number}: what came before it was folded into a "
                f"snapshot and is gone; audit a run of fewer rows or epochs, whose log stays below 256 MB"
            )
        yield record.sender, decode_from_party(record.message)


def _shown(
    privacy: PrivacySettings, labels: NDArray[np.float64], classes: int, key: Callable[[], NoiseKey]
) -> NDArray[np.float64]:
    """What training used: private labels are randomised once, unless that is switched off."""
    if privacy.labels == "shared" or privacy.label_epsilon == "off":
        return labels
    return randomised(labels, classes, privacy.label_epsilon, key())


def record_in_process(
    plan: Plan,
    sample: RowSet,
    held_out: RowSet | None = None,
    *,
    task: Task = "binary",
    privacy: PrivacySettings | None = None,
) -> Recording:
    """Train all parties of a plan in turn, in this thread, and record all that they send.

    Held-out rows are predicted after every epoch, where there are some.
    """
    parties = tuple(plan.models)
    run = RunSettings(
        parties=parties,
        label_party=plan.label_party,
        task=task,
        loss=plan.loss,
        training=plan.training,
        privacy=privacy or PrivacySettings(),
    )
    shown = _shown(run.privacy, sample.labels, plan.classes, lambda: seeded_key(plan.training.seed, plan.label_party))
    tape = MessageLog(run, any_masks(_SECRET, parties))
    schedule = plan.schedule(len(sample))
    stage = _Stage(plan, run, RowSet(sample.parts, shown, sample.weights), held_out, tape)
    stage.play()
    truth = GroundTruth(
        features=sample.parts,
        labels=sample.labels,
        shown_labels=shown,
        held_out={} if held_out is None else held_out.parts,
        held_out_labels=np.zeros(0) if held_out is None else held_out.labels,
        models={
            name: plan.model(name, width(sample.parts[name]), state=worker.parameters())
            for name, worker in stage.workers.items()
        },
        weights=sample.weights,
    )
    mechanisms = {name: mechanism_of(plan.guard(name), schedule) for name in parties}
    return tape.recording(schedule, plan.objective, plan.echo, mechanisms, truth, plan.models)


class _Stage:
    """Server and parties of a run, which take turns."""

    def __init__(self, plan: Plan, run: RunSettings, sample: RowSet, held_out: RowSet | None, tape: MessageLog) -> None:
        self._held_out = held_out
        self._tape = tape
        self._schedule = plan.schedule(len(sample))
        private, blind = run.privacy.labels == "private", run.privacy.server == "blind"
        lead = run.label_party if private else None
        self._coordinator = Coordinator(
            run.parties, self._schedule, plan.objective.width, plan.training.staleness, blind=blind, gradient_party=lead
        )
        self._inbox: dict[str, deque[Total | Gradient]] = {name: deque() for name in run.parties}
        self._end = self._schedule.steps
        self.workers: dict[str, Worker] = {}
        self._guards: dict[str, Guard] = {}
        for number, name in enumerate(run.parties, 1):
            key = seeded_key(plan.training.seed, name)
            masks = Masks(_SECRET, run.parties, name, number)
            guard = guard_for(plan.guard(name), self._schedule, key, masks=masks, blind=blind)
            self._guards[name] = guard
            self.workers[name] = build_worker(
                plan,
                sample,
                name,
                guard,
                held_out=None if held_out is None else held_out.parts[name],
                dp_sgd=dp_sgd_for(plan.guard(name), key),
                gradient_party=lead,
            )

    def play(self) -> None:
        """Let all train to their end."""
        for name, worker in self.workers.items():
            self._send(name, worker.first_messages())
        while not all(worker.finished for worker in self.workers.values()):
            moved = [self._advance(name, worker) for name, worker in self.workers.items()]
            if not any(moved):
                raise FdmlError(f"all parties wait at steps {[worker.step for worker in self.workers.values()]}: a bug")

    def _advance(self, name: str, worker: Worker) -> bool:
        """One step of one party; says whether anything moved."""
        if worker.finished:
            return False
        if not self._inbox[name]:
            stopped = worker.step >= self._end
            worker.stop_at(self._end)
            return stopped
        self._send(name, worker.learn(self._inbox[name].popleft()))
        self._coordinator.handle(name, Checkpointed(worker.step - 1))
        if worker.ended_epoch and self._held_out is not None:
            trial = self._guards[name].trial(worker.epoch, worker.predict_held_out())
            self._tape.take(name, trial)
        return True

    def _send(self, name: str, messages: Iterator[Push | Gradient | Stop]) -> None:
        for message in messages:
            self._tape.take(name, message)
            for reply in self._coordinator.handle(name, message):
                match reply.message:
                    case Total() | Gradient():
                        self._inbox[reply.to].append(reply.message)
                    case Stopped(_, step):
                        self._end = min(self._end, step)
