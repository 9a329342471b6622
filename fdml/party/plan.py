"""What a party trains and how: a run's plan, and one party's task in it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

from fdml.cluster.column_groups import grouped_learner
from fdml.cluster.column_job import ColumnSetup
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import ShardSetup
from fdml.cluster.sharding import sharded_learner
from fdml.data.row_set import RowSet
from fdml.data.rows import NativeFeatures, Rows, drop_unit_values, mean_entries, mean_square_norm, row_count, width
from fdml.models.calibration import IDENTITY, Calibration, calibrate
from fdml.models.collecting import CollectingLearner
from fdml.models.head.head import Head
from fdml.models.joint_model import joint_of
from fdml.models.kind import ModelSpec
from fdml.models.learner import LocalLearner
from fdml.models.learning_rate import LearningRate, RateInputs, starting_rate
from fdml.models.losses import Floats
from fdml.models.model import EpochModel, Model, State
from fdml.models.objective import Objective, objective_for
from fdml.models.registry import build_model, kind_named, resolved_model, with_native
from fdml.models.row_pointers import predict_rows
from fdml.party.denoising import denoise
from fdml.party.loop import Worker
from fdml.party.record_level import check_rate
from fdml.party.task import TrainingTask
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.guard import Guard
from fdml.protocol.absences import absences_of
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.fixed_point import grid_of
from fdml.protocol.frozen import FrozenEpochs
from fdml.protocol.schedule import Schedule, schedule_of
from fdml.settings import AgreedTraining, GuardSettings, ModelSettings, TrainingSettings
from fdml.settings.choices import PAIRWISE, LossName

NO_WORKERS = WorkersSettings()
"""Threads of this process."""


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
    parties: int | None = None
    """How many parties the run has; None if all train here."""
    others: tuple[str, ...] = ()
    """The names of the parties that train elsewhere."""
    order: tuple[str, ...] = ()
    """The names of all parties in the run's order; empty if all train here, in the order of `models`."""
    guards: Mapping[str, GuardSettings] = field(default_factory=dict)
    """Of the parties that protect what they release."""
    line: int = 0
    """The class of the run's slowest line."""
    new_parties: tuple[str, ...] = ()
    """Those that the version was trained without that the run goes on from."""

    def resolved(self, rows: int, parts: Mapping[str, Rows], private: Collection[str] = ()) -> Plan:
        """The plan over so many rows: nothing is left to a rule. A resolved plan stays as it is.

        `parts` are the training rows of the parties that train here. `private` parties have noise in their training,
        whatever `guards` says: nothing follows from their features.
        """

        def model_of(party: str, model: ModelSettings) -> ModelSettings:
            hidden = party in private or self.guard(party).training is not None
            looked_at = model.l2 == "auto" and party in parts and not hidden
            entries = mean_entries(_stepped_rows(model, parts[party])) if looked_at else 0.0
            joint = self.training.joint
            return resolved_model(model, rows, entries, private=hidden, vectors=joint == "fm", summed=joint == "sum")

        models = {party: model_of(party, model) for party, model in self.models.items()}
        return replace(self, training=self.agreed(rows), models=models)

    def with_native(self, party: str, found: NativeFeatures) -> Plan:
        """The plan in which a party's model knows which of its features are as trees want them."""
        return replace(self, models={**self.models, party: with_native(self.models[party], found)})

    def agreed(self, rows: int) -> AgreedTraining:
        """The settings of the training over so many rows."""
        if isinstance(self.training, AgreedTraining):
            return self.training
        return agreed_training(self.training, rows, self.party_count, self.line)

    def guard(self, party: str) -> GuardSettings:
        """How a party protects what it releases."""
        return self.guards.get(party, GuardSettings())

    @property
    def objective(self) -> Objective:
        """What training lowers; a joint function that learns is a new one each time."""
        return objective_for(self.loss, self.classes, self.training, seed=self.training.seed)

    @property
    def party_count(self) -> int:
        """How many parties the run has."""
        return len(self.models) if self.parties is None else self.parties

    @property
    def echo(self) -> float:
        """How much the others are assumed to move as a party itself moves."""
        return float(self.party_count) if self.training.echo is None else self.training.echo

    def model(
        self,
        party: str,
        inputs: int,
        dp_sgd: DpSgd | None = None,
        *,
        state: State | None = None,
        objective: Objective | None = None,
        rows: int | None = None,
    ) -> Model:
        """A party's model before training, or as it was when it gave `state`; `rows` are how many it trains on.

        Where parties begin alone, each needs a bias of its own. A joint function that learns is that of `objective`.
        """
        model = build_model(self.models[party], self.spec(party, inputs, dp_sgd, objective=objective, rows=rows))
        if state is not None:
            model.restore(state)
        return model

    def spec(
        self,
        party: str,
        inputs: int,
        dp_sgd: DpSgd | None = None,
        *,
        objective: Objective | None = None,
        rows: int | None = None,
    ) -> ModelSpec:
        """What a party's model is built for."""
        objective = objective or self.objective
        spec = ModelSpec(
            inputs=inputs,
            width=objective.width,
            bias=party == self.label_party or self.training.exchanges is not None,
            key=(self.training.seed, "model", party),
            dp_sgd=dp_sgd,
            joint=objective.joint,
            passes=_passes_of(self.training),
        )
        return spec if rows is None else spec._replace(rows=rows)

    def schedule(self, rows: int) -> Schedule:
        """The schedule of a training over this number of rows."""
        return schedule_of(rows, self.agreed(rows))


