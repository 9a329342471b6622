from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.privacy.calibrate import releases_within, sigma_for
from fdml.privacy.epsilon import gaussian_mu
from fdml.privacy.ledger import GradientMechanism, Ledger, Mechanism, epsilon_of
from tests.privacy.ledgers import can_release

noises = st.sampled_from(["gaussian", "laplace"])
epsilons = st.floats(0.05, 50)
deltas = st.sampled_from([1e-3, 1e-5, 1e-8])
clips = st.floats(0.1, 20)
counts = st.integers(1, 200)


@given(noises, epsilons, deltas, clips, counts)
def test_the_noise_keeps_so_many_releases_within_the_budget(noise, epsilon, delta, clip, releases):
    sigma = sigma_for(noise, epsilon, delta, clip, releases)
    ledger = Ledger(Mechanism(noise, clip, sigma), None, delta, epsilon)
    ledger.count_release("a", releases)
    assert not can_release(ledger, "a")


@given(noises, epsilons, deltas, clips, counts)
def test_hardly_less_noise_would_not(noise, epsilon, delta, clip, releases):
    sigma = sigma_for(noise, epsilon, delta, clip, releases) * (1 - 1e-6)
    assert epsilon_of(Mechanism(noise, clip, sigma), releases, delta) > epsilon


@given(noises, epsilons, deltas, counts, st.floats(0, 0.99))
def test_what_the_gradients_spend_is_left_out_of_the_budget(noise, epsilon, delta, releases, share):
    spent = share * gaussian_mu(epsilon, delta) ** 2
    sigma = sigma_for(noise, epsilon, delta, 3.0, releases, spent)
    assert sigma >= sigma_for(noise, epsilon, delta, 3.0, releases)
    assert epsilon_of(Mechanism(noise, 3.0, sigma), releases, delta, spent) <= epsilon


def test_a_ledger_with_gradient_noise_accepts_what_was_calibrated_for_it():
    gradients = GradientMechanism(1.0, 30.0)
    sigma = sigma_for("gaussian", 3.0, 1e-5, 3.0, 5, 20 * gradients.squared_mu)
    ledger = Ledger(Mechanism("gaussian", 3.0, sigma), gradients, 1e-5, 3.0)
    ledger.count_use("a", 20)
    ledger.count_release("a", 5)
    assert 2.999 < ledger.epsilon("a") <= 3.0
    assert not can_release(ledger, "a")


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_gradients_that_overspend_alone_are_named(noise):
    spent = 1.1 * gaussian_mu(3.0, 1e-5) ** 2
    with pytest.raises(
        SettingsError, match=r"the gradients alone spend epsilon 3\.\d\d of 3\.00 .*guard.training.sigma"
    ):
        sigma_for(noise, 3.0, 1e-5, 3.0, 5, spent)
    with pytest.raises(SettingsError, match=r"the gradients alone spend epsilon 3\.00 of 3\.00"):
        sigma_for(noise, 3.0, 1e-5, 3.0, 5, gaussian_mu(3.0, 1e-5) ** 2)


def test_the_noise_grows_with_the_root_of_gaussian_releases_and_with_the_number_of_laplace_ones():
    gaussian = [sigma_for("gaussian", 3.0, 1e-5, 3.0, releases) for releases in (1, 4)]
    laplace = [sigma_for("laplace", 3.0, 1e-5, 3.0, releases) for releases in (1, 4)]
    assert gaussian[1] / gaussian[0] == pytest.approx(2)
    assert laplace == pytest.approx([2.0, 8.0])


def test_the_figure_of_the_notes():
    assert sigma_for("gaussian", 3.0, 1e-5, 1.0, 10) == pytest.approx(8.79, abs=0.006)


@given(noises, epsilons, deltas, counts)
def test_as_many_releases_fit_as_the_noise_was_made_for(noise, epsilon, delta, releases):
    mechanism = Mechanism(noise, 3.0, sigma_for(noise, epsilon, delta, 3.0, releases))
    assert releases_within(mechanism, epsilon, delta) == releases


@given(noises, epsilons, deltas, st.floats(0.3, 300))
def test_one_release_more_than_fits_is_refused(noise, epsilon, delta, sigma):
    mechanism = Mechanism(noise, 3.0, sigma)
    fit = releases_within(mechanism, epsilon, delta)
    ledger = Ledger(mechanism, None, delta, epsilon)
    assert can_release(ledger, "a", fit)
    assert not can_release(ledger, "a", fit + 1)


def test_without_noise_no_release_fits():
    assert releases_within(Mechanism("none", 3.0, 0.0), 100.0, 1e-5) == 0


def test_noise_without_measure_ends_the_counting():
    assert releases_within(Mechanism("gaussian", 1.0, 1e200), 3.0, 1e-5) == 2**53


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"noise": "none"}, "noise is 'none', which no budget allows; it takes gaussian or laplace"),
        ({"noise": "uniform"}, "noise is 'uniform'; it takes none, gaussian, laplace"),
        ({"epsilon": 0.0}, "the budget epsilon is 0.0; it takes a number above 0"),
        ({"epsilon": math.nan}, "the budget epsilon is nan"),
        ({"epsilon": math.inf}, "the budget epsilon is inf"),
        ({"delta": 0.0}, "delta is 0.0"),
        ({"clip": -1.0}, "clip is -1.0; it takes a number above 0"),
        ({"releases": 0}, "there are 0 releases to make noise for"),
    ],
)
def test_wrong_values_are_named(wrong, message):
    right = {"noise": "gaussian", "epsilon": 3.0, "delta": 1e-5, "clip": 3.0, "releases": 5}
    with pytest.raises(SettingsError, match=message):
        sigma_for(**(right | wrong))
