"""Noise on the grid has exactly the distribution that the ledger counts with, at any scale."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fdml.errors import SettingsError
from fdml.privacy.discrete_noise import (
    LARGEST_SCALE,
    DiscreteNoise,
    _exp_of_minus,
    _thresholds,
    _Uniform,
    discrete_noise,
    noise_on_grid,
)
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import FIXED_POINTS, INT64
from tests.examples import examples

KEY = NoiseKey(b"a secret of thirty-two bytes ...")
LAWS = ("gaussian", "laplace")
MANY = 100_000


def draw(law, scale, size=MANY, number=0, key=KEY):
    return DiscreteNoise(law, scale).draw(key, "tried", number, size)


def exponent(law, number, scale):
    z = Fraction(abs(number)) / Fraction(scale)
    return z * z / 2 if law == "gaussian" else z


def probabilities(law, scale):
    """Of 0, 1, -1, 2, -2, ... as far as they can be seen; their sum is taken without rounding errors."""
    far = math.ceil(scale * (9 if law == "gaussian" else 40)) + 1
    numbers = np.arange(-far, far + 1)
    weights = [math.exp(-float(exponent(law, int(each), scale))) for each in numbers]
    return numbers, np.array(weights) / math.fsum(weights)


@pytest.mark.parametrize("scale", [0.05, 0.3, 0.5, 1.0, 1.7, 2.5, 8.0, 33.3])
@pytest.mark.parametrize("law", LAWS)
def test_every_number_is_as_frequent_as_its_exact_probability(law, scale):
    """Chi-square of all numbers that are expected five times or more, the rest of both sides together."""
    numbers, chances = probabilities(law, scale)
    found = draw(law, scale)
    assert set(np.unique(found)) <= set(numbers.tolist())
    counts = np.bincount(found - numbers[0], minlength=len(numbers))
    common = chances * MANY >= 5
    observed = [*counts[common], counts[~common].sum()]
    expected = [*chances[common] * MANY, chances[~common].sum() * MANY]
    if expected[-1] < 5:
        assert observed[-1] <= 25
        observed, expected = observed[:-1], np.array(expected[:-1]) * sum(observed[:-1]) / sum(expected[:-1])
    if len(observed) > 1:
        assert stats.chisquare(observed, expected).pvalue > 1e-4


@pytest.mark.parametrize("scale", [1000.0, 2.0**20, 2.0**32 * 1.3, 2.0**50])
@pytest.mark.parametrize("law", LAWS)
def test_a_large_scale_has_the_moments_and_the_law_of_the_continuous_one(law, scale):
    found = draw(law, scale) / scale
    continuous = {"gaussian": stats.norm, "laplace": stats.laplace}[law]
    fourth = {"gaussian": 3.0, "laplace": 6.0}[law] * continuous.var() ** 2
    assert abs(found.mean()) < 4.5 * continuous.std() / math.sqrt(MANY)
    assert abs(found.var() - continuous.var()) < 4.5 * math.sqrt((fourth - continuous.var() ** 2) / MANY)
    assert stats.kstest(found, continuous.cdf).pvalue > 1e-4


@pytest.mark.parametrize("law", LAWS)
def test_low_digits_of_large_noise_are_even(law):
    """A rounded float has none at this scale."""
    found = draw(law, 2.0**50)
    for bit in range(46):
        ones = int(((found >> bit) & 1).sum())
        assert abs(ones - MANY / 2) < 4.5 * math.sqrt(MANY) / 2, bit


def words_for(noise, number, chance):
    """The three random words that propose a number, whose chance is compared with `chance`."""
    k = next(k for k in range(100) if noise._start(k + 1) > abs(number))
    thresholds = _thresholds(noise.law)
    part = 0 if k == 0 else int(thresholds[k - 1]) + 1
    return np.array([part << 1 | (number < 0), abs(number) - noise._start(k), chance], np.uint64)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("sigmas", [0.5, 3.3, 5.2])
def test_no_code_is_impossible_at_a_sigma_of_150_000(sigmas, sign):
    """Finding 17: of rounded floats 0 to 3 were behind a code at 5 sigma, so some codes could not occur.

    Now every one of a thousand neighbouring codes is proposed by equally many random words, and kept with its exact
    chance: by every word below it, and by none above.
    """
    noise = noise_on_grid("gaussian", 150_000.0, INT64.step)
    scale, first = noise._exact_scale, int(sigmas * 150_000 / INT64.step)
    for number in (sign * each for each in range(first, first + 1000)):
        z, k = Fraction(abs(number)) / scale, math.floor(Fraction(abs(number)) / scale)
        chance = _exp_of_minus((z * z - k * k) / 2, 40)[0]
        for word, wanted in ((int(chance * 2**64) - 2**32, [number]), (int(chance * 2**64) + 2**32, [])):
            found = np.zeros(1, np.int64)
            filled = noise._fill(found, 0, words_for(noise, number, word), KEY.bits("ties", 0))
            assert found[:filled].tolist() == wanted


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.4, 1.0, 5.7, 300.0, 2.0**32 * 0.01, 2.0**52])
@pytest.mark.parametrize("law", LAWS)
def test_the_compiled_loop_keeps_what_exact_arithmetic_keeps(law, scale):
    noise = DiscreteNoise(law, scale)
    words = KEY.bits("candidates", 0).words(3 * 400)
    exact = [noise._decide([int(word) for word in each], KEY.bits("ties", 0)) for each in words.reshape(-1, 3)]
    wanted = [each for each in exact if each is not None]
    found = np.zeros(len(wanted), np.int64)
    assert noise._fill(found, 0, words, KEY.bits("ties", 0)) == len(wanted) > 50
    assert found.tolist() == wanted


@pytest.mark.parametrize("law", LAWS)
def test_a_chance_too_close_to_tell_is_decided_by_further_bits(law):
    """Of 64 bits that are those of the chance itself, as many are kept as the bits that follow say."""
    noise = DiscreteNoise(law, 100.0)
    number = 250
    over = exponent(law, number, 100.0) - exponent(law, 2, 1)
    (leading,) = {math.floor(side * 2**64) for side in _exp_of_minus(over, 60)}
    rest = float(_exp_of_minus(over, 60)[0] * 2**64 - leading)
    kept = 0
    for tie in range(400):
        found = np.zeros(1, np.int64)
        kept += noise._fill(found, 0, words_for(noise, number, leading), KEY.bits("ties", tie))
    assert abs(kept - 400 * rest) < 4.5 * math.sqrt(400 * rest * (1 - rest))


@pytest.mark.parametrize("law", LAWS)
def test_a_choice_on_a_threshold_is_decided_by_further_bits(law):
    noise, at = DiscreteNoise(law, 100.0), int(_thresholds(law)[0])
    outcomes = set()
    for tie in range(60):
        found = np.zeros(1, np.int64)
        words = np.array([at << 1, 0, 0], np.uint64)  # the first number of its k, which is always kept
        assert noise._fill(found, 0, words, KEY.bits("ties", tie)) == 1
        outcomes.add(int(found[0]))
    assert outcomes == {0, 100}


@pytest.mark.parametrize("law", LAWS)
def test_thresholds_are_the_sums_of_the_weights(law):
    with localcontext(prec=80):
        weights = [(-(Decimal(k * k) / 2 if law == "gaussian" else Decimal(k))).exp() for k in range(200)]
        sums = [sum(weights[: k + 1]) / sum(weights) * 2**63 for k in range(60)]
    found = _thresholds(law)
    assert [int(each) for each in found] == [int(each) for each in sums[: len(found)]]
    assert int(found[-1]) == 2**63 - 1


@examples(60)
@given(st.integers(0, 2**64 - 1), st.integers(0, 1000))
def test_a_uniform_number_is_compared_as_all_its_bits_say(leading, number):
    """With ten more words drawn at once the outcome is the same."""
    other = lambda digits: _exp_of_minus(Fraction(1, 3), digits)  # noqa: E731
    lazy = _Uniform(leading, 64, KEY.bits("further", number)).is_below(other)
    more = int.from_bytes(KEY.bits("further", number).words(10).astype(">u8").tobytes())
    assert lazy == (Fraction(leading << 640 | more, 1 << 704) < _exp_of_minus(Fraction(1, 3), 300)[0])


@pytest.mark.parametrize("law", LAWS)
@given(number=st.integers(0, 2**63), size=st.integers(0, 300), more=st.integers(0, 300))
def test_a_draw_follows_from_key_purpose_and_number_whatever_its_size(law, number, size, more):
    """So a restart meets the same noise."""
    noise = discrete_noise(law, 1e6)
    longer = noise.draw(KEY, "tried", number, size + more)
    np.testing.assert_array_equal(noise.draw(NoiseKey(KEY.secret), "tried", number, size), longer[:size])


@pytest.mark.parametrize("law", LAWS)
def test_other_purposes_numbers_and_keys_meet_unrelated_noise(law):
    noise = discrete_noise(law, 2.0**40)
    one = noise.draw(KEY, "tried", 0, 20_000)
    for other in (
        noise.draw(KEY, "tried", 1, 20_000),
        noise.draw(KEY, "other", 0, 20_000),
        noise.draw(NoiseKey(b"k" * 32), "tried", 0, 20_000),
    ):
        assert not (one == other).any()
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / math.sqrt(20_000)


def test_a_draw_larger_than_is_made_at_once_goes_on():
    found = draw("gaussian", 1e6, size=150_000)
    assert len(np.unique(found)) > 140_000
    assert abs(found[100_000:].std() / 1e6 - 1) < 0.02


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("sigma", [0.01, 0.3, 20.0])
def test_gaussian_noise_on_the_grid_is_wider_by_what_rounding_takes(bits, sigma):
    """A discrete Gaussian of variance s^2 + 4 steps is what rounding makes of a continuous one of variance s^2."""
    step = FIXED_POINTS[bits].step
    scale = noise_on_grid("gaussian", sigma, step)._exact_scale
    assert scale**2 >= Fraction(sigma / step) ** 2 + 4
    assert float(scale) == pytest.approx(math.sqrt((sigma / step) ** 2 + 4), rel=1e-15)
    assert noise_on_grid("laplace", sigma, step)._exact_scale == Fraction(sigma / step)


def test_rounding_a_continuous_gaussian_makes_the_discrete_one():
    """The lemma of docs/decisions/0016 in figures, with a rounding of variance 1 so that a difference could be seen."""
    grid, step = np.linspace(-40, 40, 16_001), 80 / 16_000
    density = stats.norm(scale=3.0).pdf(grid)
    numbers = np.arange(-50, 51)
    nearness = np.exp(-((numbers[:, None] - grid) ** 2) / 2)
    rounded = (nearness / nearness.sum(axis=0)) @ density * step
    wanted = np.exp(-(numbers**2) / (2 * 10.0))
    wanted /= wanted.sum()
    seen = wanted > 1e-12
    np.testing.assert_allclose(rounded[seen], wanted[seen], rtol=4 * 2 * math.exp(-2 * math.pi**2))


@pytest.mark.parametrize("law", LAWS)
def test_a_sigma_too_large_for_the_grid_is_refused(law):
    with pytest.raises(SettingsError, match=r"noise of sigma 2e\+06 is 8.59e\+15 steps .*; lower sigma, or set fewer"):
        noise_on_grid(law, 2e6, INT64.step)
    largest = noise_on_grid(law, LARGEST_SCALE * INT64.step, INT64.step).draw(KEY, "tried", 0, 1000)
    assert np.abs(largest).max() > LARGEST_SCALE


@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf])
def test_a_scale_that_is_none_is_refused(scale):
    with pytest.raises(SettingsError, match="the scale of noise is"):
        DiscreteNoise("gaussian", scale)
