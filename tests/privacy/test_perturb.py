"""Clip and noise: nothing longer than the clip leaves, and the noise is the noise that the ledger counts with."""

from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fdml.errors import SettingsError, TrainingDiverged
from fdml.privacy.discrete_noise import noise_on_grid
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import FIXED_POINTS, INT64, decode, encode
from tests.examples import examples
from tests.protocol.codes import LARGEST_CODE

KEY = NoiseKey(bytes(range(32)))
MANY = 20_000
NOISES = ("gaussian", "laplace")
LAWS = {"gaussian": stats.norm, "laplace": stats.laplace}
FRACTION_BITS = INT64.fraction_bits
GRID = 2.0**-FRACTION_BITS


def perturbation(noise="none", clip=1.0, sigma=0.0, key=KEY):
    return Perturbation(Mechanism(noise, clip, sigma), key)


def noise_of(noise, sigma, *, outputs=1, number=0, purpose="push", key=KEY):
    """What is left of a release when the exact predictions, all on the grid, are taken off."""
    exact = np.linspace(-0.5, 0.5, 65)[np.arange(MANY) % 65].reshape(-1, outputs) / outputs
    exact = decode(encode(exact))
    return decode(perturbation(noise, 1.0, sigma, key).protect(exact, purpose, number) - encode(exact))


def length(codes, noise):
    """In whole steps of the grid, without a rounding of its own."""
    whole = codes.astype(object)
    return (abs(whole).sum(axis=1), 1) if noise == "laplace" else ((whole**2).sum(axis=1), 2)


# Clip


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
@pytest.mark.parametrize("outputs", [1, 2, 3, 4])
@examples(40)
@given(data=st.data(), clip=st.floats(1e-12, 1000.0), width=st.sampled_from([32, 64]))
def test_no_row_is_longer_than_the_clip_even_after_rounding(bits, noise, outputs, data, clip, width):
    grid = FIXED_POINTS[bits]
    most = float(np.float32(grid.largest(2)) * np.float32(0.99))
    elements = st.floats(-most, most, width=width) | st.floats(-2, 2, width=width)
    predictions = data.draw(arrays(f"float{width}", (5, outputs), elements=elements))
    without_noise = Perturbation(Mechanism(noise, clip, 1.0), None, grid, 2)
    lengths, order = length(without_noise.protect(predictions, "push", 0), noise)
    longest = Fraction(clip) * 2**grid.fraction_bits
    assert all(each <= longest**order for each in lengths)


@pytest.mark.parametrize("noise", ["none", "gaussian", "laplace"])
@given(
    predictions=arrays(np.float64, (4, 3), elements=st.floats(-0.19, 0.19)),
    clip=st.floats(1.0, 1e300) | st.just(np.inf),
)
def test_what_is_shorter_than_the_clip_leaves_as_it_is_but_for_half_a_step_of_the_grid(noise, predictions, clip):
    sigma = 0.0 if noise == "none" else 1.0
    clip = min(clip, 1e300) if noise != "none" else clip
    codes = Perturbation(Mechanism(noise, clip, sigma), None).protect(predictions, "push", 0)
    assert codes.dtype == np.int64
    np.testing.assert_array_equal(codes, encode(predictions))


def test_gaussian_noise_comes_with_a_clip_in_l2_and_laplace_noise_with_one_in_l1():
    long = np.array([[3.0, 4.0], [0.0, -9.0]])
    l2 = decode(Perturbation(Mechanism("gaussian", 1.0, 1.0), None).protect(long, "push", 0))
    l1 = decode(Perturbation(Mechanism("laplace", 1.0, 1.0), None).protect(long, "push", 0))
    np.testing.assert_allclose(l2, [[0.6, 0.8], [0.0, -1.0]], atol=3 * GRID)
    np.testing.assert_allclose(l1, [[3 / 7, 4 / 7], [0.0, -1.0]], atol=3 * GRID)


def test_a_clip_without_noise_only_clips():
    codes = perturbation("none", 2.0).protect(np.array([[1.5], [-7.0], [0.0]]), "push", 3)
    np.testing.assert_allclose(decode(codes), [[1.5], [-2.0], [0.0]], atol=2 * GRID)
    assert abs(int(codes[1, 0])) <= 2 << FRACTION_BITS


@pytest.mark.parametrize("clip", [2.0**-40, GRID, 3 * GRID])
def test_a_clip_below_the_grid_lets_nothing_out_that_is_longer(clip):
    codes = perturbation("none", clip).protect(np.array([[1.0, -1.0], [0.0, 5.0]]), "push", 0)
    assert all(each <= (clip / GRID) ** 2 for each in length(codes, "none")[0])


