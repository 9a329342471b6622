"""Joint functions: how the total of all parties' local predictions becomes the scores that a loss takes.

A model's *outputs* are what it computes of a row; the *local prediction* is what of them travels and is summed. Of a
sum both are the same. `fdml.models.head` has the joint function that learns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from fdml.models.losses import Floats

_VECTOR_SCALE = 0.3
"""By which the last layer of a net begins smaller where it makes a vector: products of vectors add up."""


class JointFunction(Protocol):
    """From totals `(rows, width)` to scores `(rows, scores)`, and from gradients of scores back to those of outputs."""

    is_identity: ClassVar[bool]
    """Whether the total is the score itself: kernels then have the loss in their own loops."""

    @property
    def factors(self) -> int:
        """Numbers of a vector for each score, where kernels know their products; 0 where they do not, or of a sum."""
        ...

    def width(self, scores: int) -> int:
        """How many floats a local prediction has where the loss takes `scores` scores."""
        ...

    def local_prediction(self, outputs: Floats) -> Floats:
        """What travels of a model's outputs, `(rows, width)` both."""
        ...

    def score(self, total: Floats) -> Floats:
        """The scores of each row."""
        ...

    def gradient(self, total: Floats, of_score: Floats) -> Floats:
        """dLoss/dtotal, given dLoss/dscore of the same rows."""
        ...

    def output_gradient(self, outputs: Floats, of_prediction: Floats) -> Floats:
        """dLoss/doutputs of a party, given dLoss/dprediction, which is dLoss/dtotal."""
        ...

    def starting_scale(self, width: int) -> Floats:
        """By what each of a net's outputs should be multiplied before training."""
        ...


class Sum:
    """The total is the score, as in the paper."""

    is_identity: ClassVar[bool] = True
    factors: ClassVar[int] = 0

    def width(self, scores: int) -> int:
        """One float for each score."""
        return scores

    def local_prediction(self, outputs: Floats) -> Floats:
        """The outputs themselves."""
        return outputs

    def score(self, total: Floats) -> Floats:
        """The total itself."""
        return total

    def gradient(self, total: Floats, of_score: Floats) -> Floats:  # noqa: ARG002 (others need the total)
        """The gradient of the score itself."""
        return of_score

    def output_gradient(self, outputs: Floats, of_prediction: Floats) -> Floats:  # noqa: ARG002
        """The gradient of the prediction itself."""
        return of_prediction

    def starting_scale(self, width: int) -> Floats:
        """As they are."""
        return np.ones(width)


@dataclass(frozen=True)
class Interactions:
    """Products of the parties' vectors, as in a factorization machine: `joint = "fm"`.

    Party j has for each score the outputs p_j, what it would score alone, and a vector u_j of k numbers. It sends
    l_j = p_j - |u_j|^2 / 2 and u_j. With the sums S0 = sum_j l_j and S = sum_j u_j the score is

        S0 + |S|^2 / 2  =  sum_j p_j  +  sum over pairs i < j of <u_i, u_j>,

    so only products of different parties' vectors are left, and the server has only added. Where p_j is a
    factorization machine whose factors make u_j, it is one over the features of all parties. With g = dLoss/dscore:

        dLoss/dS0 = g,   dLoss/dS = g S;    dLoss/dp_j = g,   dLoss/du_j = g S - g u_j = g (S - u_j),

    where S has moved by u_j since the push, and the score by echo times what it moves by l_j and u_j alone
    (`fdml.models.signals.Scores.moved`).

    Columns: first those of all scores (p or l), then the k numbers of the first score's vector, and so on.
    """

    vector: int
    """k."""
    is_identity: ClassVar[bool] = False

    @property
    def factors(self) -> int:
        """Numbers of a party's vector for each score."""
        return self.vector

    def width(self, scores: int) -> int:
        """One float and a vector for each score."""
        return scores * (1 + self.vector)

    def local_prediction(self, outputs: Floats) -> Floats:
        """l beside u: half the squared length of each vector is taken off its score."""
        scores = self._scores(outputs)
        sent = outputs.copy()
        sent[:, :scores] -= self._half_squares(outputs, scores)
        return sent

    def score(self, total: Floats) -> Floats:
        """The first numbers, and half the squared length of each vector."""
        scores = self._scores(total)
        return total[:, :scores] + self._half_squares(total, scores)

    def gradient(self, total: Floats, of_score: Floats) -> Floats:
        """g, and g S."""
        scores = self._scores(total)
        return np.concatenate([of_score, np.repeat(of_score, self.vector, axis=1) * total[:, scores:]], axis=1)

    def output_gradient(self, outputs: Floats, of_prediction: Floats) -> Floats:
        """g, and what comes by the vector less g u."""
        scores = self._scores(outputs)
        through = np.repeat(of_prediction[:, :scores], self.vector, axis=1) * outputs[:, scores:]
        return np.concatenate([of_prediction[:, :scores], of_prediction[:, scores:] - through], axis=1)

    def starting_scale(self, width: int) -> Floats:
        """Vectors are small at first."""
        scores = width // (1 + self.vector)
        return np.concatenate([np.ones(scores), np.full(width - scores, _VECTOR_SCALE)])

    def _scores(self, values: Floats) -> int:
        return int(values.shape[1]) // (1 + self.vector)

    def _half_squares(self, values: Floats, scores: int) -> Floats:
        """Half the squared length of each vector, added up number by number: the same for a row among any others."""
        vectors = values[:, scores:].reshape(len(values), scores, self.vector)
        found = np.zeros((len(values), scores), values.dtype)
        for number in range(self.vector):
            found += np.square(vectors[:, :, number])
        return 0.5 * found


SUM = Sum()
