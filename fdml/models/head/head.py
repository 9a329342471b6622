"""`joint = "head"`: a small network over the summed vectors, of which every party holds the same copy.

It is learned from exchanged totals and shared labels alone: all parties have the same, in the same order, and the
kernels round alike on all machines. So the copies stay the same bits without a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.models.head import kernel
from fdml.models.head.kernel import HeadState
from fdml.models.initialisation import generator
from fdml.models.losses import Floats, Loss
from fdml.models.states import check_shapes

RATE = 0.005
"""The step size of Adam to begin with; it falls as the parties' do."""
_L2 = 1e-4


class Head:
    """The score is S0 + W2 relu(W1 S + b1), where S0 and S are sums of the parties' scores and vectors.

    With g = dLoss/dscore:  dLoss/dS0 = g  and  dLoss/dS = W1^T (W2^T g where the unit is positive, else 0). A party
    learns with the head as it was before the step; then all learn the head.
    """

    is_identity: ClassVar[bool] = False
    factors: ClassVar[int] = 0

    def __init__(self, vector: int, units: int, scores: int, seed: int = 0) -> None:
        """It starts by the run's seed alone, from uniform numbers: the same at every party."""
        self._vector, self._units, self._scores = vector, units, scores
        random = generator(seed, "head")
        layers = [(6.0 / vector, units * vector), (0.0, units), (3.0 / units, scores * units)]
        theta = np.concatenate([np.sqrt(square) * (2.0 * random.random(size) - 1.0) for square, size in layers])
        self._state = HeadState(theta, np.zeros_like(theta), np.zeros_like(theta), np.ones(2))

    def width(self, scores: int) -> int:
        """A float for each score, and the vector."""
        return scores + self._vector

    def local_prediction(self, outputs: Floats) -> Floats:
        """The outputs themselves."""
        return outputs

    def score(self, total: Floats) -> Floats:
        """The first numbers, and what the network says of the vector; in double precision."""
        out = np.empty((len(total), self._scores))
        kernel.scores_of(self._state.theta, self._units, _doubles(total), out)
        return out

    def gradient(self, total: Floats, of_score: Floats) -> Floats:
        """g, and g through the network; in double precision."""
        out = np.empty(total.shape)
        kernel.gradients_of(self._state.theta, self._units, _doubles(total), _doubles(of_score), out)
        return out

    def output_gradient(self, outputs: Floats, of_prediction: Floats) -> Floats:  # noqa: ARG002
        """The gradient of the prediction itself."""
        return of_prediction

    def starting_scale(self, width: int) -> Floats:
        """As they are."""
        return np.ones(width)

    def learn(
        self,
        loss: Loss,
        total: Floats,
        labels: Floats,
        weights: Floats,
        *,
        order: NDArray[np.int64],
        batch_bounds: NDArray[np.int64],
        rates: NDArray[np.float64],
    ) -> None:
        """One pass over the totals of a block as they were exchanged; row 0 of every array is its first row.

        The batches are those of the parties' own updates.
        """
        if loss.code is None:
            raise SettingsError(
                f"the head must round alike on all machines, and {type(loss).__name__} has no compiled gradient; set "
                f'training.joint = "sum" or "fm"'
            )
        kernel.train(
            self._state, self._units, _L2, _doubles(total), _doubles(labels), _doubles(weights), loss.code,
            self._scores, order, batch_bounds, rates,
        )  # fmt: skip

    def warm_up(self, loss: Loss) -> None:
        """Have the kernels compiled, or loaded: learn from no rows."""
        empty, none = np.zeros((0, self._scores + self._vector)), np.zeros(0)
        order, bounds = np.zeros(0, np.int64), np.zeros(1, np.int64)
        self.gradient(empty, self.score(empty))
        self.learn(loss, empty, none, none, order=order, batch_bounds=bounds, rates=none)

    def at(self, theta: Floats) -> Head:
        """A head with these parameters; it cannot be trained on."""
        other = Head(self._vector, self._units, self._scores)
        other.restore({**other.state(), "theta": theta})
        return other

    def state(self) -> Mapping[str, Floats]:
        """Everything needed to go on from here, as arrays that share no memory with the head."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def check(self, state: Mapping[str, Floats]) -> None:
        """Raise unless the state is of a head of this size."""
        check_shapes(state, {name: mine.shape for name, mine in self._state._asdict().items()}, "joint/")

    def restore(self, state: Mapping[str, Floats]) -> None:
        """Become the head that gave this state."""
        self.check(state)
        self._state = HeadState(**{name: np.array(state[name], np.float64) for name in HeadState._fields})


def _doubles(values: Floats) -> NDArray[np.float64]:
    return np.ascontiguousarray(values, np.float64)
