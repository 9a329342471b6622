"""An attacker that sees outputs only never does better than claimed, and sees where a claim is wrong."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.privacy.discrete_noise import noise_on_grid
from fdml.privacy.empirical import lower_bound
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import INT64

SECRET = b"a secret of thirty-two bytes ..."
CLIP = 3.0
DELTA = 1e-5
RATIOS = (0.5, 1.0, 1.5, 2.0, 4.0, 8.0, 16.0)


def gaussian(ratio, releases=1):
    """Clipping and the party's own noise; of several releases the mean, which tells all that they tell together."""
    law, key, numbers = noise_on_grid("gaussian", ratio * CLIP, INT64.step), NoiseKey(SECRET), count()

    def draw(value, count):
        noise = np.zeros(count)
        for _ in range(releases):
            noise += INT64.step * law.draw(key, "tried", next(numbers), count)
        return np.clip(value, -CLIP, CLIP) + noise / releases

    return draw


def laplace(ratio, secret=SECRET):
    law, key, numbers = noise_on_grid("laplace", ratio * CLIP, INT64.step), NoiseKey(secret), count()
    return lambda value, count: value + INT64.step * law.draw(key, "tried", next(numbers), count)


def claimed(ratio, releases=1, noise="gaussian"):
    return epsilon_of(Mechanism(noise, CLIP, ratio * CLIP), releases, DELTA)


@pytest.mark.parametrize("ratio", RATIOS)
def test_gaussian_noise_hides_what_it_claims_to(ratio):
    assert lower_bound(gaussian(ratio), CLIP, DELTA) <= claimed(ratio)


@pytest.mark.parametrize("ratio", [1.0, 1.25, 1.5, 1.75, 2.0])
def test_the_bound_says_something(ratio):
    assert lower_bound(gaussian(ratio), CLIP, DELTA) >= 0.4 * claimed(ratio)


@pytest.mark.parametrize("releases", [2, 5, 10])
def test_several_releases_disclose_more_but_no_more_than_the_ledger_says(releases):
    found = lower_bound(gaussian(8.0, releases), CLIP, DELTA, draws=100_000)
    assert lower_bound(gaussian(8.0), CLIP, DELTA, draws=100_000) < found <= claimed(8.0, releases)


@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0, 8.0])
def test_laplace_noise_hides_what_it_claims_to(ratio):
    found = lower_bound(laplace(ratio), CLIP, DELTA)
    assert 0.8 * claimed(ratio, noise="laplace") <= found <= claimed(ratio, noise="laplace")


@pytest.mark.parametrize("ratio", [2.0, 4.0, 8.0, 16.0])
def test_noise_of_half_the_claimed_strength_is_caught(ratio):
    assert lower_bound(gaussian(ratio / 2), CLIP, DELTA) > claimed(ratio)


def test_a_sensitivity_of_one_clip_instead_of_two_is_caught():
    """Calibrating for rows that are left out, not replaced, would claim half of mu."""
    assert lower_bound(gaussian(2.0), CLIP, DELTA) > claimed(4.0)


def test_a_guard_that_forgets_the_noise_is_caught_up_to_what_so_many_draws_can_show():
    found = lower_bound(lambda value, count: np.full(count, value), CLIP, DELTA)
    assert math.log(200_000 / 9) - 0.1 < found < math.log(200_000)


@pytest.mark.parametrize("cut", [np.minimum, np.maximum])
def test_an_output_without_one_tail_is_tested_by_the_other(cut):
    noisy = gaussian(1.0)
    assert lower_bound(lambda value, count: cut(noisy(value, count), 0.0), CLIP, DELTA) > 2


def test_outputs_that_say_nothing_give_0():
    assert lower_bound(lambda value, count: np.zeros(count), CLIP, DELTA) == 0.0
    assert lower_bound(gaussian(1000.0), CLIP, DELTA) < 0.01


def test_the_bound_holds_as_often_as_it_promises():
    """At 50 % confidence and the true epsilon of a narrow case, at most about half of the outcomes may exceed it."""
    drawers = [laplace(2.0, bytes([seed]) * 32) for seed in range(100)]
    outcomes = [lower_bound(draw, CLIP, 0.0, draws=2000, confidence=0.5) for draw in drawers]
    assert sum(found > claimed(2.0, noise="laplace") for found in outcomes) <= 50
    assert max(outcomes) > 0.5 * claimed(2.0, noise="laplace")


def test_more_draws_and_less_confidence_bring_the_bound_closer():
    few, many = (lower_bound(gaussian(2.0), CLIP, DELTA, draws=draws) for draws in (2_000, 400_000))
    sure, unsure = (lower_bound(gaussian(2.0), CLIP, DELTA, confidence=confidence) for confidence in (0.999, 0.5))
    assert few < many
    assert sure < unsure


def test_outputs_may_come_in_columns():
    noisy = gaussian(2.0)
    assert lower_bound(lambda value, count: noisy(value, count)[:, None], CLIP, DELTA) > 1.5


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"delta": -0.1}, "delta is -0.1"),
        ({"delta": 1.0}, "delta is 1.0"),
        ({"draws": 1}, "draws is 1; it takes 2 or more"),
        ({"confidence": 1.0}, "confidence is 1.0; it takes a number between 0 and 1"),
    ],
)
def test_wrong_values_are_named(wrong, message):
    with pytest.raises(SettingsError, match=message):
        lower_bound(gaussian(1.0), **({"clip": CLIP, "delta": DELTA} | wrong))
