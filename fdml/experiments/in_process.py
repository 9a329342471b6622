"""A whole run in this process: the server's session, and every party's session as a thread or in turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from fdml.data.row_set import RowSet
from fdml.data.rows import Rows, width
from fdml.errors import FdmlError, PartyFailed
from fdml.events import Convergence, EpochChosen, EpochDone, Evaluated, Event, Joined, Listener, StepDone
from fdml.experiments.in_memory import DIGEST, NothingStored, members_of, run_of
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.losses import Floats
from fdml.models.model import Model, State
from fdml.models.objective import Objective
from fdml.party.checkpoint import SavedState
from fdml.party.driver import SessionDriver, run_session
from fdml.party.effects import PartyResult, WriteBundle
from fdml.party.loop import Worker
from fdml.party.plan import Plan, joint_score
from fdml.party.session import PartySession
from fdml.privacy.ledger import Ledger
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.coordinator import Coordinator
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import PrivacySettings, RunSettings, run_hash
from fdml.storage.memory import MemoryDisk
from fdml.transport.in_process import InProcessServer, Tap

OnLoss = Callable[[int, float], None]
"""Called with an epoch, counted from 1, and its mean training loss."""


@dataclass(frozen=True)
class EpochSnapshot:
    """All parties at the end of an epoch."""

    epoch: int
    seconds: float
    """Of training, up to the last party's end of the epoch."""
    states: Mapping[str, State]


@dataclass(frozen=True)
class TrainingResult:
    """What a run leaves behind."""

    models: Mapping[str, Model]
    snapshots: list[EpochSnapshot]
    lags: Mapping[str, list[int]]
    """For every party the true lag of each total it used, step by step."""
    coordinator: Coordinator
    objective: Objective
    calibration: Calibration = IDENTITY
    """How the sum of the last models' predictions is to be read."""
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    """What each party has released."""
    evaluations: Mapping[int, Evaluated] = field(default_factory=dict)
    """By epoch, what the label party found on the held-out rows."""
    best_epoch: int | None = None
    """The epoch whose models these are, where held-out rows have chosen it; None: the last."""
    convergence: Convergence | None = None
    """Whether training has converged; None where there are no held-out rows or too few epochs to tell."""

    def score(self, parts: Mapping[str, Rows]) -> Floats:
        """The sum of all parties' predictions, calibrated."""
        return self.calibration.apply(joint_score(self.models, parts, self.objective))


def train_in_process(
    plan: Plan,
    rows: RowSet,
    *,
    held_out: RowSet | None = None,
    start: Mapping[str, State] | None = None,
    privacy: PrivacySettings | None = None,
    keep_epochs: bool = False,
    in_turns: bool = False,
    on_loss: OnLoss | None = None,
    noise_seed: int | None = None,
    stop_after: int | None = None,
    on_event: Listener = lambda _: None,
    tap: Tap = lambda _, __: None,
) -> TrainingResult:
    """Train all parties of a plan together, over the same sessions as processes do.

    `start` continues from saved states. With `held_out` rows every epoch is
    evaluated. Parties are threads, or with `in_turns` take turns in this thread,
    which makes any run repeatable. `noise_seed` draws other noise for the same
    orders and starting parameters than the plan's seed does. `stop_after` epochs
    without a lower held-out loss end the training, and the models are those of the
    epoch in which it was lowest. `on_loss` is called with every epoch and the mean
    training loss of its totals as they were received. `tap` sees every message to
    the server.
    """
    plan = plan.resolved(len(rows), rows.parts)
    run = run_of(plan, privacy, stop_after)
    members = members_of(plan, run, rows, held_out, start or {}, noise_seed, watch_loss=on_loss is not None)
    server = _server(run, tap)
    recorder = _Recorder(list(members), keep_epochs=keep_epochs, on_event=on_event)
    if on_loss is not None:
        recorder.watch(plan.label_party, on_loss)
    sessions = {name: PartySession(member, SavedState(), time.monotonic) for name, member in members.items()}
    recorder.sessions = sessions
    if in_turns:
        _run_in_turns(server, sessions, recorder)
    else:
        _run_in_threads(server, sessions, recorder)
    return _result(plan, rows, server, sessions, recorder)


def _result(
    plan: Plan, rows: RowSet, server: InProcessServer, sessions: Mapping[str, PartySession], recorder: _Recorder
) -> TrainingResult:
    workers = {name: _worker_of(session) for name, session in sessions.items()}
    coordinator = server.session.state.coordinator
    if coordinator is None:
        raise FdmlError("the run has ended without training")
    return TrainingResult(
        models={
            name: plan.model(name, width(rows.parts[name]), state=each.parameters()) for name, each in workers.items()
        },
        objective=plan.objective,
        snapshots=recorder.snapshots,
        lags=recorder.lags,
        coordinator=coordinator,
        calibration=recorder.calibration,
        ledgers={name: worker.ledger for name, worker in workers.items()},
        evaluations=recorder.evaluations,
        best_epoch=recorder.best_epoch,
        convergence=recorder.convergence,
    )


