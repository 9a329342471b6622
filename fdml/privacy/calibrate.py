"""How much noise a budget asks for, and how far a budget goes."""

from __future__ import annotations

import math

from fdml.errors import SettingsError
from fdml.privacy.epsilon import gaussian_epsilon, gaussian_mu
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.settings.choices import Noise

_MOST = 2**53
"""Beyond these releases nobody counts."""


def sigma_for(
    noise: Noise, epsilon: float, delta: float, clip: float, releases: int, gradient_squared_mu: float = 0.0
) -> float:
    """The smallest sigma that keeps so many releases of a row within the budget (epsilon, delta).

    `gradient_squared_mu` is what the row's uses in noisy gradients add to mu^2.
    Rounding is to the side of more noise.
    """
    _check_budget(epsilon)
    if noise == "none":
        raise SettingsError("noise is 'none', which no budget allows; it takes gaussian or laplace")
    if releases < 1:
        raise SettingsError(f"there are {releases} releases to make noise for; it takes 1 or more")
    sigma = _estimate(noise, epsilon, delta, clip, releases, gradient_squared_mu)
    grow = 1e-12
    while epsilon_of(Mechanism(noise, clip, sigma), releases, delta, gradient_squared_mu) > epsilon:
        sigma *= 1 + grow
        grow *= 2
    return sigma


def releases_within(mechanism: Mechanism, epsilon: float, delta: float) -> int:
    """How often a row may be released within the budget (epsilon, delta)."""
    _check_budget(epsilon)
    within, beyond = 0, 1
    while epsilon_of(mechanism, beyond, delta) <= epsilon:
        if beyond >= _MOST:
            return _MOST
        within, beyond = beyond, 2 * beyond
    while beyond - within > 1:
        middle = (within + beyond) // 2
        if epsilon_of(mechanism, middle, delta) <= epsilon:
            within = middle
        else:
            beyond = middle
    return within


def _estimate(
    noise: Noise, epsilon: float, delta: float, clip: float, releases: int, gradient_squared_mu: float
) -> float:
    """The smallest sigma but for rounding."""
    if noise == "gaussian":
        mu = gaussian_mu(epsilon, delta)
        allowed = mu * mu
        left = allowed - gradient_squared_mu
        _check_left(left / allowed, epsilon, delta, gradient_squared_mu)
        return 2 * clip * math.sqrt(releases / left)
    left = epsilon - gaussian_epsilon(math.sqrt(gradient_squared_mu), delta)
    _check_left(left / epsilon, epsilon, delta, gradient_squared_mu)
    return 2 * clip * releases / left


def _check_left(share: float, epsilon: float, delta: float, gradient_squared_mu: float) -> None:
    if share < 1e-6:  # so little that no noise on predictions is enough
        alone = gaussian_epsilon(math.sqrt(gradient_squared_mu), delta)
        raise SettingsError(
            f"the gradients alone spend epsilon {alone:.2f} of {epsilon:.2f} at delta {delta:g}; "
            f"set more noise for them (guard.training.sigma), train fewer epochs, or agree on a larger epsilon"
        )


def _check_budget(epsilon: float) -> None:
    if not 0 < epsilon < math.inf:
        raise SettingsError(f"the budget epsilon is {epsilon!r}; it takes a number above 0, such as 3")
