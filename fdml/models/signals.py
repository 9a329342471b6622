"""What a party learns from: which rows of a block in which order, and what is known of their totals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.models.losses import Floats
from fdml.models.objective import Objective

GATHERED = 2**16
"""Rows of a part of a block; a batch that is larger is a part of its own."""


class BlockUpdate(NamedTuple):
    """One pass over one block: its rows in the order of learning, cut into batches, with their step sizes."""

    start: int
    """The block's first row."""
    order: NDArray[np.int64]
    """Rows counted from `start`."""
    batch_bounds: NDArray[np.int64]
    """Batch b is order[batch_bounds[b]:batch_bounds[b + 1]]."""
    rates: NDArray[np.float64]
    """Step size of each batch."""

    def batch(self, number: int) -> NDArray[np.int64]:
        """The rows of one batch, counted from `start`."""
        return self.order[self.batch_bounds[number] : self.batch_bounds[number + 1]]

    def only(self, number: int) -> BlockUpdate:
        """One of its batches alone."""
        return self.batches(number, number + 1)

    def batches(self, first: int, last: int) -> BlockUpdate:
        """Its batches from `first` to before `last`."""
        bounds = self.batch_bounds[first : last + 1]
        return BlockUpdate(self.start, self.order[bounds[0] : bounds[-1]], bounds - bounds[0], self.rates[first:last])

    def parts(self) -> Iterator[BlockUpdate]:
        """Its batches in runs of at most `GATHERED` rows: so many are gathered at once of rows that are pointed to."""
        first, bounds = 0, self.batch_bounds
        while first < len(self.rates):
            within = int(np.searchsorted(bounds, bounds[first] + GATHERED, side="right")) - 1
            last = min(max(within, first + 1), len(self.rates))
            yield self.batches(first, last)
            first = last


NO_ROWS = BlockUpdate(0, np.zeros(0, np.int64), np.zeros(2, np.int64), np.zeros(0))
"""A pass without a batch: changes nothing, but has kernels compiled."""


class Scores(NamedTuple):
    """The totals of a block. Row 0 of every array is the block's first row."""

    total: Floats
    """As received, with the party's own part exact; `(rows, width)`."""
    own_at_push: Floats
    """The party's own part of `total`."""
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    echo: float
    """How much the total moves as the party's own prediction moves away from `own_at_push`."""
    objective: Objective

    @property
    def scores(self) -> Scores:
        """This signal itself."""
        return self

    def gradient(self, rows: NDArray[np.int64], outputs: Floats) -> Floats:
        """dLoss/doutputs times the weight of these rows, where the model has these outputs now; `(rows, width)`."""
        objective = self.objective
        total, score = self.moved(rows, objective.joint.local_prediction(outputs))
        of_score = objective.loss.gradient(score, self.labels[rows])
        of_prediction = objective.joint.gradient(total, of_score)
        return objective.joint.output_gradient(outputs, of_prediction) * self.weights[rows, None]

    def moved(self, rows: NDArray[np.int64], own: Floats) -> tuple[Floats, Floats]:
        """Totals and scores of these rows where the party's prediction is `own` now: the echo rule.

        The score moves by echo times what it would move by this party alone. Vectors in a total move by this party's
        alone: the products of movements that others have not made yet would drive vectors apart (docs/decisions/0034).
        """
        joint, total, moved = self.objective.joint, self.total[rows], own - self.own_at_push[rows]
        if joint.is_identity:
            total = total + self.echo * moved
            return total, total
        before, total = joint.score(total), total + moved
        return total, before + self.echo * (joint.score(total) - before)


@dataclass(frozen=True)
class Gradients:
    """dLoss/dtotal of a block as the label party returned it, where labels are private."""

    gradient: Floats
    """`(rows, width)`."""
    pushed: Floats
    """The party's own part of the totals that the gradient was taken at: its prediction as the guard let it out."""
    own_at_push: Floats
    """The same prediction, exact."""
    weights: NDArray[np.float64]
    echo: float
    objective: Objective

    @cached_property
    def scores(self) -> Scores:
        """The totals and labels that have this gradient, with the party's own part exact."""
        total, labels = self.objective.invert_gradient(self.gradient)
        exact = (total - self.pushed + self.own_at_push).astype(self.own_at_push.dtype)
        return Scores(exact, self.own_at_push, labels, self.weights, self.echo, self.objective)


Signal = Scores | Gradients


def no_scores(objective: Objective, dtype: np.dtype[np.floating]) -> Scores:
    """A signal for `NO_ROWS`."""
    empty, none = np.zeros((0, objective.width), dtype), np.zeros(0)
    return Scores(empty, empty, none, none, 1.0, objective)
