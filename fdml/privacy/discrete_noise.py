"""Noise in whole steps of a grid: the discrete Gaussian and the discrete Laplace distribution, drawn exactly.

A whole number i is drawn with probability proportional to exp(-z^2 / 2) or exp(-z), z = |i| / scale. No float is
rounded on the way, so no number is impossible or more likely than it should be, however large the noise.

The method is rejection with exact chances of exp(-x), as of Canonne, Kamath and Steinke (2020), with the proposals of
Karney (2016): k is drawn with probability proportional to the weight at z = k, i uniformly from the numbers with
k <= z < k + 1, and it is kept with chance weight(z) / weight(k). Each chance is compared with 64 random bits in double
precision. Where these are too close to tell (less than one time in 2^34), the comparison is made with whole numbers
and as many further bits as it takes. So the distance to the exact distribution is 0, given perfect random bits, and
the outcome is the same on every machine.

How much it hides: the discrete Laplace distribution has the epsilon of the continuous one. The discrete Gaussian
distribution of variance s^2 + 4 is what rounding makes of a continuous one of variance s^2, to one part in 2^110
(docs/decisions/0016), so `noise_on_grid` adds these 4 steps squared and all that is known of the continuous one holds.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from itertools import count
from typing import Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from fdml.errors import SettingsError
from fdml.privacy.noise import NoiseKey, RandomBits

Law = Literal["gaussian", "laplace"]
Numbers = NDArray[np.int64]

LARGEST_SCALE = 2.0**52
"""In steps of the grid; with more, the largest numbers would not fit 64 bits."""
_ROUNDING_VARIANCE = 4.0
"""In steps squared: what a discrete Gaussian needs on top of the continuous one to hide as much."""
_WORDS = 3
"""Of one candidate: k and sign, place, and chance."""
_TIE = 2.0**-36
"""Chances nearer than this to their 64 random bits are compared exactly: far over the error of the floats."""
_KEPT = {"gaussian": 0.68, "laplace": 0.63}
"""The share of candidates that are kept."""
_MOST_CANDIDATES = 1 << 16
"""That are made at once."""
_BITS = 63
"""Of a candidate's first word that choose k; the last one is the sign."""

Bracket = Callable[[int], tuple[Fraction, Fraction]]
"""A real number as bounds on it, about so many decimal digits apart."""


def noise_on_grid(law: Law, sigma: float, step: float) -> DiscreteNoise:
    """Noise on multiples of `step` that hides at least as much as continuous noise of this sigma."""
    scale = sigma / step
    if not scale <= LARGEST_SCALE:
        raise SettingsError(
            f"noise of sigma {sigma:g} is {scale:.3g} steps of the grid of {step:g}, and no more than "
            f"{LARGEST_SCALE:.3g} can be drawn; lower sigma, or set fewer training.value_bits"
        )
    if law == "gaussian":
        scale = math.nextafter(math.sqrt(scale * scale + _ROUNDING_VARIANCE), math.inf)
    return discrete_noise(law, scale)


@lru_cache(maxsize=64)
def discrete_noise(law: Law, scale: float) -> DiscreteNoise:
    """The distribution of this scale, its tables made once."""
    return DiscreteNoise(law, scale)


class DiscreteNoise:
    """A discrete Gaussian (standard deviation `scale`, in steps) or Laplace (`scale`) distribution around 0."""

    def __init__(self, law: Law, scale: float) -> None:
        if not 0.0 < scale <= 2 * LARGEST_SCALE:
            raise SettingsError(f"the scale of noise is {scale!r} steps; it takes a number from 0 to {LARGEST_SCALE:g}")
        self.law: Law = law
        self._scale = scale
        self._exact_scale = Fraction(scale)
        thresholds = _thresholds(law)
        span = math.ceil(self._exact_scale)
        self._tables = _Tables(
            thresholds=thresholds,
            starts=np.array([self._start(k) for k in range(len(thresholds) + 1)], np.int64),
            span=np.uint64(span),
            last=np.uint64(2**64 - 2**64 % span - 1),
            scale=scale,
            square=law == "gaussian",
        )

    def draw(self, key: NoiseKey, purpose: str, number: int, size: int) -> Numbers:
        """So many numbers; the same for the same key, purpose and number, and the first of them for any size."""
        bits, further = key.bits(purpose, number), key.bits(f"{purpose}: ties", number)
        found, filled = np.empty(size, np.int64), 0
        while filled < size:
            candidates = min(int((size - filled) / _KEPT[self.law]) + 64, _MOST_CANDIDATES)
            filled = self._fill(found, filled, bits.words(_WORDS * candidates), further)
        return found

    def _fill(self, found: Numbers, filled: int, words: NDArray[np.uint64], further: RandomBits) -> int:
        """Take numbers from the candidates until these end or all are found; gives how many are found by then."""
        candidate = 0
        while candidate < len(words) // _WORDS and filled < len(found):
            candidate, filled, tied = _keep(words, candidate, self._tables, found, filled)
            if tied:
                exact = self._decide([int(word) for word in words[_WORDS * candidate :][:_WORDS]], further)
                if exact is not None:
                    found[filled] = exact
                    filled += 1
                candidate += 1
        return filled

    def _start(self, k: int) -> int:
        """The first number with z >= k."""
        return math.ceil(self._exact_scale * k)

    def _decide(self, words: list[int], further: RandomBits) -> int | None:
        """The number of one candidate, or None if it is not kept; in whole numbers alone."""
        choice = _Uniform(words[0] >> 1, _BITS, further)
        k = next(k for k in count() if choice.is_below(_share_up_to(self.law, k)))
        if words[1] > int(self._tables.last):
            return None
        found = self._start(k) + words[1] % int(self._tables.span)
        negative = bool(words[0] & 1)
        if found >= self._start(k + 1) or (negative and not found):
            return None
        z = found / self._exact_scale
        exponent = (z * z - k * k) / 2 if self.law == "gaussian" else z - k
        if exponent and not _Uniform(words[2], 64, further).is_below(lambda digits: _exp_of_minus(exponent, digits)):
            return None
        return -found if negative else found


