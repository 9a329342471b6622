"""The closed form answers to the textbook in sixty digits, to the notes' table and to dp-accounting."""

from __future__ import annotations

import math

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, LaplaceDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import example, given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.privacy.epsilon import check_delta, gaussian_delta, gaussian_epsilon, gaussian_mu

mus = st.floats(-6, 2.5).map(lambda power: 10.0**power)
deltas = st.floats(-12, -1).map(lambda power: 10.0**power)
epsilons = st.floats(-4, 4).map(lambda power: 10.0**power)

TABLE = {
    1: ("10.00", "46.2", "133", "284"),
    2: ("4.38", "17.9", "46.2", "91.8"),
    4: ("1.99", "7.51", "17.9", "33.1"),
    8: ("0.93", "3.34", "7.51", "13.2"),
    16: ("0.43", "1.53", "3.34", "5.68"),
    32: ("0.20", "0.72", "1.53", "2.56"),
}
"""Epsilon at delta 1e-5 by sigma / clip, for 1, 10, 40 and 100 releases, to the digits of the notes."""
RELEASES = (1, 10, 40, 100)
ROUNDING = 1 + 1e-11
"""As exact as delta is in floats."""


def mu_of(ratio, releases):
    """A replaced row moves by twice the clip."""
    return 2 * math.sqrt(releases) / ratio


def textbook_delta(mu, epsilon):
    with mpmath.workdps(60):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        above, below = mu / 2 - epsilon / mu, -mu / 2 - epsilon / mu
        return mpmath.ncdf(above) - mpmath.exp(epsilon) * mpmath.ncdf(below)


@given(mus, st.floats(-8, 35))
@example(9.9e-4, -8.0)
@example(1e-3, 5.0)
@example(300.0, 0.0)
def test_delta_is_the_textbooks_in_sixty_digits(mu, deviations):
    epsilon = max(0.0, mu * (mu / 2 + deviations))
    assert gaussian_delta(mu, epsilon) == pytest.approx(float(textbook_delta(mu, epsilon)), rel=1e-11, abs=1e-300)


def test_delta_needs_no_power_of_e_that_overflows():
    assert gaussian_delta(100.0, 6000.0) == pytest.approx(float(textbook_delta(100.0, 6000.0)), rel=1e-11)
    assert gaussian_delta(2.0, 1e6) == 0.0
    assert gaussian_delta(1e-300, 1e300) == 0.0


def test_the_ends_of_the_curve():
    assert gaussian_delta(0.0, 0.0) == 0.0, "what does not move discloses nothing"
    assert gaussian_delta(math.inf, 5.0) == 1.0
    assert gaussian_delta(1e5, 1.0) == 1.0
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(1e-6, 1e-5) == 0.0, "delta alone covers it"
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    assert gaussian_epsilon(1e200, 1e-5) == math.inf


@given(mus, st.floats(0, 50), st.floats(1.001, 2))
def test_delta_falls_with_epsilon_and_grows_with_mu(mu, epsilon, factor):
    here = gaussian_delta(mu, epsilon)
    assert gaussian_delta(mu, epsilon * factor) <= here * ROUNDING
    assert gaussian_delta(mu * factor, epsilon) * ROUNDING >= here


