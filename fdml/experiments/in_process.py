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
from fdml.models.compiled import Model, State
from fdml.models.losses import Floats
from fdml.models.objective import Objective
from fdml.party.loop import Worker, train
from fdml.party.plan import Plan, joint_score, recalibrated, training_task, warm_up
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
    keys = {name: seeded_key(plan.training.seed, name) for name in plan.models}
    models = {
        name: plan.model(name, width(sample.parts[name]), dp_sgd_for(plan.guard(name), keys[name]))
        for name in plan.models
    }
    for name, state in (start or {}).items():
        models[name].restore(state)
    schedule = plan.schedule(len(sample))
    grid = FIXED_POINTS[plan.training.value_bits]
    coordinator = Coordinator(list(models), schedule, plan.objective.width, plan.training.staleness, grid=grid)
    exchange = InProcessExchange(
        list(models), coordinator.handle, coordinator.waits_for, plan.training.peer_timeout_seconds
    )
    task = {name: training_task(plan, sample, name) for name in models}
    for name, model in models.items():
        warm_up(model, task[name].rows, plan.objective.width)
    recorder = _Recorder(models, keep_epochs=keep_epochs, listener=listener)
    workers: dict[str, Worker] = {}

    def take_part(name: str) -> None:
        finished = False
        try:
            guard = guard_for(plan.guard(name), schedule, keys[name], grid=grid, parties=plan.party_count)
            worker = workers[name] = Worker(models[name], task[name], guard)
            train(worker, exchange.channel(name), recorder.hear, keep=lambda worker: worker.step - 1)
            finished = True
        finally:
            if not finished:
                exchange.fail(name)

    _run_together(list(models), take_part, exchange)
    leader = workers.get(plan.label_party)
    calibration = IDENTITY if leader is None else recalibrated(leader, plan.loss, sample)
    ledgers = {name: worker.ledger for name, worker in workers.items()}
    return TrainingResult(models, recorder.snapshots, recorder.lags, coordinator, plan.objective, calibration, ledgers)


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

    def __init__(self, models: Mapping[str, Model], *, keep_epochs: bool, listener: Listener | None) -> None:
        self._models = models
        self._keep = keep_epochs
        self._listener = listener
        self._states: dict[int, dict[str, State]] = {}
        self._started = time.perf_counter()
        self._lock = threading.Lock()
        self.lags: dict[str, list[int]] = {name: [] for name in models}
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
        state = self._models[party].state()
        with self._lock:
            states = self._states.setdefault(epoch, {})
            states[party] = state
            if len(states) == len(self._models):
                seconds = time.perf_counter() - self._started
                self.snapshots.append(EpochSnapshot(epoch, seconds, self._states.pop(epoch)))
