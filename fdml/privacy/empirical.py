"""What an attacker can really tell: a lower bound on epsilon, found by trying.

An accountant's epsilon is an upper bound that holds if the noise is what it
claims to be. This bound knows nothing of the noise: it looks at outputs only.
Where it exceeds the claim, the claim is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

from fdml.errors import SettingsError

Outputs = NDArray[np.float64]

_THRESHOLDS = 200
"""Of these the best is taken, on outputs that do not count for the bound."""


def lower_bound(
    draw: Callable[[float, int], NDArray[np.floating[Any]]],
    clip: float,
    delta: float,
    draws: int = 200_000,
    confidence: float = 0.95,
) -> float:
    """An epsilon that the mechanism has at least, at this delta and with this confidence.

    `draw(value, count)` gives so many outputs for an input, each with noise of
    its own. The attacker tells +clip from -clip by a threshold, which is chosen on one
    half of the outputs and evaluated on the other. The bound cannot pass
    about log(draws / 9) at 95 % confidence, however little is hidden.
    """
    _check(delta, draws, confidence)
    high, low = (np.asarray(draw(value, draws), np.float64).ravel() for value in (clip, -clip))
    doubt = (1 - confidence) / 4  # two rates in each of two directions
    return max(0.0, _one_way(high, low, delta, doubt), _one_way(-low, -high, delta, doubt))


def _one_way(inside: Outputs, outside: Outputs, delta: float, doubt: float) -> float:
    """The bound by telling `inside` from `outside` where an output is above a threshold."""
    half = len(inside) // 2
    choosing, testing = (inside[:half], outside[:half]), (inside[half:], outside[half:])
    thresholds = _candidates(*choosing)
    best = thresholds[np.argmax(_bounds(*choosing, thresholds, delta, doubt))]
    return float(_bounds(*testing, np.array([best]), delta, doubt)[0])


def _candidates(inside: Outputs, outside: Outputs) -> Outputs:
    """Thresholds that are close together where few outputs of either kind are above."""
    above = np.geomspace(1, len(outside), _THRESHOLDS // 2).astype(np.int64)
    return np.concatenate([np.sort(each)[-above] for each in (inside, outside)])


def _bounds(inside: Outputs, outside: Outputs, thresholds: Outputs, delta: float, doubt: float) -> Outputs:
    """log((true positives - delta) / false positives) of each threshold, both rates at their worst."""
    true = _at_least(_above(inside, thresholds), len(inside), doubt)
    false = _at_most(_above(outside, thresholds), len(outside), doubt)
    return np.log(np.maximum(true - delta, np.finfo(np.float64).tiny) / false)


def _above(outputs: Outputs, thresholds: Outputs) -> NDArray[np.int64]:
    return len(outputs) - np.searchsorted(np.sort(outputs), thresholds, side="right")


def _at_least(hits: NDArray[np.int64], tries: int, doubt: float) -> Outputs:
    """The lower Clopper-Pearson bound of a rate."""
    some = np.maximum(hits, 1)
    return np.where(hits == 0, 0.0, beta.ppf(doubt, some, tries - some + 1))


def _at_most(hits: NDArray[np.int64], tries: int, doubt: float) -> Outputs:
    """The upper Clopper-Pearson bound of a rate."""
    return 1 - _at_least(tries - hits, tries, doubt)


def _check(delta: float, draws: int, confidence: float) -> None:
    if not 0 <= delta < 1:
        raise SettingsError(f"delta is {delta!r}; it takes a number from 0 to below 1")
    if draws < 2:
        raise SettingsError(f"draws is {draws}; it takes 2 or more, and 200,000 for a bound that says something")
    if not 0 < confidence < 1:
        raise SettingsError(f"confidence is {confidence!r}; it takes a number between 0 and 1, such as 0.95")
