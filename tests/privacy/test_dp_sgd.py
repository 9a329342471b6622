"""The noise of DP-SGD; what models make of it is in `tests/models/test_dp_sgd_models.py`."""

import math

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.noise import NoiseKey

KEY = NoiseKey(b"a secret of this run")


def test_noise_follows_from_key_and_number_alone():
    dp_sgd = DpSgd(1.0, 2.0, KEY)
    np.testing.assert_array_equal(dp_sgd.noise(3, 50), DpSgd(9.0, 2.0, KEY).noise(3, 50))
    assert not np.isclose(dp_sgd.noise(3, 50), dp_sgd.noise(4, 50)).any()
    assert not np.isclose(dp_sgd.noise(3, 50), DpSgd(1.0, 2.0, NoiseKey(b"another")).noise(3, 50)).any()


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
