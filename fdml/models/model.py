"""The seam between training and the kinds of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows
from fdml.models.losses import Floats
from fdml.models.signals import BlockUpdate, Scores

State = Mapping[str, NDArray[Any]]
PROGRESS = "progress/"
"""How the names of those arrays of a state begin that only training needs: no bundle has them."""


class Model(Protocol):
    """A party's local model: maps features to `width` floats a row. Its parameters never leave the party.

    A kind's own model predicts its outputs; `fdml.models.joint_model` makes local predictions of them where a joint
    function has it so. In `learn` it is asked for gradients of outputs.
    """

    @property
    def concurrent(self) -> bool:
        """Whether several threads may predict with it at once, and gain by it."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        ...

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, width)`."""
        ...

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block."""
        ...

    def penalty(self) -> float:
        """This party's part of the regulariser: l2 / 2 times its squared weights."""
        ...

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        ...

    def restore(self, state: State) -> None:
        """Become the model that gave this state; raises and changes nothing if it was another model's."""
        ...


class CheckedModel(Model, Protocol):
    """A model that can tell whether a state is its own before it takes it."""

    def check(self, state: State, under: str = "") -> None:
        """Raise unless the state is of such a model; `under` stands before the names of arrays in the error."""
        ...


@runtime_checkable
class HasCurrent(Protocol):
    """A model that predicts otherwise than it is trained: by an average of its weights."""

    @property
    def current(self) -> Model:
        """The model as it is trained."""
        ...


def current_model(model: Model) -> Model:
    """The model by which training goes on; all else is predicted by the model itself."""
    return model.current if isinstance(model, HasCurrent) else model


@runtime_checkable
class EpochModel(Model, Protocol):
    """A model of which all or a part learns once in an epoch, from all rows; `learn` has all of it learn from a block.

    It predicts rows that point to stored ones by itself.
    """

    def bind(self, *rows: Rows) -> None:
        """Get ready for these rows, which are asked for again and again."""
        ...

    def learn_block(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block, with what of it learns from blocks."""
        ...

    def learn_epoch(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over a block of all rows, with what of it learns once in an epoch."""
        ...
