"""Boosted trees and a network in one party: their outputs are added.

The network gives the vector of an interaction and a part of the score, the trees another part of the score. The network
learns from every block, the trees once in an epoch from the totals of all blocks; each takes the other's part as it is
now. A local prediction is linear in what the trees say, whatever the joint function: so the one's part is just taken
off what was pushed before the other learns.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fdml.data.rows import Rows, row_count, span, split_features, width
from fdml.errors import DataError
from fdml.models.kind import ModelSpec
from fdml.models.losses import Floats
from fdml.models.model import CheckedModel, Model, State, current_model
from fdml.models.row_pointers import learn_rows, predict_rows
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.trees.model import TreesModel
from fdml.models.trees_mlp.kind import TreesMlpSettings


class TreesAndNetwork:
    """The sum of a forest that grows and a network; rows have the network's features first, then the trees'."""

    concurrent: ClassVar[bool] = False
    """LightGBM has threads of its own."""

    def __init__(self, trees: TreesModel, network: CheckedModel, settings: TreesMlpSettings, spec: ModelSpec) -> None:
        self._trees = trees
        self._network = network
        self._predicting: Model = network
        self._first = settings.native_from
        self._tree_rate = settings.tree_rate
        self._inputs = spec.inputs
        self._bound: list[tuple[Rows, tuple[Rows, Rows]]] = []
        """Rows that are asked for again and again, and their features for network and trees."""

    @property
    def current(self) -> Model:
        """The model as it is trained; it shares all with this one but by what weights it predicts."""
        network = current_model(self._network)
        if network is self._predicting:
            return self
        other = TreesAndNetwork.__new__(TreesAndNetwork)
        vars(other).update(vars(self), _predicting=network)
        return other

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it predicts in."""
        return self._network.dtype

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """The outputs of the rows from `start` to `stop`, `(rows, width)`."""
        self._check_width(rows)
        stop = row_count(rows) if stop is None else stop
        parts = self._known(rows)
        if parts is None:
            parts, start, stop = split_features(span(rows, start, stop), self._first), 0, stop - start
        of_network: Floats = predict_rows(self._predicting, parts[0], start, stop)
        return of_network + self._trees.predict(parts[1], start, stop)

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block: first the network, then the trees."""
        self.learn_block(rows, block, scores)
        self.learn_epoch(rows, block, scores)

    def learn_block(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass of the network."""
        of_network, of_trees = self._parts(rows)
        trees = self._trees.predict(of_trees, block.start, block.start + len(scores.total))
        own = (scores.own_at_push - trees).astype(self.dtype)
        learn_rows(self._network, of_network, block, scores._replace(own_at_push=own))

    def learn_epoch(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """Trees that lower the loss of the block's rows."""
        of_network, of_trees = self._parts(rows)
        outputs = predict_rows(current_model(self._network), of_network, block.start, block.start + len(scores.total))
        own = scores.own_at_push - scores.objective.joint.local_prediction(outputs)
        rates = np.where(block.rates > 0.0, self._tree_rate, 0.0)
        self._trees.learn(of_trees, block._replace(rates=rates), scores._replace(own_at_push=own))

    def bind(self, *rows: Rows) -> None:
        """Split these rows' features once, and let the trees remember what they predict of them."""
        self._bound[:] = [(each, split_features(each, self._first)) for each in rows]
        self._trees.bind(*(of_trees for _, (_, of_trees) in self._bound))

    def _parts(self, rows: Rows) -> tuple[Rows, Rows]:
        self._check_width(rows)
        return self._known(rows) or split_features(rows, self._first)

    def _known(self, rows: Rows) -> tuple[Rows, Rows] | None:
        return next((parts for each, parts in self._bound if each is rows), None)

    def penalty(self) -> float:
        """This party's part of the regulariser: the network's and the trees'."""
        return self._network.penalty() + self._trees.penalty()

    def state(self) -> State:
        """The network's arrays and the trees'; their names differ."""
        return {**self._network.state(), **self._trees.state()}

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self._network.check(state)
        self._trees.check(state)
        self._network.restore(state)
        self._trees.restore(state)

    def __getstate__(self) -> dict[str, Any]:
        """All but rows."""
        return {**vars(self), "_bound": []}

    def _check_width(self, rows: Rows) -> None:
        if width(rows) != self._inputs:
            raise DataError(f"rows have {width(rows)} features, the model was made for {self._inputs}")
