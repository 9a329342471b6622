"""The noise of DP-SGD; what models make of it is in `tests/models/test_dp_sgd_models.py`."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.privacy.discrete_noise import noise_on_grid
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey

KEY = NoiseKey(b"a secret of this run")


def test_noise_follows_from_key_and_number_alone():
    dp_sgd, total = DpSgd(1.0, 2.0, KEY), np.linspace(-3.0, 3.0, 50)
    np.testing.assert_array_equal(dp_sgd.noisy(3, total), DpSgd(1.0, 2.0, NoiseKey(KEY.secret)).noisy(3, total))
    assert not np.isclose(dp_sgd.noisy(3, total), dp_sgd.noisy(4, total)).any()
    assert not np.isclose(dp_sgd.noisy(3, total), DpSgd(1.0, 2.0, NoiseKey(b"another")).noisy(3, total)).any()


@pytest.mark.parametrize(("clip", "sigma"), [(1.0, 2.0), (0.3, 40.0), (1e-3, 1e3), (1e6, 5.0), (1.0, 1e9)])
def test_a_sum_leaves_in_whole_steps_with_a_discrete_gaussian(clip, sigma):
    """No float of the sum or of the noise shows: what comes out is a whole number of steps."""
    dp_sgd, total = DpSgd(clip, sigma, KEY), np.linspace(-5 * clip, 5 * clip, 4000)
    steps = dp_sgd.noisy(0, total) / dp_sgd.step
    wanted = noise_on_grid("gaussian", sigma, dp_sgd.step).draw(KEY, "gradient", 0, 4000)
    np.testing.assert_allclose(steps, np.rint(total / dp_sgd.step) + wanted, rtol=4e-16)
    assert steps.std() * dp_sgd.step == pytest.approx(math.hypot(sigma, total.std()), rel=0.05)
    assert math.log2(dp_sgd.step).is_integer()


@given(st.floats(1e-6, 1e6), st.floats(1e-3, 2.0**15))
def test_rounding_is_far_below_what_a_row_is_clipped_to(clip, ratio):
    """A billion parameters, each rounded by half a step, move a sum by less than the clip was lowered for."""
    dp_sgd = DpSgd(clip, ratio * clip, KEY)
    assert dp_sgd.row_clip * (1 + 3 * 2.0**-24) + math.sqrt(2.0**28) * dp_sgd.step / 2 <= clip


def test_without_noise_a_sum_is_left_alone():
    total = np.array([0.1, 1 / 3])
    np.testing.assert_array_equal(DpSgd(1.0, 0.0, KEY).noisy(0, total), total)


@pytest.mark.parametrize("clip", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_that_bounds_nothing_is_refused(clip):
    with pytest.raises(SettingsError, match=rf"guard.training.clip is {clip}; give a positive number"):
        DpSgd(clip, 1.0, KEY)


@pytest.mark.parametrize("sigma", [-1.0, math.inf, math.nan])
def test_a_deviation_that_is_none_is_refused(sigma):
    with pytest.raises(SettingsError, match=rf"guard.training.sigma is {sigma}; give a number"):
        DpSgd(1.0, sigma, KEY)


def test_the_secret_is_not_shown():
    assert "secret" not in repr(DpSgd(1.0, 1.0, KEY))