@given(mus, deltas)
def test_epsilon_never_says_too_little(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    assert textbook_delta(mu, epsilon) <= delta


@given(mus, deltas)
def test_epsilon_says_hardly_too_much(mu, delta):
    epsilon = gaussian_epsilon(mu, delta)
    if epsilon > 1e-6 * mu:
        assert textbook_delta(mu, epsilon * (1 - 1e-6)) > delta * (1 - 1e-7)


@given(epsilons, deltas)
def test_mu_never_allows_too_much(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert textbook_delta(mu, epsilon) <= delta
    assert gaussian_epsilon(mu, delta) <= epsilon


@given(epsilons, deltas)
def test_mu_allows_hardly_too_little(epsilon, delta):
    assert gaussian_epsilon(gaussian_mu(epsilon, delta) * (1 + 1e-6), delta) > epsilon


def test_mu_at_epsilon_0_is_the_distance_that_delta_covers():
    mu = gaussian_mu(0.0, 0.01)
    assert 0.0250 < mu < 0.0251
    assert gaussian_epsilon(mu, 0.01) == 0.0


@pytest.mark.parametrize("ratio", TABLE)
@pytest.mark.parametrize("releases", RELEASES)
def test_the_table_of_the_notes(ratio, releases):
    printed = TABLE[ratio][RELEASES.index(releases)]
    decimals = len(printed.partition(".")[2])
    assert f"{gaussian_epsilon(mu_of(ratio, releases), 1e-5):.{decimals}f}" == printed


def test_the_calibrated_figure_of_the_notes():
    assert f"{2 * math.sqrt(10) / gaussian_mu(3.0, 1e-5):.2f}" == "8.79"


def by_pld(event, releases, delta=1e-5, interval=1e-3):
    accountant = PLDAccountant(value_discretization_interval=interval)
    accountant.compose(event, releases)
    return accountant.get_epsilon(delta)


@pytest.mark.slow
@pytest.mark.parametrize("ratio", [1, 2, 3, 4, 8, 12, 16, 32])
def test_gaussian_epsilon_agrees_with_dp_accounting(ratio):
    """32 settings in all; measured: the largest difference is 2e-5 of the value."""
    for releases in RELEASES:
        ours = gaussian_epsilon(mu_of(ratio, releases), 1e-5)
        assert ours == pytest.approx(by_pld(GaussianDpEvent(ratio / 2), releases), rel=1e-4)


def test_gaussian_epsilon_agrees_with_dp_accounting_at_other_deltas():
    for delta in (1e-3, 1e-7, 1e-9):
        ours = gaussian_epsilon(mu_of(8, 10), delta)
        assert ours == pytest.approx(by_pld(GaussianDpEvent(4.0), 10, delta), rel=1e-4)


@pytest.mark.parametrize("scale", [1, 2, 4, 8, 16])
def test_laplace_releases_added_up_are_never_below_dp_accounting(scale):
    """`scale` is b / 2C, so that a release costs 1 / scale. PLD itself rounds up by up to an interval per release."""
    for releases in (1, 3, 10, 40):
        exact = by_pld(LaplaceDpEvent(scale), releases, interval=1e-4)
        assert exact <= releases / scale + releases * 1e-4


def test_the_laplace_figures_of_the_notes():
    assert f"{by_pld(LaplaceDpEvent(4), 10):.2f}" == "2.49"
    assert f"{by_pld(LaplaceDpEvent(4), 40):.2f}" == "6.78"


@pytest.mark.parametrize("wrong", [0.0, 1.0, -0.1, 2.0, math.nan, math.inf])
def test_a_delta_that_is_no_chance_is_named(wrong):
    for call in (check_delta, lambda delta: gaussian_epsilon(1.0, delta), lambda delta: gaussian_mu(1.0, delta)):
        with pytest.raises(SettingsError, match=f"delta is {wrong}; it takes a number between 0 and 1"):
            call(wrong)


@pytest.mark.parametrize("wrong", [-1.0, math.nan])
def test_other_wrong_values_are_named(wrong):
    with pytest.raises(SettingsError, match=f"mu is {wrong}"):
        gaussian_delta(wrong, 1.0)
    with pytest.raises(SettingsError, match=f"mu is {wrong}"):
        gaussian_epsilon(wrong, 1e-5)
    with pytest.raises(SettingsError, match=f"epsilon is {wrong}"):
        gaussian_delta(1.0, wrong)
    with pytest.raises(SettingsError, match=f"epsilon is {wrong}"):
        gaussian_mu(wrong, 1e-5)
