"""A model of any kind under a joint function: what it predicts is what may travel of its outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fdml.data.rows import Rows
from fdml.models.head.head import Head
from fdml.models.joint import SUM, JointFunction
from fdml.models.losses import Floats
from fdml.models.model import EpochModel, Model, State, current_model
from fdml.models.signals import BlockUpdate, Scores

_JOINT = "joint/"
"""Before the names of a head's arrays in a model's state."""


class JointModel:
    """A model whose local predictions a joint function makes of its outputs; learning is the model's own."""

    def __init__(self, outputs: Model, joint: JointFunction) -> None:
        self.outputs = outputs
        """The model of the kind."""
        self.joint = joint
        """What becomes of the sum of all parties' predictions."""

    @property
    def current(self) -> JointModel:
        """The model as it is trained."""
        outputs = current_model(self.outputs)
        return self if outputs is self.outputs else JointModel(outputs, self.joint)

    @property
    def concurrent(self) -> bool:
        """Whether several threads may predict with it at once, and gain by it."""
        return self.outputs.concurrent

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return self.outputs.dtype

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, width)`."""
        return self.joint.local_prediction(self.outputs.predict(rows, start, stop))

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block; the signal gives gradients of outputs."""
        self.outputs.learn(rows, block, scores)

    def bind(self, *rows: Rows) -> None:
        """Let a model that learns once in an epoch get ready for these rows."""
        if isinstance(self.outputs, EpochModel):
            self.outputs.bind(*rows)

    def learn_block(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block, with what of it learns from blocks: all, where nothing learns once in an epoch."""
        learn = self.outputs.learn_block if isinstance(self.outputs, EpochModel) else self.outputs.learn
        learn(rows, block, scores)

    def learn_epoch(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over a block of all rows, with what of it learns once in an epoch."""
        if isinstance(self.outputs, EpochModel):
            self.outputs.learn_epoch(rows, block, scores)

    def penalty(self) -> float:
        """This party's part of the regulariser."""
        return self.outputs.penalty()

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model; the head's, too."""
        if not isinstance(self.joint, Head):
            return self.outputs.state()
        return {**self.outputs.state(), **{f"{_JOINT}{name}": array for name, array in self.joint.state().items()}}

    def restore(self, state: State) -> None:
        """Become the model that gave this state; the head is restored for all who hold it."""
        if not isinstance(self.joint, Head):
            self.outputs.restore(state)
            return
        head = joint_state(state)
        self.joint.check(head)
        self.outputs.restore({name: array for name, array in state.items() if not name.startswith(_JOINT)})
        self.joint.restore(head)


def joint_state(state: State) -> State:
    """What a model's state has of its joint function; nothing where it does not learn."""
    return {name.removeprefix(_JOINT): array for name, array in state.items() if name.startswith(_JOINT)}


def joint_of(models: Iterable[Model]) -> JointFunction:
    """The joint function that these models were built for; all of one run have the same."""
    return next((model.joint for model in models if isinstance(model, JointModel)), SUM)
