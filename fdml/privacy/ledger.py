"""What a party has disclosed of its rows so far, and whether it may disclose more.

Two data sets are neighbours if one row's features differ at one party. The ids
of the rows, the schedule and the seed are known to everybody, so which rows are
released when is no secret: there is no amplification by sampling here, ever.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Protocol, get_args

from fdml.errors import PrivacyBudgetSpent, SettingsError, StateCorrupt
from fdml.privacy.epsilon import check_delta, gaussian_epsilon
from fdml.settings.choices import Noise

DIRECT = "each pushed prediction; not the effect through the weights, nor through scaling, step size and categories"
HELD_OUT = "held-out"
"""The group of rows that only held-out predictions release."""
RECORD_LEVEL = "record level: pushed predictions and the effect through the weights"


@dataclass(frozen=True)
class Mechanism:
    """How one row's prediction is hidden before it leaves: clip, then noise.

    `clip` bounds the prediction's length, or of several floats the vector's: in
    the L2 norm for Gaussian noise, in the L1 norm for Laplace. As a row's
    features are replaced, not left out, its prediction moves by up to twice that.
    """

    noise: Noise
    clip: float
    sigma: float
    """Standard deviation of Gaussian noise, scale of Laplace noise, 0 without."""

    def __post_init__(self) -> None:
        if self.noise not in get_args(Noise):
            raise SettingsError(f"noise is {self.noise!r}; it takes {', '.join(get_args(Noise))}")
        if self.noise == "none":
            if self.sigma != 0:
                raise SettingsError(f'sigma is {self.sigma!r} but noise is "none"; set noise = "gaussian" or sigma = 0')
            return
        _check_positive("clip", self.clip)
        _check_positive("sigma", self.sigma)

    @property
    def variance(self) -> float:
        """Of the noise on one value."""
        return self.sigma * self.sigma * (2.0 if self.noise == "laplace" else 1.0)

    @property
    def squared_mu(self) -> float:
        """What a release adds to mu^2: infinite without noise, 0 for Laplace noise, which counts as `pure`."""
        match self.noise:
            case "gaussian":
                return _square(2 * self.clip / self.sigma)
            case "laplace":
                return 0.0
            case "none":
                return math.inf

    @property
    def pure(self) -> float:
        """What a release adds to epsilon itself, at delta 0: infinite without noise, 0 for Gaussian noise."""
        match self.noise:
            case "gaussian":
                return 0.0
            case "laplace":
                return 2 * self.clip / self.sigma
            case "none":
                return math.inf


@dataclass(frozen=True)
class GradientMechanism:
    """Gaussian noise on the sum of a batch's gradients, each clipped to an L2 length of `clip` first."""

    clip: float
    sigma: float

    def __post_init__(self) -> None:
        _check_positive("the clip of gradients", self.clip)
        _check_positive("the sigma of gradients", self.sigma)

    @property
    def squared_mu(self) -> float:
        """What each use of a row in a batch adds to mu^2."""
        return _square(2 * self.clip / self.sigma)


@lru_cache(maxsize=4096)
def epsilon_of(mechanism: Mechanism, releases: int, delta: float, gradient_squared_mu: float = 0.0) -> float:
    """The epsilon of a row released so often, its uses in noisy gradients having added so much to mu^2.

    Gaussian parts are composed exactly. Laplace releases add up, and a Gaussian
    part comes on top of them: an upper bound.
    """
    check_delta(delta)
    pure, squared_mu = (releases * mechanism.pure, releases * mechanism.squared_mu) if releases else (0.0, 0.0)
    return pure + gaussian_epsilon(math.sqrt(squared_mu + gradient_squared_mu), delta)


class Account(Protocol):
    """Where a run's counts outlive it; `fdml.privacy.accounts` has the one on disk."""

    def count(
        self, *, releases: int = 0, held_out: int = 0, exact: int = 0, uses: int = 0, has_left: bool = False
    ) -> None:
        """Count at least so much of the run's most released rows; durable on return.

        Raises and counts nothing if a total would be overspent, unless it `has_left` already.
        """
        ...


