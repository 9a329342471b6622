"""What a party trains and how: a run's plan, and one party's task in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fdml.data.row_set import RowSet
from fdml.data.rows import Rows, drop_unit_values, mean_square_norm, width
from fdml.models.build import ModuleFactory, build_model
from fdml.models.calibration import IDENTITY, Calibration, calibrate
from fdml.models.compiled import Model, State
from fdml.models.kernels import empty_update
from fdml.models.learning_rate import LearningRate, starting_rate
from fdml.models.losses import Floats
from fdml.models.objective import Objective, objective_for
from fdml.party.loop import TrainingTask, Worker
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.guard import Guard
from fdml.protocol.schedule import Schedule, schedule_of
from fdml.settings import GuardSettings, LossName, ModelSettings, TrainingSettings


@dataclass(frozen=True)
class Plan:
    """Everything about a run but its data."""

    training: TrainingSettings
    models: Mapping[str, ModelSettings]
    """One per party that trains here, in the run's order."""
    label_party: str
    """It holds the bias of the sum, which more parties would only move faster."""
    loss: LossName
    classes: int
    """How many classes the labels have; 0 for a regression."""
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
    def objective(self) -> Objective:
        """What training lowers."""
        return objective_for(self.loss, self.classes)

    @property
    def party_count(self) -> int:
        """How many parties the run has."""
        return len(self.models) if self.parties is None else self.parties

    @property
    def echo(self) -> float:
        """How much the others are assumed to move as a party itself moves."""
        return float(self.party_count) if self.training.echo is None else self.training.echo

    def model(self, party: str, inputs: int, private: DpSgd | None = None) -> Model:
        """A party's model before training. Where parties begin alone, each needs a bias of its own."""
        return build_model(
            self.models[party],
            inputs,
            self.objective.width,
            bias=party == self.label_party or self.training.exchanges is not None,
            key=(self.training.seed, "model", party),
            module=self.modules.get(party),
            private=private,
        )

    def schedule(self, rows: int) -> Schedule:
        """The schedule over so many rows."""
        return schedule_of(rows, self.training)


def joint_score(models: Mapping[str, Model], parts: Mapping[str, Rows], objective: Objective) -> Floats:
    """The scores `(rows, scores)` that all parties' predictions of the same rows make."""
    predictions = [model.predict(parts[name]).astype("float64") for name, model in models.items()]
    return objective.score(sum(predictions))  # type: ignore[arg-type]


def recalibrated(worker: Worker, loss: LossName, sample: RowSet) -> Calibration:
    """How the joint score is to be read where exchanges were few; it takes no further release to find out.

    Under noise the parties have read each other with care already, and a fit to what
    they can only guess made it worse (docs/decisions/0010).
    """
    estimate = worker.estimate()
    if estimate is None or estimate[1] > 0.0:
        return IDENTITY
    return calibrate(loss, estimate[0], sample)


def warm_up(model: Model, rows: Rows, width: int) -> None:
    """Have the kernels compiled or loaded before anyone waits for them."""
    model.learn(rows, empty_update(width, model.dtype))
    model.predict(rows, 0, 0)


def training_task(
    plan: Plan,
    sample: RowSet,
    party: str,
    *,
    watch_loss: bool = False,
    gradient_party: str | None = None,
    held_out: Rows | None = None,
) -> TrainingTask:
    """What one party of the plan trains on and how."""
    schedule = plan.schedule(len(sample))
    objective, model = plan.objective, plan.models[party]
    rows, training = drop_unit_values(sample.parts[party]), plan.training
    start = starting_rate(
        training.learning_rate if model.learning_rate is None else model.learning_rate,
        model,
        curvature=objective.curvature,
        parties=plan.party_count,
        inputs=width(rows),
        square_norm=mean_square_norm(rows, sample.weights) + (party == plan.label_party),
    )
    rate = LearningRate(start, training.lr_decay, schedule.updates)
    return TrainingTask(
        party=party,
        rows=rows,
        labels=sample.labels,
        weights=sample.weights,
        schedule=schedule,
        objective=objective,
        rate=rate,
        echo=plan.echo,
        lookahead=training.lookahead if training.exchanges is None else 0,
        staleness=training.staleness,
        watch_loss=watch_loss,
        gradient_party=gradient_party,
        held_out=held_out,
    )


def build_worker(
    plan: Plan,
    rows: RowSet,
    party: str,
    guard: Guard,
    *,
    held_out: Rows | None = None,
    dp_sgd: DpSgd | None = None,
    threads: int = 1,
    watch_loss: bool = False,
    gradient_party: str | None = None,
    start: State | None = None,
) -> Worker:
    """One party ready to train: its model built, or continued from `start`, and its kernels compiled or loaded."""
    task = training_task(plan, rows, party, watch_loss=watch_loss, gradient_party=gradient_party, held_out=held_out)
    model = plan.model(party, width(rows.parts[party]), dp_sgd)
    if start is not None:
        model.restore(start)
    warm_up(model, task.rows, plan.objective.width)
    if held_out is not None:
        model.predict(held_out, 0, 0)
    return Worker(model, task, guard, threads)
