"""Gradients of losses as kernels compute them; `fdml.models.losses` has the same in plain numpy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np
from numba.core import types
from numba.extending import overload
from numpy.typing import NDArray

from fdml.models.losses import Floats
from fdml.settings.choices import LARGEST_LOG

LOGISTIC, HINGE, SQUARED, SOFTMAX, POISSON, QUANTILE = range(6)
"""Codes of losses; that of a quantile is QUANTILE and its level in thousandths."""
LEVELS = 1000.0
_ZERO, _HALF, _ONE, _TWO = np.float32(0.0), np.float32(0.5), np.float32(1.0), np.float32(2.0)
_FARTHEST = np.float32(87.0)
"""exp of more is no float32."""
_PER_DOUBLING = np.float32(1.0 / math.log(2.0))
_DOUBLING = np.float32(0.693359375)
"""ln 2 in nine bits, so that small multiples of it are exact."""
_DOUBLING_REST = np.float32(math.log(2.0) - 0.693359375)
_C3, _C4, _C5, _C6, _C7 = (np.float32(1.0 / math.factorial(n)) for n in range(3, 8))
_EXPONENT_OF_ONE, _MANTISSA_BITS = np.int32(127), np.int32(23)
LONGEST = 1e30
"""With DP-SGD a row longer than this, or with a longer gradient, is left out of its batch: it might overflow."""


class KernelScores(NamedTuple):
    """The signal of one pass over one block as kernels take it. Row 0 of every array is the block's first row."""

    total: Floats
    """The total as received, with the party's own part exact; `(rows, width)`."""
    own_at_push: Floats
    """The party's own part of `total`."""
    echo: float
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    loss: int


class InteractionScores(NamedTuple):
    """The same where parties' vectors interact: `fdml.models.joint.Interactions`, whose formulas it follows."""

    total: Floats
    own_at_push: Floats
    echo: float
    labels: NDArray[np.float64]
    weights: NDArray[np.float64]
    loss: int
    factors: int
    """Numbers of a vector."""


def logistic(values: Floats, powers: NDArray[np.int32]) -> None:
    """Replace every value by 1 / (1 + exp(-value)); `powers` is scratch of the same length. For kernels only."""
    raise NotImplementedError


@overload(logistic, inline="always", strict=False)
def _logistic(values: Any, powers: Any) -> Any:
    if values.dtype == types.float64:

        def one_by_one(values: Any, powers: Any) -> None:
            for place in range(len(values)):
                values[place] = 1.0 / (1.0 + math.exp(-values[place]))

        return one_by_one

    def all_at_once(values: Any, powers: Any) -> None:
        """exp(x) is 2**k times exp of a rest, of which eight terms of its series are enough. No call: many at once."""
        for place in range(len(values)):
            x = min(max(-values[place], -_FARTHEST), _FARTHEST)
            k = np.floor(x * _PER_DOUBLING + _HALF)
            x = x - k * _DOUBLING - k * _DOUBLING_REST
            powers[place] = (np.int32(k) + _EXPONENT_OF_ONE) << _MANTISSA_BITS
            values[place] = ((((((_C7 * x + _C6) * x + _C5) * x + _C4) * x + _C3) * x + _HALF) * x + _ONE) * x + _ONE
        doubled = powers.view(np.float32)
        for place in range(len(values)):
            values[place] = _ONE / (_ONE + values[place] * doubled[place])

    return all_at_once


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def other_gradient(loss: int, score: float, label: float) -> float:
    """dLoss/dscore of Poisson, exp(s) - y, or of a quantile, 1 - q above the label and else -q."""
    if loss == POISSON:
        return math.exp(min(score, LARGEST_LOG)) - label
    level = (loss - QUANTILE) / LEVELS
    return 1.0 - level if score > label else -level


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def loss_gradients(loss: int, scores: Floats, labels: Floats, shares: Floats, powers: NDArray[np.int32]) -> None:
    """Replace scores of rows with one score by dLoss/dscore times each row's share; `powers` is scratch."""
    if loss == LOGISTIC:
        logistic(scores, powers)  # type: ignore[call-arg]
    if loss == HINGE:
        for slot in range(len(scores)):
            sign = _TWO * labels[slot] - _ONE
            scores[slot] = -sign * shares[slot] if sign * scores[slot] < _ONE else _ZERO
    elif loss >= POISSON:
        for slot in range(len(scores)):
            scores[slot] = other_gradient(loss, scores[slot], labels[slot]) * shares[slot]
    else:
        for slot in range(len(scores)):
            scores[slot] = (scores[slot] - labels[slot]) * shares[slot]


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def loss_gradient(loss: int, score: Floats, label: float, out: Floats) -> None:
    """Write dLoss/dscore of one row to `out`."""
    if loss == LOGISTIC:
        out[0] = 1.0 / (1.0 + math.exp(-score[0])) - label
    elif loss == HINGE:
        sign = 2.0 * label - 1.0
        out[0] = -sign if sign * score[0] < 1.0 else 0.0
    elif loss == SQUARED:
        for k in range(len(score)):
            out[k] = score[k] - label
    elif loss >= POISSON:
        out[0] = other_gradient(loss, score[0], label)
    else:
        highest = score[0]
        for k in range(1, len(score)):
            highest = max(highest, score[k])
        total = 0.0
        for k in range(len(score)):
            out[k] = math.exp(score[k] - highest)
            total += out[k]
        for k in range(len(score)):
            out[k] /= total
        out[int(label)] -= 1.0


