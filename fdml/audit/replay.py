"""A linear party's training as anyone can follow it who knows schedule, labels and what was pushed.

Given a guess of the party's features, its training can be run over again: the
others' parts of every score are known, and so are batches and step sizes. Only
the right features, up to a rotation, lead to the predictions that were pushed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fdml.audit.recording import Recording
from fdml.data.rows import width
from fdml.models.learning_rate import LearningRate
from fdml.models.objective import Objective
from fdml.protocol.schedule import Schedule, Visit

Values = NDArray[np.float64]


@dataclass(frozen=True)
class ReplayBatch:
    """One update: rows counted from the block's start, and its step size."""

    rows: NDArray[np.int64]
    rate: float


@dataclass(frozen=True)
class ObservedStep:
    """One step as the attacker knows it."""

    start: int
    stop: int
    others: Values
    """The other parties' part of the score."""
    then: Values
    """The target's own part as it was pushed."""
    pushed_after: int
    """How many steps had been learned from when that was."""
    batches: tuple[ReplayBatch, ...]


@dataclass(frozen=True)
class TrainingReplay:
    """All steps of one target. Equal replays have equal keys."""

    key: bytes
    rows: int = field(compare=False)
    features: int = field(compare=False)
    """How many the target has."""
    echo: float = field(compare=False)
    l2: float = field(compare=False)
    has_bias: bool = field(compare=False)
    variance: float = field(compare=False)
    """Of the noise on what was pushed."""
    alone: tuple[ReplayBatch, ...] = field(compare=False)
    """Updates before the first exchange, in which the target's own part is the whole score."""
    steps: tuple[ObservedStep, ...] = field(compare=False)
    labels: Values = field(compare=False)
    weights: Values = field(compare=False)
    objective: Objective = field(compare=False)

    def trajectory(self, features: Values) -> tuple[Values, Values]:
        """The weights `(steps + 1, features, width)` and biases before every step and at the end."""
        weights = np.zeros((len(self.steps) + 1, features.shape[1], self.objective.width))
        biases = np.zeros((len(self.steps) + 1, self.objective.width))
        nothing = np.zeros((self.rows, self.objective.width))
        self._learn(self.alone, features, nothing, 1.0, weights[0], biases[0], 0)
        for step, update in enumerate(self.steps):
            block = features[update.start : update.stop]
            then = update.then
            if self.variance:
                then = block @ weights[update.pushed_after] + biases[update.pushed_after]
            weights[step + 1], biases[step + 1] = weights[step], biases[step]
            known = update.others + (1.0 - self.echo) * then
            self._learn(update.batches, block, known, self.echo, weights[step + 1], biases[step + 1], update.start)
        return weights, biases

    def _learn(
        self,
        batches: tuple[ReplayBatch, ...],
        block: Values,
        known: Values,
        echo: float,
        weight: Values,
        bias: Values,
        start: int,
    ) -> None:
        """Update weight and bias in place, batch by batch."""
        for batch in batches:
            inputs, places = block[batch.rows], start + batch.rows
            score = known[batch.rows] + echo * (inputs @ weight + bias)
            share = self.weights[places] * (-batch.rate / len(batch.rows))
            moves = self.objective.gradient(score, self.labels[places]) * share[:, None]
            weight *= 1.0 - batch.rate * self.l2
            weight += inputs.T @ moves
            if self.has_bias:
                bias += moves.sum(axis=0)


def replay_of(recording: Recording, target: str, pushed: Mapping[int, Values], variance: float) -> TrainingReplay:
    """What an attacker knows of a target's training who has its predictions as `pushed`."""
    schedule, training, truth = recording.schedule, recording.training, recording.truth
    settings = recording.model_settings[target]
    rate = _rate(recording, target)
    steps = []
    for step in range(min([len(pushed), *(len(pushes) for pushes in recording.plain.values())])):
        visit = schedule.visit(step)
        batches = _batches(schedule, visit, schedule.passes_at(step), rate, schedule.first_update(step))
        others = _others(recording, target, step)
        seen = max(0, step - training.lookahead)
        steps.append(ObservedStep(visit.start, visit.stop, others, pushed[step], seen, batches))
    digest = hashlib.blake2b(target.encode(), digest_size=16)
    for update in steps:
        digest.update(np.ascontiguousarray(update.then).tobytes())
    return TrainingReplay(
        digest.digest(),
        schedule.rows,
        width(truth.features[target]),
        recording.echo,
        settings.weight_decay,
        target == recording.run.label_party or training.exchanges is not None,
        variance,
        _batches(schedule, Visit(-1, 0, 0, schedule.rows), schedule.local_passes, rate, 0),
        tuple(steps),
        truth.shown_labels,
        truth.weights if len(truth.weights) else np.ones(schedule.rows),
        recording.objective,
    )


def _rate(recording: Recording, target: str) -> LearningRate:
    """The target's step sizes. One of its own choosing is unknown: features are then found in other units."""
    training, settings = recording.run.training, recording.model_settings[target]
    wanted = training.learning_rate if settings.learning_rate is None else settings.learning_rate
    start = 1.0 if wanted == "auto" else wanted
    if settings.optimizer == "momentum":  # in the long run each gradient counts for so much more
        start /= 1.0 - settings.momentum
    return LearningRate(start, training.lr_decay, recording.schedule.updates)


def _batches(schedule: Schedule, visit: Visit, passes: int, rate: LearningRate, first: int) -> tuple[ReplayBatch, ...]:
    batch_bounds = schedule.batch_bounds(visit)
    count = len(batch_bounds) - 1
    return tuple(
        ReplayBatch(schedule.order(visit, turn)[batch_bounds[number] : batch_bounds[number + 1]], float(size))
        for turn in range(passes)
        for number, size in enumerate(rate.of(first + turn * count, count))
    )


def _others(recording: Recording, target: str, step: int) -> Values:
    """What the others add to the target's score: as they pushed it, or as a gradient tells it."""
    if recording.gradients and target != recording.run.label_party:
        return recording.objective.invert_gradient(recording.gradients[step])[0] - recording.plain[target][step]
    others = [party for party in recording.run.parties if party != target]
    return sum((recording.plain[party][step] for party in others), np.zeros_like(recording.plain[target][step]))