class Ledger:
    """Counts releases and uses of rows, and refuses what would overspend.

    Rows are counted in groups, such as "block 3" or "held-out"; all rows of a
    group have always been released and used equally often, so epsilon is that
    of any one of them. Without `gradients` it covers less than with: see `scope`.
    """

    def __init__(
        self,
        mechanism: Mechanism,
        gradients: GradientMechanism | None,
        delta: float,
        budget: float | None,
        account: Account | None = None,
    ) -> None:
        check_delta(delta)
        if budget is not None:
            _check_positive("the budget epsilon", budget)
        self.mechanism = mechanism
        self.gradients = gradients
        self.delta = delta
        self.budget = budget
        self._account = account
        self._releases: Counter[str] = Counter()
        self._uses: Counter[str] = Counter()

    @property
    def scope(self) -> str:
        """What the epsilon of this ledger protects."""
        return DIRECT if self.gradients is None else RECORD_LEVEL

    def count_release(self, group: str, releases: int = 1) -> None:
        """Count releases of the group's rows, or raise and count nothing."""
        if releases != 1 or self.budget is not None:  # else there is nothing to refuse
            self._check_budget(group, releases, 0)
        count = self._releases[group] + releases
        self._count_for_good(group, count)
        self._releases[group] = count

    def count_left(self, group: str) -> None:
        """Count a release that has left before; that is never refused."""
        self._releases[group] += 1
        self._count_for_good(group, self._releases[group], has_left=True)

    def count_exact(self) -> None:
        """Count that held-out rows leave without noise: they have no epsilon, so only the account counts them."""
        if self._account is not None:
            self._account.count(exact=1)

    def count_use(self, group: str, times: int = 1) -> None:
        """Count uses of the group's rows in gradient steps, or raise and count nothing."""
        self._check_budget(group, 0, times)
        if self._account is not None:
            self._account.count(uses=self._uses[group] + times)
        self._uses[group] += times

    def releases(self, group: str) -> int:
        """How often the group's rows have been released."""
        return self._releases[group]

    def uses(self, group: str) -> int:
        """How often the group's rows have been used in gradient steps."""
        return self._uses[group]

    def epsilon(self, group: str) -> float:
        """What the group's rows have spent, within `scope`; infinite if they were released without noise."""
        return self._after(group, 0, 0)

    def direct(self, group: str) -> float:
        """What was spent by the rows' own releases alone."""
        return epsilon_of(self.mechanism, self._releases[group], self.delta)

    def record_level(self, group: str) -> float:
        """What was spent by all that a row can reach: infinite without noise on gradients."""
        return math.inf if self.gradients is None else self.epsilon(group)

    def worst(self) -> tuple[str, float]:
        """The group that has spent most, and what; no name and 0 before the first."""
        groups = sorted(self._releases.keys() | self._uses.keys())
        return max(((group, self.epsilon(group)) for group in groups), key=lambda each: each[1], default=("", 0.0))

    def state(self) -> dict[str, Any]:
        """All counts and the noise they were made with, ready for JSON."""
        return {**self._noise(), "releases": dict(self._releases), "uses": dict(self._uses)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from `state`, or raise and change nothing. Counts made with other noise mean something else."""
        releases, uses = _counts(state, "releases"), _counts(state, "uses")
        for name, now in self._noise().items():
            if state.get(name) != now:
                raise SettingsError(
                    f"what was released so far had {name} {state.get(name)}, the settings now say {now}; "
                    f"set the guard as it was (a run that starts over spends on top of what has left already)"
                )
        self._releases, self._uses = releases, uses
        for group, count in releases.items():
            self._count_for_good(group, count, has_left=True)
        if self._account is not None:
            self._account.count(uses=max(uses.values(), default=0), has_left=True)

    def _count_for_good(self, group: str, count: int, *, has_left: bool = False) -> None:
        """In the account, if there is one, before anything leaves."""
        if self._account is None:
            return
        if group == HELD_OUT:
            self._account.count(held_out=count, has_left=has_left)
        else:
            self._account.count(releases=count, has_left=has_left)

    def _noise(self) -> dict[str, Any]:
        gradients = None if self.gradients is None else asdict(self.gradients)
        return {"mechanism": asdict(self.mechanism), "gradients": gradients}

    def _after(self, group: str, releases: int, uses: int) -> float:
        used = (self._uses[group] + uses) * self.gradients.squared_mu if self.gradients is not None else 0.0
        return epsilon_of(self.mechanism, self._releases[group] + releases, self.delta, used)

    def _overspends(self, epsilon: float) -> bool:
        return self.budget is not None and epsilon > self.budget

    def _check_budget(self, group: str, releases: int, uses: int) -> None:
        _check_count("releases", releases)
        _check_count("uses", uses)
        if self.budget is None:
            return
        after = self._after(group, releases, uses)
        if not self._overspends(after):
            return
        more = _spelled(releases, "release") if releases else _spelled(uses, "use") + " in training"
        raise PrivacyBudgetSpent(
            f"{more} of {group} would spend epsilon {_apart(after, self.budget)} at delta {self.delta:g}; "
            f"stop here, or agree on more noise or fewer exchanges: `fdml budget plan` shows how much"
        )


def _square(value: float) -> float:
    return value * value  # ** raises where this gives infinity


def _spelled(count: int, what: str) -> str:
    return f"one more {what}" if count == 1 else f"{count} more {what}s"


def _apart(after: float, budget: float) -> str:
    """Both figures, with as many digits as it takes to see that they differ."""
    digits = next((many for many in (2, 4, 8) if f"{after:.{many}f}" != f"{budget:.{many}f}"), 17)
    return f"{after:.{digits}f} of {budget:.{digits}f}"


def _counts(state: Mapping[str, Any], name: str) -> Counter[str]:
    counts = state.get(name)
    if not isinstance(counts, Mapping) or not all(map(_is_count, counts, counts.values())):
        raise StateCorrupt(
            f"the ledger says {counts!r} of {name}, which are no counts: what was spent is unknown; bring back "
            f"the file, or take the whole budget as spent"
        )
    return Counter(counts)


def _is_count(group: object, count: object) -> bool:
    return type(group) is str and type(count) is int and count >= 0


def _check_count(name: str, count: int) -> None:
    if count < 0:
        raise SettingsError(f"{count} {name} cannot be counted; what has left does not come back")


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise SettingsError(f"{name} is {value!r}; it takes a number above 0")