def _stepped_rows(settings: ModelSettings, rows: Rows) -> Rows:
    """The features by which a model's step size goes."""
    return kind_named(settings.kind).stepped_rows(settings, rows)


def _passes_of(training: TrainingSettings) -> int:
    """How often a training goes over all rows."""
    epochs = training.epochs
    return ModelSpec._field_defaults["passes"] if epochs == "auto" else epochs * training.passes


def learner_of(
    settings: ModelSettings, model: Model, rows: Rows, *, held_out: Rows | None, threads: int
) -> LocalLearner:
    """A model with its rows bound, ready to learn from blocks or from all rows at once, as its kind does."""
    if kind_named(settings.kind).learns_from_all_rows:
        return CollectingLearner(cast(EpochModel, model), rows, held_out=held_out)
    return LocalLearner(model, rows, held_out=held_out, threads=threads)


def learner_in(
    plan: Plan,
    party: str,
    model: Model,
    rows: Rows,
    *,
    held_out: Rows | None,
    threads: int,
    workers: WorkersSettings = NO_WORKERS,
    dp_sgd: DpSgd | None = None,
) -> LocalLearner:
    """The learner of a party in a plan: in shards or in column groups where it has some."""
    settings = plan.models[party]
    if settings.shards == 1 and not settings.column_groups:
        return learner_of(settings, model, rows, held_out=held_out, threads=threads)
    spec = plan.spec(party, width(rows), dp_sgd, rows=row_count(rows))
    if settings.column_groups:
        columns = ColumnSetup(settings, spec, plan.loss, plan.classes)
        return grouped_learner(columns, model, rows, workers, party=party, held_out=held_out)
    setup = ShardSetup(settings, spec, plan.loss, plan.classes)
    return sharded_learner(setup, model, rows, workers, party=party, held_out=held_out, threads=threads)


def joint_score(models: Mapping[str, Model], parts: Mapping[str, Rows], objective: Objective) -> Floats:
    """The scores `(rows, scores)` that all parties' predictions of the same rows make by their joint function."""
    predictions = [
        predict_rows(model, parts[name], 0, row_count(parts[name])).astype("float64") for name, model in models.items()
    ]
    return replace(objective, joint=joint_of(models.values())).score(sum(predictions))  # type: ignore[arg-type]