@pytest.mark.parametrize("clip", [1e-3, 1.0, 5.0, 1e9])
def test_predictions_of_nothing_pass_any_clip(clip):
    """Every model begins there."""
    assert not perturbation("none", clip).protect(np.zeros((3, 2), np.float32), "push", 0).any()
    assert perturbation("gaussian", clip, 1.0).protect(np.zeros((0, 2), np.float32), "push", 0).shape == (0, 2)


# Noise


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("sigma", [0.01, 1.0, 300.0])
def test_the_noise_has_the_law_that_the_ledger_counts_with(noise, outputs, sigma):
    found = noise_of(noise, sigma, outputs=outputs).ravel()
    variance = Mechanism(noise, 1.0, sigma).variance
    fourth = {"gaussian": 3.0, "laplace": 6.0}[noise]
    assert abs(found.mean()) < 4.5 * np.sqrt(variance / MANY)
    assert abs(found.var() / variance - 1) < 4.5 * np.sqrt((fourth - 1) / MANY)
    assert stats.kstest(found, LAWS[noise](scale=sigma).cdf).pvalue > 1e-4


@pytest.mark.parametrize("noise", NOISES)
def test_the_noise_of_each_value_is_its_own(noise):
    """Neither between outputs, nor between rows, nor between the two halves that are drawn together."""
    found = noise_of(noise, 1.0, outputs=2)
    flat = found.ravel()
    for one, other in ((found[:, 0], found[:, 1]), (flat[:-1], flat[1:]), (flat[: MANY // 2], flat[MANY // 2 :])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 4.5 / np.sqrt(len(one))
        assert abs(np.corrcoef(np.abs(one), np.abs(other))[0, 1]) < 4.5 / np.sqrt(len(one))


@pytest.mark.parametrize("noise", NOISES)
def test_no_digit_of_a_prediction_stays_uncovered(noise):
    """Of predictions that are all whole numbers, every bit of what leaves is as often 0 as 1."""
    codes = perturbation(noise, 10.0, 2.0).protect(np.full((MANY, 1), 3.0), "push", 0).ravel()
    for bit in range(FRACTION_BITS):
        ones = int(((codes >> bit) & 1).sum())
        assert abs(ones - MANY / 2) < 4.5 * np.sqrt(MANY) / 2, bit
    assert reduce(np.gcd, (codes - codes[0]).tolist()) == 1
    assert len(np.unique(codes)) > MANY - 3  # one in a hundred times two of them meet


@pytest.mark.parametrize("noise", NOISES)
@given(number=st.integers(0, 2**63), purpose=st.sampled_from(["push", "held-out"]))
def test_the_same_purpose_and_number_meet_the_same_noise(noise, number, purpose):
    predictions = np.linspace(-1, 1, 7).reshape(-1, 1)
    first, again = (perturbation(noise, 1.0, 0.5, NoiseKey(KEY.secret)) for _ in range(2))
    again.protect(predictions, "push", 5)  # whatever was drawn before
    np.testing.assert_array_equal(
        first.protect(predictions, purpose, number), again.protect(predictions, purpose, number)
    )


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("other", [{"number": 1}, {"purpose": "held-out"}, {"key": NoiseKey(b"k" * 32)}])
def test_another_purpose_number_or_key_meets_unrelated_noise(noise, other):
    one, two = noise_of(noise, 1.0).ravel(), noise_of(noise, 1.0, **other).ravel()
    assert not (one == two).any()
    assert abs(np.corrcoef(one, two)[0, 1]) < 4.5 / np.sqrt(MANY)


@pytest.mark.parametrize(("purpose", "stream"), [("push", "push"), ("held-out", "trial")])
def test_a_release_has_noise_of_its_own_beside_what_else_the_key_gives(purpose, stream):
    """Noise in training and randomised labels follow from the same key; the name of a stream never changes."""
    found = noise_of("gaussian", 1.0, purpose=purpose).ravel()
    law = noise_on_grid("gaussian", 1.0, GRID)
    np.testing.assert_array_equal(found, law.draw(KEY, f"release {stream}", 0, MANY) * GRID)
    for other in ("push", "held-out", "labels", "gradient"):
        assert not (found == law.draw(KEY, other, 0, MANY) * GRID).any()


@pytest.mark.parametrize("noise", NOISES)
def test_noise_however_large_stays_within_what_may_travel(noise):
    codes = perturbation(noise, 1e6, 1e6).protect(np.full((MANY, 1), 1e6), "push", 0)
    assert int(np.abs(codes).max()) == LARGEST_CODE


@pytest.mark.parametrize("noise", NOISES)
def test_noise_too_large_for_the_grid_is_refused_before_anything_leaves(noise):
    with pytest.raises(SettingsError, match=r"noise of sigma 1e[+]12 is .* steps of the grid of .*; lower sigma"):
        perturbation(noise, 1e6, 1e12)


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("noise", NOISES)
def test_what_leaves_is_the_rounded_prediction_and_whole_steps_of_noise(noise, bits):
    grid = FIXED_POINTS[bits]
    exact = np.linspace(-0.9, 0.9, 51).reshape(-1, 3) / 3
    given = Perturbation(Mechanism(noise, 1.0, 0.5), KEY, grid, 2)
    drawn = noise_on_grid(noise, 0.5, grid.step).draw(KEY, "release push", 4, exact.size).reshape(exact.shape)
    codes = given.protect(exact, "push", 4)
    assert codes.dtype == grid.dtype
    np.testing.assert_array_equal(codes, np.rint(exact / grid.step).astype(np.int64) + drawn)


# What is no number


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "named"),
    [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf"), (2.0**21, "2.09715e[+]06"), (-(2.0**21), "2.09715e[+]06")],
)
def test_without_a_clip_what_is_no_number_in_range_does_not_leave(value, named, dtype):
    predictions = np.zeros((5, 2), dtype)
    predictions[3, 1] = value
    with pytest.raises(TrainingDiverged, match=f"a local prediction is {named}, past the .* lower learning_rate"):
        perturbation("none", np.inf).protect(predictions, "push", 0)


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("kind", ["none", "gaussian", "laplace"])
@pytest.mark.parametrize("value", [2e6, -2e6, 3e38, 1e300, -1e300, np.nan, np.inf, -np.inf])
def test_with_a_clip_one_row_does_not_end_the_run(kind, value, bits):
    """Finding 18: a clip of 3 and one row that predicts 2e6 ended the run, which tells of that row without noise."""
    predictions = np.full((5, 2), 0.25)
    predictions[3] = (value, 0.0)
    mechanism = Mechanism(kind, 3.0, 0.0 if kind == "none" else 0.5)
    exact = decode(Perturbation(mechanism, None, FIXED_POINTS[bits], 3).protect(predictions, "push", 0))
    np.testing.assert_array_equal(np.delete(exact, 3, axis=0), 0.25)
    wanted = np.copysign(3.0, value) if np.isfinite(value) and abs(value) < 1e100 else None
    assert abs(exact[3, 0]) <= 3.0
    if wanted is not None:
        assert exact[3, 0] == pytest.approx(wanted, abs=3 * FIXED_POINTS[bits].step)
    key = None if kind == "none" else KEY
    noisy = Perturbation(mechanism, key, FIXED_POINTS[bits], 3).protect(predictions, "push", 0)
    assert np.abs(decode(noisy)).max() < 3.0 + 12.0


@pytest.mark.parametrize("kind", ["none", "gaussian", "laplace"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_block_without_a_number_means_that_training_has_diverged(kind, value):
    with pytest.raises(TrainingDiverged, match="no local prediction of a block is a number: training has diverged"):
        perturbation(kind, 1.0, 0.0 if kind == "none" else 1.0).protect(np.full((5, 2), value), "push", 0)


@pytest.mark.parametrize("parties", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_16_bits_cut_what_is_a_little_too_large(parties, dtype):
    bound = FIXED_POINTS[16].largest(parties)
    values = np.array([[0.5], [bound], [1.5 * bound], [-16.0 * bound]], dtype)
    codes = Perturbation(Mechanism("none", np.inf, 0.0), None, FIXED_POINTS[16], parties).protect(values, "push", 0)
    np.testing.assert_array_equal(decode(codes), [[0.5], [bound], [bound], [-bound]])


@pytest.mark.parametrize("factor", [16.1, -16.1, 1e30, np.inf, -np.inf, np.nan])
def test_16_bits_do_not_hide_that_training_has_diverged(factor):
    values = np.array([[0.5], [factor * FIXED_POINTS[16].largest(3)]])
    with pytest.raises(
        TrainingDiverged, match=r"past the 341\.\d+ that can be exchanged: .*, raise value_bits \(now 16\)"
    ):
        Perturbation(Mechanism("none", np.inf, 0.0), None, FIXED_POINTS[16], 3).protect(values, "push", 0)


def test_a_clip_makes_any_number_fit_16_bits():
    values = np.array([[1e6], [-1e30], [0.25]])
    clipped = decode(Perturbation(Mechanism("none", 2.0, 0.0), None, FIXED_POINTS[16], 3).protect(values, "push", 0))
    assert np.abs(clipped).max() <= 2.0
    assert np.abs(clipped[:2]).min() > 1.9
    assert clipped[2, 0] == pytest.approx(0.25, abs=0.002)
