"""A whole run in this process: a coordinator, and every party as a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from fdml.data.row_set import RowSet
from fdml.data.rows import Rows, width
from fdml.errors import PartyFailed
from fdml.events import EpochDone, Event, Listener, StepDone
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.losses import Floats
from fdml.models.model import Model, State
from fdml.models.objective import Objective
from fdml.party.loop import Worker, train
from fdml.party.plan import Plan, build_worker, joint_score, recalibrated
from fdml.privacy.build_guard import dp_sgd_for, guard_for, seeded_key
from fdml.privacy.ledger import Ledger
from fdml.protocol.fixed_point import FIXED_POINTS
from fdml.server.coordinator import Coordinator
from fdml.transport.in_process import InProcessExchange


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

    def score(self, parts: Mapping[str, Rows]) -> Floats:
        """The joint score of rows, as it is to be read."""
        return self.calibration.apply(joint_score(self.models, parts, self.objective))


def simulate(
    plan: Plan,
    sample: RowSet,
    *,
    start: Mapping[str, State] | None = None,
    keep_epochs: bool = False,
    listener: Listener | None = None,
) -> TrainingResult:
    """Train all parties together; `start` continues from saved states.

    Kernels are compiled or loaded before the clock starts.
    """
    names = list(plan.models)
    schedule = plan.schedule(len(sample))
    grid = FIXED_POINTS[plan.training.value_bits]
    workers = {name: _worker(plan, sample, name, (start or {}).get(name)) for name in names}
    coordinator = Coordinator(names, schedule, plan.objective.width, plan.training.staleness, grid=grid)
    exchange = InProcessExchange(names, coordinator.handle, coordinator.waits_for, plan.training.peer_timeout_seconds)
    recorder = _Recorder(workers, keep_epochs=keep_epochs, listener=listener)

    def take_part(name: str) -> None:
        finished = False
        try:
            train(workers[name], exchange.channel(name), recorder.hear, keep=lambda worker: worker.step - 1)
            finished = True
        finally:
            if not finished:
                exchange.fail(name)

    _run_together(names, take_part, exchange)
    leader = workers.get(plan.label_party)
    return TrainingResult(
        {
            name: plan.model(name, width(sample.parts[name]), state=worker.parameters())
            for name, worker in workers.items()
        },
        recorder.snapshots,
        recorder.lags,
        coordinator,
        plan.objective,
        IDENTITY if leader is None else recalibrated(leader, plan.loss, sample),
        {name: worker.ledger for name, worker in workers.items()},
    )


def _worker(plan: Plan, sample: RowSet, name: str, start: State | None) -> Worker:
    key, grid = seeded_key(plan.training.seed, name), FIXED_POINTS[plan.training.value_bits]
    guard = guard_for(plan.guard(name), plan.schedule(len(sample)), key, grid=grid, parties=plan.party_count)
    return build_worker(plan, sample, name, guard, dp_sgd=dp_sgd_for(plan.guard(name), key), start=start)


def _run_together(parties: list[str], take_part: Callable[[str], None], exchange: InProcessExchange) -> None:
    """Run all parties to their end; the error that stopped the first of them is raised."""
    with ThreadPoolExecutor(len(parties), thread_name_prefix="party") as pool:
        futures = [pool.submit(take_part, name) for name in parties]
        try:
            wait(futures)
        except KeyboardInterrupt:
            exchange.fail("the user's")
            raise
    errors = [error for future in futures if (error := future.exception()) is not None]
    if errors:
        raise next((error for error in errors if not isinstance(error, PartyFailed)), errors[0])


class _Recorder:
    """Listens to all parties: keeps lags, and the models as they were at the end of each epoch."""

    def __init__(self, workers: Mapping[str, Worker], *, keep_epochs: bool, listener: Listener | None) -> None:
        self._workers = workers
        self._keep = keep_epochs
        self._listener = listener
        self._states: dict[int, dict[str, State]] = {}
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self.lags: dict[str, list[int]] = {name: [] for name in workers}
        self.snapshots: list[EpochSnapshot] = []

    def hear(self, event: Event) -> None:
        """Called in the party's own thread."""
        match event:
            case StepDone(party, _, lag):
                self.lags[party].append(lag)
            case EpochDone(party, epoch) if self._keep:
                self._keep_epoch(party, epoch)
        if self._listener is not None:
            self._listener(event)

    def _keep_epoch(self, party: str, epoch: int) -> None:
        state = self._workers[party].parameters()
        with self._lock:
            states = self._states.setdefault(epoch, {})
            states[party] = state
            if len(states) == len(self._workers):
                seconds = time.perf_counter() - self._started
                self.snapshots.append(EpochSnapshot(epoch, seconds, self._states.pop(epoch)))