def output_gradient(scores: Any, row: int, own: Floats, score: Floats, out: Floats) -> None:
    """Write dLoss/doutputs of one row to `out`, where the model has the outputs `own` now. For kernels only.

    `score` is scratch.
    """
    raise NotImplementedError


@overload(output_gradient, inline="always", strict=False)
def _output_gradient(scores: Any, row: int, own: Any, score: Any, out: Any) -> Any:
    if "factors" not in scores.fields:

        def of_sum(scores: Any, row: int, own: Any, score: Any, out: Any) -> None:
            for k in range(len(own)):
                score[k] = scores.total[row, k] + scores.echo * (own[k] - scores.own_at_push[row, k])
            loss_gradient(scores.loss, score, scores.labels[row], out)

        return of_sum

    def of_interactions(scores: Any, row: int, own: Any, score: Any, out: Any) -> None:
        factors = scores.factors
        outputs = len(own) // (1 + factors)
        half = own.dtype.type(0.5)
        for k in range(outputs):
            # l = p - |u|^2 / 2;  S moves by u alone;  before = S0 + |S|^2 / 2, and the score moves by echo times what
            # it would move by this party alone:  l - l_at_push + (|S now|^2 - |S|^2) / 2
            before, moved = scores.total[row, k], own[k] - scores.own_at_push[row, k]
            for f in range(outputs + k * factors, outputs + (k + 1) * factors):
                total = scores.total[row, f]
                score[f] = total + (own[f] - scores.own_at_push[row, f])
                before += half * total * total
                moved += half * (score[f] * score[f] - total * total - own[f] * own[f])
            score[k] = before + scores.echo * moved
        loss_gradient(scores.loss, score[:outputs], scores.labels[row], out[:outputs])
        # dLoss/du = g (S now - u)
        for k in range(outputs):
            for f in range(outputs + k * factors, outputs + (k + 1) * factors):
                out[f] = out[k] * (score[f] - own[f])

    return of_interactions


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def row_gradient(scores: Any, row: int, count: int, own: Floats, score: Floats, out: Floats) -> None:
    """Write one row's part of the batch's mean gradient to `out`, where the model has the outputs `own` now."""
    output_gradient(scores, row, own, score, out)
    share = scores.weights[row] / count
    for k in range(len(own)):
        out[k] *= share


@numba.njit(inline="always")  # type: ignore[untyped-decorator]
def clip_factor(inputs: float, square: float, limit: float) -> float:
    """What to multiply a row's gradient by so that it is no longer than `limit`; 0 leaves the row out.

    `inputs` and `square` are the squared lengths of what a layer is given (at most) and of the gradient.
    """
    factor = 1.0
    if not (inputs <= LONGEST**2 and square <= LONGEST**2):  # also where it is not a number
        factor = 0.0
    elif square > limit * limit:
        factor = limit / math.sqrt(square)
    return factor
