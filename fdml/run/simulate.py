"""A whole run in this process: a coordinator, and every party as a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from fdml.data.rows import Rows, lightened, mean_square_norm, width
from fdml.data.schedule import Schedule, schedule_of
from fdml.errors import PartyFailed
from fdml.exchange.fixed_point import GRIDS
from fdml.exchange.in_process import InProcessExchange
from fdml.party.build import ModuleFactory, build_model
from fdml.party.kernels import no_lesson
from fdml.party.loop import Homework, Worker, train
from fdml.party.losses import LOSSES, Floats
from fdml.party.models import Model, State
from fdml.party.private_steps import PrivateSteps
from fdml.party.rates import Rate, starting_rate
from fdml.privacy.ledger import Ledger
from fdml.run.calibration import AS_IT_IS, Calibration, calibrate
from fdml.run.guarding import guard_for, seeded_key, steps_for
from fdml.run.problem import Sample
from fdml.server.coordinator import Coordinator
from fdml.settings import GuardSettings, Loss, ModelSettings, TrainingSettings
from fdml.watch.events import EpochDone, Event, Listener, StepDone


@dataclass(frozen=True)
class Plan:
    """Everything about a run but its data."""

    training: TrainingSettings
    models: Mapping[str, ModelSettings]
    """One per party that trains here, in the run's order."""
    label_party: str
    """It holds the bias of the sum, which more parties would only move faster."""
    loss: Loss
    outputs: int
    modules: Mapping[str, ModuleFactory] = field(default_factory=dict)
    """Makers of torch modules, for parties that are not named them in their settings."""

    parties: int | None = None
    """How many parties the run has; None if all train here."""
    guards: Mapping[str, GuardSettings] = field(default_factory=dict)
    """Of the parties that protect what they release."""

    def guard(self, party: str) -> GuardSettings:
        """How a party protects what it releases."""
        return self.guards.get(party, GuardSettings())

    @property
    def party_count(self) -> int:
        """How many parties the run has."""
        return len(self.models) if self.parties is None else self.parties

    @property
    def echo(self) -> float:
        """How much the others are assumed to move as a party itself moves."""
        return float(self.party_count) if self.training.echo is None else self.training.echo

    def model(self, party: str, inputs: int, private: PrivateSteps | None = None) -> Model:
        """A party's model before training. Where parties begin alone, each needs a bias of its own."""
        return build_model(
            self.models[party],
            inputs,
            self.outputs,
            bias=party == self.label_party or self.training.exchanges is not None,
            key=(self.training.seed, "model", party),
            module=self.modules.get(party),
            private=private,
        )

    def schedule(self, rows: int) -> Schedule:
        """The schedule over so many rows."""
        return schedule_of(rows, self.training)


@dataclass(frozen=True)
class Snapshot:
    """All parties at the end of an epoch."""

    epoch: int
    seconds: float
    """Of training, up to the last party's end of the epoch."""
    states: Mapping[str, State]


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind."""

    models: Mapping[str, Model]
    snapshots: list[Snapshot]
    lags: Mapping[str, list[int]]
    """For every party the true lag of each total it used, step by step."""
    coordinator: Coordinator
    calibration: Calibration = AS_IT_IS
    """How the sum of the last models' predictions is to be read."""
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    """What each party has released."""

    def score(self, parts: Mapping[str, Rows]) -> Floats:
        """The sum of all parties' predictions, as it is to be read."""
        return self.calibration.apply(joint_score(self.models, parts))


def joint_score(models: Mapping[str, Model], parts: Mapping[str, Rows]) -> Floats:
    """The sum of all parties' predictions of the same rows, `(rows, outputs)`."""
    return sum(model.predict(parts[name]).astype("float64") for name, model in models.items())  # type: ignore[return-value]


def simulate(
    plan: Plan,
    sample: Sample,
    *,
    start: Mapping[str, State] | None = None,
    keep_epochs: bool = False,
    listener: Listener | None = None,
) -> Outcome:
    """Train all parties together; `start` continues from saved states.

    Kernels are compiled or loaded before the clock starts.
    """
    keys = {name: seeded_key(plan.training.seed, name) for name in plan.models}
    models = {
        name: plan.model(name, width(sample.parts[name]), steps_for(plan.guard(name), keys[name]))
        for name in plan.models
    }
    for name, state in (start or {}).items():
        models[name].restore(state)
    schedule = plan.schedule(len(sample))
    grid = GRIDS[plan.training.value_bits]
    coordinator = Coordinator(list(models), schedule, plan.outputs, plan.training.staleness, grid=grid)
    exchange = InProcessExchange(list(models), coordinator.handle, coordinator.waits_for, plan.training.patience)
    homework = {name: homework_for(plan, sample, name) for name in models}
    for name, model in models.items():
        warm_up(model, homework[name].rows, plan.outputs)
    recorder = _Recorder(models, keep_epochs=keep_epochs, listener=listener)
    workers: dict[str, Worker] = {}

    def take_part(name: str) -> None:
        finished = False
        try:
            guard = guard_for(plan.guard(name), schedule, keys[name], grid=grid, parties=plan.party_count)
            worker = workers[name] = Worker(models[name], homework[name], guard)
            train(worker, exchange.channel(name), recorder.hear, keep=lambda worker: worker.step - 1)
            finished = True
        finally:
            if not finished:
                exchange.fail(name)

    _run_together(list(models), take_part, exchange)
    leader = workers.get(plan.label_party)
    calibration = AS_IT_IS if leader is None else recalibrated(leader, plan.loss, sample)
    ledgers = {name: worker.ledger for name, worker in workers.items()}
    return Outcome(models, recorder.snapshots, recorder.lags, coordinator, calibration, ledgers)


def recalibrated(worker: Worker, loss: Loss, sample: Sample) -> Calibration:
    """How the joint score is to be read where exchanges were few; it takes no further release to find out.

    Under noise the parties have read each other with care already, and a fit to what
    they can only guess made it worse (docs/decisions/0010).
    """
    estimate = worker.estimate()
    if estimate is None or estimate[1] > 0.0:
        return AS_IT_IS
    return calibrate(loss, estimate[0], sample)


def warm_up(model: Model, rows: Rows, outputs: int) -> None:
    """Have the kernels compiled or loaded before anyone waits for them."""
    model.learn(rows, no_lesson(outputs, model.dtype))
    model.predict(rows, 0, 0)


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


def homework_for(
    plan: Plan, sample: Sample, party: str, *, watch_loss: bool = False, lead: str | None = None
) -> Homework:
    """What one party of the plan trains on and how."""
    schedule = plan.schedule(len(sample))
    loss, model = LOSSES[plan.loss], plan.models[party]
    rows, training = lightened(sample.parts[party]), plan.training
    start = starting_rate(
        training.learning_rate if model.learning_rate is None else model.learning_rate,
        model,
        curvature=loss.curvature,
        parties=plan.party_count,
        inputs=width(rows),
        square_norm=mean_square_norm(rows, sample.weights) + (party == plan.label_party),
    )
    rate = Rate(start, training.decay, schedule.updates)
    return Homework(
        party,
        rows,
        sample.labels,
        sample.weights,
        schedule,
        loss,
        rate,
        plan.echo,
        training.lookahead if training.exchanges is None else 0,
        training.staleness,
        watch_loss,
        lead,
    )


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
        self.snapshots: list[Snapshot] = []

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
                self.snapshots.append(Snapshot(epoch, seconds, self._states.pop(epoch)))
