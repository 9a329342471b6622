"""What noise is worth: epsilon, delta and mu of Gaussian noise.

`mu` is the distance between the outputs for two inputs, in standard deviations
of the noise. Releases add up in squares: mu^2 is the sum of theirs. Then
(epsilon, delta) follows from mu exactly, without a bound in between. Rounding
never favours the party that claims: an epsilon is rounded up, a mu down.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy.special import erfcx

from fdml.errors import SettingsError

_ROUNDING = 1e-9
"""Far over the error of the floats below, far under what anybody reads."""
_HALVINGS = 80
_NEAR = 1e-3
"""Below this mu two nearly equal numbers would be subtracted; their derivative is integrated instead."""


def gaussian_delta(mu: float, epsilon: float) -> float:
    """The smallest delta that goes with this epsilon.

    The textbook form is Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu). As the squares of the two
    arguments differ by 2 epsilon, the power of e cancels and no epsilon is too large.
    """
    _check_mu(mu)
    _check_epsilon(epsilon)
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    near, far = (epsilon / mu - mu / 2) / math.sqrt(2), (epsilon / mu + mu / 2) / math.sqrt(2)
    height = math.exp(-near * near) / 2
    if height == 0.0:
        return 0.0 if near > 0 else 1.0
    if mu < _NEAR:
        return height * _fall(near, mu / math.sqrt(2))
    if near > 0:
        return height * float(erfcx(near) - erfcx(far))
    return math.erfc(near) / 2 - height * float(erfcx(far))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon that goes with this delta, rounded up."""
    _check_mu(mu)
    check_delta(delta)
    if _within(mu, 0.0, delta):
        return 0.0
    low, high = 0.0, mu * mu / 2 + mu * math.sqrt(2 * math.log(2 / delta))
    if math.isinf(high):
        return math.inf
    return _halved(low, high, lambda epsilon: not _within(mu, epsilon, delta))[1]


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The largest mu that stays within (epsilon, delta), rounded down."""
    _check_epsilon(epsilon)
    check_delta(delta)
    low, high = 0.0, 1.0
    while _within(high, epsilon, delta):
        low, high = high, 2 * high
    return _halved(low, high, lambda mu: _within(mu, epsilon, delta))[0] * (1 - _ROUNDING)


def _halved(low: float, high: float, belongs: Callable[[float], bool]) -> tuple[float, float]:
    """Bounds of where a condition ends that holds at `low` and not at `high`, as near as floats are."""
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if belongs(middle) else (low, middle)
    return low, high


def check_delta(delta: float) -> None:
    """Raise unless it is a probability that can stand beside an epsilon."""
    if not 0 < delta < 1:
        raise SettingsError(f"delta is {delta!r}; it takes a number between 0 and 1, well below 1 / rows, such as 1e-5")


def _within(mu: float, epsilon: float, delta: float) -> bool:
    return gaussian_delta(mu, epsilon) * (1 + _ROUNDING) <= delta


def _fall(start: float, width: float) -> float:
    """erfcx(start) - erfcx(start + width) of a small width, by Simpson's rule."""
    slopes = [2 / math.sqrt(math.pi) - 2 * at * float(erfcx(at)) for at in (start, start + width / 2, start + width)]
    return width * (slopes[0] + 4 * slopes[1] + slopes[2]) / 6


def _check_mu(mu: float) -> None:
    if not mu >= 0:  # also when it is not a number
        raise SettingsError(f"mu is {mu!r}; it takes a distance of 0 or more")


def _check_epsilon(epsilon: float) -> None:
    if not 0 <= epsilon < math.inf:
        raise SettingsError(f"epsilon is {epsilon!r}; it takes a number of 0 or more")