def _server(run: RunSettings, tap: Tap) -> InProcessServer:
    definition = RunDefinition(run, run_hash(run))
    bulletin = BulletinStore(run.parties, run.align, MemoryDisk())
    alignment = AlignmentPhase(bulletin, run.parties, definition.run_hash, time.monotonic, digest=DIGEST)
    session = ServerSession(RunState(definition), alignment, run, time.monotonic)
    return InProcessServer(session, definition.run_hash, run.training.peer_timeout_seconds, tap=tap)


def _worker_of(session: PartySession) -> Worker:
    if session.worker is None:
        raise FdmlError("a party has ended without training")
    return session.worker


def _run_in_threads(server: InProcessServer, sessions: Mapping[str, PartySession], recorder: _Recorder) -> None:
    """Run all parties to their end; the error that stopped the first of them is raised."""

    def run_party(name: str) -> None:
        finished = False
        channel = server.channel(name)
        try:
            run_session(sessions[name], channel, recorder, recorder.listen)
            finished = True
        finally:
            if not finished:
                server.fail(name)

    with ThreadPoolExecutor(len(sessions), thread_name_prefix="party") as pool:
        futures = [pool.submit(run_party, name) for name in sessions]
        try:
            wait(futures)
        except KeyboardInterrupt:
            server.fail("the user's")
            raise
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, PartyFailed)), errors[0])


def _run_in_turns(server: InProcessServer, sessions: Mapping[str, PartySession], recorder: _Recorder) -> None:
    drivers: list[SessionDriver[PartyResult]] = [
        SessionDriver(session.run(), session, server.channel(name), recorder, recorder.listen)
        for name, session in sessions.items()
    ]
    while not all(driver.has_ended for driver in drivers):
        ready = [driver for driver in drivers if not driver.has_ended and driver.is_ready]
        if not ready:
            raise FdmlError("all parties wait for each other: a bug of fdml; please report it")
        for driver in ready:
            driver.advance()


class _Recorder(NothingStored):
    """Listens to all parties: keeps lags, evaluations, and the models as they were at the end of each epoch."""

    def __init__(self, parties: list[str], *, keep_epochs: bool, on_event: Listener) -> None:
        self.sessions: Mapping[str, PartySession] = {}
        self.lags: dict[str, list[int]] = {name: [] for name in parties}
        self.snapshots: list[EpochSnapshot] = []
        self.evaluations: dict[int, Evaluated] = {}
        self._watched: tuple[str, OnLoss] | None = None
        self.calibration: Calibration = IDENTITY
        self.best_epoch: int | None = None
        self.convergence: Convergence | None = None
        self._keep = keep_epochs
        self._on_event = on_event
        self._states: dict[int, dict[str, State]] = {}
        self._started = time.perf_counter()
        self._lock = threading.Lock()

    def watch(self, party: str, on_loss: OnLoss) -> None:
        """Tell of the training loss of every epoch, which this party keeps."""
        self._watched = (party, on_loss)

    def write_bundle(self, bundle: WriteBundle) -> None:
        """Keep the label party's calibration; the models stay where they are."""
        if bundle.calibration is not IDENTITY:
            self.calibration = bundle.calibration

    def listen(self, event: Event) -> None:
        """Called in the party's own thread."""
        match event:
            case Joined():  # its kernels are compiled or loaded
                self._started = time.perf_counter()
            case StepDone(party, _, lag):
                self.lags[party].append(lag)
            case EpochDone(party, epoch):
                if self._watched is not None and party == self._watched[0]:
                    self._watched[1](epoch, _worker_of(self.sessions[party]).mean_loss)
                if self._keep:
                    self._keep_epoch(party, epoch)
            case Evaluated(epoch=epoch):
                self.evaluations[epoch] = event
            case EpochChosen(epoch=epoch):
                self.best_epoch = epoch
            case Convergence():
                self.convergence = event
        self._on_event(event)

    def _keep_epoch(self, party: str, epoch: int) -> None:
        state = _worker_of(self.sessions[party]).parameters()
        with self._lock:
            states = self._states.setdefault(epoch, {})
            states[party] = state
            if len(states) == len(self.sessions):
                self.snapshots.append(
                    EpochSnapshot(epoch, time.perf_counter() - self._started, self._states.pop(epoch))
                )