def recalibrated(worker: Worker, loss: LossName, sample: RowSet) -> Calibration:
    """Scale and offset of the joint score where exchanges were few; to find them takes no further release.

    Under noise the parties have denoised each other's predictions already, and a fit to
    an uncertain estimate made it worse (docs/decisions/0010). Where this party's own are
    noisy, a fit to its exact ones would tell of what it never released.
    """
    estimate = worker.estimate()
    if estimate is None or estimate.variance > 0.0 or worker.ledger.mechanism.noise != "none":
        return IDENTITY
    return calibrate(loss, estimate.score, sample)


def training_task(
    plan: Plan,
    sample: RowSet,
    party: str,
    *,
    private: bool = False,
    watch_loss: bool = False,
    gradient_party: str | None = None,
    stop_after: int | None = None,
    objective: Objective | None = None,
) -> TrainingTask:
    """What one party of the plan trains for and how; `private` where noise in its training hides its rows."""
    plan = plan.resolved(len(sample), sample.parts, private=(party,) if private else ())
    training = plan.agreed(len(sample))
    schedule = schedule_of(len(sample), training)
    grid = grid_of(training.value_bits, training.max_prediction)
    rows, settings = sample.parts[party], plan.models[party]
    if private:
        check_rate(training, settings)
    stepped = _stepped_rows(settings, rows)
    start = starting_rate(
        training.learning_rate if settings.learning_rate is None else settings.learning_rate,
        settings,
        RateInputs(
            curvature=plan.objective.curvature,
            parties=plan.party_count,
            inputs=width(stepped),
            square_norm=mean_square_norm(stepped, sample.weights) + (party == plan.label_party),
            vectors=training.joint == "fm",
        ),
        kind_named(settings.kind).default_rate,
    )
    return TrainingTask(
        party=party,
        labels=sample.labels,
        weights=sample.weights,
        groups=sample.groups if plan.loss == PAIRWISE else None,
        schedule=schedule,
        objective=objective or plan.objective,
        rate=LearningRate(start, training.lr_decay, schedule.updates),
        echo=plan.echo,
        lookahead=training.lookahead,
        staleness=training.staleness,
        watch_loss=watch_loss,
        gradient_party=gradient_party,
        denoise=None if training.exchanges is None else partial(denoise, rows=None if private else stepped),
        others=plan.others or tuple(name for name in plan.models if name != party),
        others_limit=(plan.party_count - 1) * grid.largest_code(plan.party_count),
        stop_after=stop_after,
        absences=absences_of(
            schedule,
            plan.order or tuple(plan.models),
            plan.label_party,
            even_echo=kind_named(settings.kind).learns_from_all_rows,
        ),
        frozen=FrozenEpochs(training.frozen_epochs, plan.party_count, plan.new_parties),
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
    stop_after: int | None = None,
    workers: WorkersSettings = NO_WORKERS,
) -> Worker:
    """One party ready to train: its model built, or continued from `start`, and its kernels compiled or loaded."""
    plan = plan.resolved(len(rows), rows.parts, private=(party,) if dp_sgd is not None else ())
    own = replace(rows, parts={party: drop_unit_values(rows.parts[party])})
    objective = plan.objective
    model = plan.model(party, width(own.parts[party]), dp_sgd, state=start, objective=objective, rows=len(rows))
    learner = learner_in(
        plan, party, model, own.parts[party], held_out=held_out, threads=threads, workers=workers, dp_sgd=dp_sgd
    )
    learner.warm_up(objective)
    if isinstance(objective.joint, Head):
        objective.joint.warm_up(objective.loss)
    task = training_task(
        plan,
        own,
        party,
        private=dp_sgd is not None,
        watch_loss=watch_loss,
        gradient_party=gradient_party,
        stop_after=stop_after,
        objective=objective,
    )
    return Worker(learner, task, guard)
