"""Recordings: of a finished run of processes on this machine, or of a run made in this process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fdml.align.randomise import randomised
from fdml.audit.recording import Recording, Truth
from fdml.audit.tape import Tape, any_masks
from fdml.data.disk import FolderDisk
from fdml.data.journal import Journal
from fdml.data.rows import width
from fdml.errors import AlignmentError, DataError, FdmlError
from fdml.exchange.messages import FromParty, Gradient, Kept, Push, Stop, Stopped, Total
from fdml.exchange.wire import decode_from_party
from fdml.exchange.wire_pb2 import Record
from fdml.party.loop import Worker
from fdml.party.models import Model
from fdml.privacy.guard import Guard
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.run.aligning import Aligned, Aligner
from fdml.run.guarding import guard_for, mechanism_of, seeded_key, steps_for, stored_key
from fdml.run.labels import learn_code
from fdml.run.problem import Sample, mean_one
from fdml.run.simulate import Plan, homework_for, warm_up
from fdml.run.store import read_archive
from fdml.server.coordinator import Coordinator
from fdml.settings import PartySettings, PrivacySettings, RunSettings, Task, loss_for, read_party, read_run

_SECRET = bytes(32)
"""Masks of a run in one process hide nothing from the one who runs it."""


@dataclass(frozen=True)
class _Home:
    """One party of a finished run, as its folder tells."""

    folder: Path
    settings: PartySettings
    aligned: Aligned


def read_recording(run_toml: Path) -> Recording:
    """The recording of a finished run whose parties all have their folders beside its run.toml."""
    run = read_run(run_toml)
    messages = list(_logged(run_toml.parent / "server" / "state"))
    homes = {home.settings.party: home for home in _homes(run_toml, run)}
    lead = homes[run.label_party]
    tape = Tape(run, any_masks(lead.aligned.found.key.derive("masks"), run.parties))
    for sender, message in messages:
        tape.take(sender, message)
    (labels, held_out), (weights, _) = lead.aligned.labels(), lead.aligned.weights()
    code = learn_code(run.task, labels, weights)
    plan = Plan(
        run.training,
        {name: home.settings.model for name, home in homes.items()},
        run.label_party,
        loss_for(run.task, run.loss),
        code.outputs,
        guards={name: home.settings.guard for name, home in homes.items()},
    )
    numbers, schedule = code.numbers(labels), plan.schedule(len(labels))
    disk = FolderDisk(lead.folder / "state")
    shown = _shown(run.privacy, numbers, code.outputs, lambda: stored_key(disk))
    truth = Truth(
        features={name: home.aligned.train for name, home in homes.items()},
        labels=numbers,
        shown_labels=shown,
        held_out={name: home.aligned.held_out for name, home in homes.items()},
        held_out_labels=code.numbers(held_out),
        models={name: _model(plan, home) for name, home in homes.items()},
        weights=mean_one(weights, len(numbers)),
    )
    mechanisms = {name: mechanism_of(plan.guard(name), schedule) for name in run.parties}
    return tape.recording(schedule, code.outputs, plan.echo, mechanisms, truth, plan.models)


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


def _homes(run_toml: Path, run: RunSettings) -> Iterator[_Home]:
    for name in run.parties:
        folder = run_toml.parent / name
        settings = read_party(folder / "party.toml")
        if settings.party != name:
            raise DataError(f"{folder / 'party.toml'} is of party {settings.party!r}; it should be of {name!r}")
        yield _Home(folder, settings, _aligned(Aligner(folder, settings, run, lambda _: None), name))


def _aligned(aligner: Aligner, name: str) -> Aligned:
    found = aligner._stored()
    if found is None:
        raise AlignmentError(f"party {name!r} has not aligned its rows; run `fdml simulate` first")
    return aligner._opened(found)


def _model(plan: Plan, home: _Home) -> Model:
    name = home.settings.party
    path = home.folder / "model.npz"
    if not path.is_file():
        raise DataError(f"party {name!r} has not finished: there is no {str(path)!r}; let the run end first")
    model = plan.model(name, width(home.aligned.train))
    model.restore(read_archive(path)[1][name])
    return model


def _shown(
    privacy: PrivacySettings, labels: NDArray[np.float64], outputs: int, key: Callable[[], NoiseKey]
) -> NDArray[np.float64]:
    """What training used: private labels are randomised once, unless that is switched off."""
    if privacy.labels == "shared" or privacy.label_epsilon == "off":
        return labels
    return randomised(labels, max(outputs, 2), privacy.label_epsilon, key())


def record_in_process(
    plan: Plan,
    sample: Sample,
    held_out: Sample | None = None,
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
    shown = _shown(run.privacy, sample.labels, plan.outputs, lambda: seeded_key(plan.training.seed, plan.label_party))
    tape = Tape(run, any_masks(_SECRET, parties))
    schedule = plan.schedule(len(sample))
    stage = _Stage(plan, run, Sample(sample.parts, shown, sample.weights), held_out, tape)
    stage.play()
    truth = Truth(
        features=sample.parts,
        labels=sample.labels,
        shown_labels=shown,
        held_out={} if held_out is None else held_out.parts,
        held_out_labels=np.zeros(0) if held_out is None else held_out.labels,
        models={name: worker.model for name, worker in stage.workers.items()},
        weights=sample.weights,
    )
    mechanisms = {name: mechanism_of(plan.guard(name), schedule) for name in parties}
    return tape.recording(schedule, plan.outputs, plan.echo, mechanisms, truth, plan.models)


class _Stage:
    """Server and parties of a run, which take turns."""

    def __init__(self, plan: Plan, run: RunSettings, sample: Sample, held_out: Sample | None, tape: Tape) -> None:
        self._held_out = held_out
        self._tape = tape
        self._schedule = plan.schedule(len(sample))
        private, blind = run.privacy.labels == "private", run.privacy.server == "blind"
        lead = run.label_party if private else None
        self._coordinator = Coordinator(
            run.parties, self._schedule, plan.outputs, plan.training.staleness, blind=blind, lead=lead
        )
        self._inbox: dict[str, deque[Total | Gradient]] = {name: deque() for name in run.parties}
        self._end = self._schedule.steps
        self.workers: dict[str, Worker] = {}
        self._guards: dict[str, Guard] = {}
        for number, name in enumerate(run.parties, 1):
            key = seeded_key(plan.training.seed, name)
            masks = Masks(_SECRET, run.parties, name, number)
            guard = guard_for(plan.guard(name), self._schedule, key, masks=masks, blind=blind)
            model = plan.model(name, width(sample.parts[name]), steps_for(plan.guard(name), key))
            warm_up(model, sample.parts[name], plan.outputs)
            self._guards[name] = guard
            self.workers[name] = Worker(model, homework_for(plan, sample, name, lead=lead), guard)

    def play(self) -> None:
        """Let all train to their end."""
        for name, worker in self.workers.items():
            self._send(name, worker.opening())
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
            worker.end_at(self._end)
            return stopped
        self._send(name, worker.learn(self._inbox[name].popleft()))
        self._coordinator.handle(name, Kept(worker.step - 1))
        if worker.ended_epoch and self._held_out is not None:
            trial = self._guards[name].trial(worker.epoch, worker.model.predict(self._held_out.parts[name]))
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