class _Tables(NamedTuple):
    """What the compiled loop needs of a distribution."""

    thresholds: NDArray[np.uint64]
    """2^63 times the chance of each k and all below it, rounded down."""
    starts: Numbers
    """The first number with z >= k, for each k."""
    span: np.uint64
    """How many numbers there are at most from one start to the next."""
    last: np.uint64
    """The largest word below which all remainders by `span` are equally frequent."""
    scale: float
    square: bool


@numba.njit(nogil=True, cache=True)
def _keep(words: NDArray[np.uint64], first: int, tables: _Tables, found: Numbers, filled: int) -> tuple[int, int, bool]:
    """Write the numbers of candidates that are kept to `found`, from candidate `first` on.

    Gives the next candidate, how many numbers are found, and whether that candidate must be decided exactly.
    """
    one = np.uint64(1)
    candidate = first
    while candidate < len(words) // _WORDS and filled < len(found):
        choice, place, chance = words[_WORDS * candidate : _WORDS * (candidate + 1)]
        part, k = choice >> one, 0
        while k < len(tables.thresholds) - 1 and part > tables.thresholds[k]:
            k += 1
        if part == tables.thresholds[k]:
            return candidate, filled, True
        candidate += 1
        if place > tables.last:
            continue
        number = tables.starts[k] + np.int64(place % tables.span)
        negative = (choice & one) == one
        if number >= tables.starts[k + 1] or (negative and number == 0):
            continue
        # kept with chance exp(-(z^2 - k^2) / 2) or exp(-(z - k))
        z = number / tables.scale
        over = (z - k) * (z + k) * 0.5 if tables.square else z - k
        margin = np.float64(chance) * 2.0**-64 - np.exp(-over)
        if abs(margin) <= _TIE:
            return candidate - 1, filled, True
        if margin < 0.0:
            found[filled] = -number if negative else number
            filled += 1
    return candidate, filled, False


class _Uniform:
    """A number from 0 to 1 of which further bits are drawn when they are needed."""

    def __init__(self, leading: int, bits: int, further: RandomBits) -> None:
        self._leading = leading
        self._bits = bits
        self._further = further

    def is_below(self, other: Bracket) -> bool:
        """Whether it is less than a real number that has no end in binary."""
        digits = 40
        while True:
            low, high = other(digits)
            if Fraction(self._leading + 1, 1 << self._bits) <= low:
                return True
            if Fraction(self._leading, 1 << self._bits) >= high:
                return False
            self._leading = (self._leading << 64) | int(self._further.words(1)[0])
            self._bits += 64
            digits += 20


def _exp_of_minus(exponent: Fraction, digits: int) -> tuple[Fraction, Fraction]:
    """Bounds on exp(-exponent); the context's exp is rounded correctly, and so is the quotient before it."""
    with decimal.localcontext(prec=digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX):
        value = Fraction((-decimal.Decimal(exponent.numerator) / decimal.Decimal(exponent.denominator)).exp())
    doubt = value * (math.ceil(exponent) + 2) / 10 ** (digits - 2)
    return value - doubt, value + doubt


def _share_up_to(law: Law, k: int) -> Bracket:
    """The chance that no larger k than this is drawn."""
    if law == "laplace":
        return lambda digits: _one_less(_exp_of_minus(Fraction(k + 1), digits))

    def share(digits: int) -> tuple[Fraction, Fraction]:
        end = max(k, math.isqrt(5 * digits)) + 3  # the weights from there on are below 10^-digits together
        weights = [_exp_of_minus(Fraction(j * j, 2), digits) for j in range(end)]
        least, most = (sum((each[side] for each in weights[: k + 1]), Fraction(0)) for side in (0, 1))
        over_least, over_most = (sum((each[side] for each in weights[k + 1 :]), Fraction(0)) for side in (0, 1))
        return least / (least + over_most + Fraction(1, 10**digits)), most / (most + over_least)

    return share


def _one_less(bounds: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    return 1 - bounds[1], 1 - bounds[0]


@lru_cache(maxsize=2)
def _thresholds(law: Law) -> NDArray[np.uint64]:
    """Of all k but those beyond which less than 2^-63 is left."""
    found: list[int] = []
    while not found or found[-1] < 2**_BITS - 1:
        (below,) = {math.floor(side * 2**_BITS) for side in _share_up_to(law, len(found))(60)}
        found.append(below)
    return np.array(found, np.uint64)
