from __future__ import annotations

import json
import math
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.errors import FdmlError, PrivacyBudgetSpent, SettingsError, StateCorrupt
from fdml.privacy.discrete_noise import noise_on_grid
from fdml.privacy.empirical import lower_bound
from fdml.privacy.epsilon import gaussian_epsilon
from fdml.privacy.ledger import GradientMechanism, Ledger, Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import INT64
from tests.privacy.ledgers import can_release

DELTA = 1e-5
OPEN = Mechanism("none", 3.0, 0.0)
GAUSSIAN = Mechanism("gaussian", 3.0, 12.0)
LAPLACE = Mechanism("laplace", 3.0, 24.0)
GRADIENTS = GradientMechanism(1.0, 8.0)

groups = st.sampled_from(["block 0", "block 1", "held-out"])
noisy = st.builds(Mechanism, st.sampled_from(["gaussian", "laplace"]), st.floats(0.1, 10), st.floats(0.1, 100))
gradients = st.none() | st.builds(GradientMechanism, st.floats(0.1, 10), st.floats(0.1, 100))
entries = st.lists(st.tuples(st.sampled_from(["count_release", "count_use"]), groups, st.integers(0, 9)), max_size=12)


def ledger_of(mechanism=GAUSSIAN, noise=None, budget=None):
    return Ledger(mechanism, noise, DELTA, budget)


def entered(ledger, some):
    for kind, group, count in some:
        getattr(ledger, kind)(group, count)
    return ledger


def figures(ledger):
    """All that a ledger says."""
    return [
        (ledger.releases(group), ledger.uses(group), ledger.epsilon(group), ledger.direct(group))
        for group in ("block 0", "block 1", "held-out")
    ]


# -- mechanisms


def test_gaussian_noise_counts_in_squares():
    assert GAUSSIAN.variance == 144.0
    assert GAUSSIAN.squared_mu == 0.25, "(2 * 3 / 12)^2: a replaced row moves by twice the clip"
    assert GAUSSIAN.pure == 0.0
    assert GRADIENTS.squared_mu == 0.0625


def test_laplace_noise_counts_in_epsilon_itself():
    assert LAPLACE.variance == 2 * 24.0**2
    assert LAPLACE.pure == 0.25
    assert LAPLACE.squared_mu == 0.0


def test_without_noise_a_release_has_no_limit():
    assert OPEN.variance == 0.0
    assert OPEN.pure == OPEN.squared_mu == math.inf


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_variance_is_that_of_the_noise_drawn(noise):
    drawn = INT64.step * noise_on_grid(noise, 5.0, INT64.step).draw(NoiseKey(bytes(32)), "tried", 0, 400_000)
    assert Mechanism(noise, 1.0, 5.0).variance == pytest.approx(np.var(drawn), rel=0.02)


def test_a_mechanism_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        GAUSSIAN.sigma = 0.1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("uniform", 3.0, 1.0), "noise is 'uniform'; it takes none, gaussian, laplace"),
        (("none", 3.0, 1.0), 'sigma is 1.0 but noise is "none"'),
        (("gaussian", 3.0, 0.0), "sigma is 0.0; it takes a number above 0"),
        (("gaussian", 3.0, math.nan), "sigma is nan"),
        (("laplace", 3.0, math.inf), "sigma is inf"),
        (("gaussian", 0.0, 1.0), "clip is 0.0"),
        (("laplace", math.inf, 1.0), "clip is inf"),
    ],
)
def test_a_mechanism_that_protects_nothing_is_not_made(wrong, message):
    with pytest.raises(SettingsError, match=message):
        Mechanism(*wrong)


@pytest.mark.parametrize(("clip", "sigma"), [(0.0, 1.0), (1.0, 0.0), (1.0, -2.0), (math.nan, 1.0)])
def test_gradient_noise_that_protects_nothing_is_not_made(clip, sigma):
    with pytest.raises(SettingsError, match=r"of gradients is .*; it takes a number above 0"):
        GradientMechanism(clip, sigma)


# -- what is spent


def test_ten_gaussian_releases_cost_what_the_notes_say():
    ledger = ledger_of(Mechanism("gaussian", 3.0, 24.0))
    ledger.count_release("block 0", 10)
    assert f"{ledger.epsilon('block 0'):.2f}" == "3.34"


def test_laplace_releases_add_up():
    ledger = ledger_of(LAPLACE)
    ledger.count_release("block 0", 10)
    assert ledger.epsilon("block 0") == 2.5


def test_nothing_is_spent_before_the_first_release():
    for mechanism in (OPEN, GAUSSIAN, LAPLACE):
        assert ledger_of(mechanism).epsilon("block 0") == 0.0
        assert ledger_of(mechanism).worst() == ("", 0.0)


def test_one_release_without_noise_spends_without_limit():
    ledger = ledger_of(OPEN)
    ledger.count_release("block 0")
    assert ledger.epsilon("block 0") == ledger.direct("block 0") == math.inf
    assert ledger.worst() == ("block 0", math.inf)


def test_without_gradient_noise_only_the_direct_way_is_claimed():
    ledger = ledger_of()
    ledger.count_release("block 0", 4)
    ledger.count_use("block 0", 100)
    assert ledger.epsilon("block 0") == ledger.direct("block 0") == gaussian_epsilon(1.0, DELTA)
    assert ledger.record_level("block 0") == math.inf, "through the weights anything may leave"
    assert ledger.scope == (
        "each pushed prediction; not the effect through the weights, nor through scaling, step size and categories"
    )


def test_with_gradient_noise_the_whole_record_is_claimed():
    ledger = ledger_of(noise=GRADIENTS)
    ledger.count_release("block 0", 4)
    ledger.count_use("block 0", 16)
    assert ledger.direct("block 0") == gaussian_epsilon(1.0, DELTA)
    assert ledger.epsilon("block 0") == ledger.record_level("block 0") == gaussian_epsilon(math.sqrt(2.0), DELTA)
    assert ledger.scope == "record level: pushed predictions and the effect through the weights"


def test_laplace_releases_come_on_top_of_gaussian_gradients():
    ledger = ledger_of(LAPLACE, GRADIENTS)
    ledger.count_release("block 0", 4)
    ledger.count_use("block 0", 16)
    assert ledger.epsilon("block 0") == 1.0 + gaussian_epsilon(1.0, DELTA)


def test_a_schedule_that_visits_few_rows_makes_nothing_cheaper():
    """The trap of the notes: as Poisson sampling, 1000 steps at 1 % would look like epsilon 0.69."""
    ledger = ledger_of(Mechanism("gaussian", 1.0, 4.0))
    for step in range(1000):
        ledger.count_release(f"block {step % 100}")
    assert all(f"{ledger.epsilon(f'block {at}'):.2f}" == "7.51" for at in range(100))


def test_the_worst_group_is_named():
    ledger = ledger_of()
    ledger.count_release("block 1", 2)
    ledger.count_release("held-out", 3)
    ledger.count_release("block 0", 2)
    assert ledger.worst() == ("held-out", ledger.epsilon("held-out"))


@given(noisy, gradients, st.integers(0, 50), st.integers(0, 50), st.integers(1, 50))
def test_more_releases_or_uses_never_spend_less(mechanism, noise, releases, uses, more):
    ledger = ledger_of(mechanism, noise)
    ledger.count_release("a", releases)
    ledger.count_use("a", uses)
    before = ledger.epsilon("a")
    ledger.count_release("a", more)
    between = ledger.epsilon("a")
    ledger.count_use("a", more)
    assert before <= between <= ledger.epsilon("a")
    assert ledger.direct("a") <= ledger.epsilon("a") <= ledger.record_level("a")


@given(noisy, gradients, entries, st.randoms(use_true_random=False))
def test_the_order_of_releases_does_not_matter(mechanism, noise, some, random):
    shuffled = random.sample(some, len(some))
    one, other = entered(ledger_of(mechanism, noise), some), entered(ledger_of(mechanism, noise), shuffled)
    assert figures(one) == figures(other)
    assert one.worst() == other.worst()


@given(noisy, st.integers(1, 5), st.integers(1, 5))
def test_charging_at_once_is_charging_one_by_one(mechanism, first, then):
    at_once, one_by_one = ledger_of(mechanism), ledger_of(mechanism)
    at_once.count_release("a", first + then)
    for _ in range(first + then):
        one_by_one.count_release("a")
    assert at_once.state() == one_by_one.state()


@settings(max_examples=15)
@given(st.floats(0.7, 8), st.integers(1, 4), st.binary(min_size=32, max_size=32))
def test_nobody_learns_more_than_the_ledger_says(ratio, releases, secret):
    """An attacker with many tries; the chance of a false alarm is 1 in 10 million per example."""
    law, key, numbers = noise_on_grid("gaussian", ratio, INT64.step), NoiseKey(secret), iter(range(1000))

    def mean_of_releases(value, count):
        noise = sum(law.draw(key, "tried", next(numbers), count) for _ in range(releases))
        return value + INT64.step * noise / releases

    ledger = ledger_of(Mechanism("gaussian", 1.0, ratio))
    ledger.count_release("a", releases)
    assert lower_bound(mean_of_releases, 1.0, DELTA, draws=50_000, confidence=1 - 1e-7) <= ledger.epsilon("a")


# -- the budget


@given(noisy, gradients, st.floats(0.1, 20), entries)
def test_a_refused_entry_changes_nothing_and_the_budget_holds(mechanism, noise, budget, some):
    ledger = ledger_of(mechanism, noise, budget)
    for kind, group, count in some:
        before = ledger.state()
        try:
            getattr(ledger, kind)(group, count)
        except PrivacyBudgetSpent:
            assert ledger.state() == before
    assert ledger.worst()[1] <= budget


def test_the_refusal_says_what_it_would_cost_and_what_to_do():
    ledger = ledger_of(LAPLACE, budget=1.1)
    ledger.count_release("block 3", 4)
    with pytest.raises(
        PrivacyBudgetSpent, match=r"one more release of block 3 would spend epsilon 1\.25 of 1\.10"
    ) as one:
        ledger.count_release("block 3")
    with pytest.raises(PrivacyBudgetSpent, match=r"7 more releases of held-out would spend epsilon 1\.75 of 1\.10"):
        ledger.count_release("held-out", 7)
    assert "at delta 1e-05; stop here, or agree on more noise or fewer exchanges" in str(one.value)
    assert isinstance(one.value, FdmlError)


def test_the_refusal_of_a_use_says_so():
    ledger = ledger_of(LAPLACE, GradientMechanism(1.0, 2.0), budget=1.1)
    with pytest.raises(
        PrivacyBudgetSpent, match=r"one more use in training of block 3 would spend epsilon 4\.38 of 1\.10"
    ):
        ledger.count_use("block 3")
    assert ledger.uses("block 3") == 0


def test_a_close_miss_is_shown_with_enough_digits():
    ledger = ledger_of(LAPLACE, budget=0.99999)
    with pytest.raises(PrivacyBudgetSpent, match=r"epsilon 1\.00000000 of 0\.99999000"):
        ledger.count_release("a", 4)


def test_with_a_budget_nothing_leaves_without_noise():
    ledger = ledger_of(OPEN, budget=1000.0)
    assert can_release(ledger, "a", 0)
    assert not can_release(ledger, "a")
    with pytest.raises(PrivacyBudgetSpent, match=r"epsilon inf of 1000\.00"):
        ledger.count_release("a")


def test_groups_have_budgets_of_their_own():
    ledger = ledger_of(LAPLACE, budget=1.0)
    ledger.count_release("block 0", 4)
    ledger.count_release("block 1", 4)
    assert not can_release(ledger, "block 0")
    assert not can_release(ledger, "block 1")
    assert can_release(ledger, "held-out", 4)


def test_without_a_budget_everything_is_counted_and_nothing_refused():
    ledger = ledger_of()
    ledger.count_release("a", 10**6)
    assert ledger.releases("a") == 10**6
    assert can_release(ledger, "a", 10**9)


@pytest.mark.parametrize(
    ("delta", "budget", "message"),
    [
        (0.0, 1.0, "delta is 0.0"),
        (1.0, 1.0, "delta is 1.0"),
        (1e-5, 0.0, "the budget epsilon is 0.0"),
        (1e-5, math.nan, "nan"),
    ],
)
def test_a_ledger_without_sense_is_not_made(delta, budget, message):
    with pytest.raises(SettingsError, match=message):
        Ledger(GAUSSIAN, None, delta, budget)


def test_nothing_is_ever_taken_back():
    ledger = ledger_of()
    ledger.count_release("a", 3)
    for call in (ledger.count_release, ledger.count_use):
        with pytest.raises(SettingsError, match="cannot be counted; what has left does not come back"):
            call("a", -1)
    assert (ledger.releases("a"), ledger.uses("a")) == (3, 0)


# -- across restarts


@given(noisy, gradients, entries)
def test_a_restored_ledger_says_the_same(mechanism, noise, some):
    before = entered(ledger_of(mechanism, noise), some)
    after = ledger_of(mechanism, noise)
    after.restore(json.loads(json.dumps(before.state())))
    assert figures(after) == figures(before)
    assert after.state() == before.state()
    assert after.worst() == before.worst()


def test_a_restored_ledger_is_a_copy():
    before, after = ledger_of(), ledger_of()
    before.count_release("a", 2)
    state = before.state()
    after.restore(state)
    after.count_release("a")
    before.count_release("a", 5)
    assert state["releases"] == {"a": 2}
    assert after.releases("a") == 3


def test_a_budget_lowered_in_between_refuses_the_next_release():
    before, after = ledger_of(LAPLACE, budget=2.0), ledger_of(LAPLACE, budget=1.0)
    before.count_release("a", 6)
    after.restore(before.state())
    assert after.epsilon("a") == 1.5
    with pytest.raises(PrivacyBudgetSpent, match=r"1\.75 of 1\.00"):
        after.count_release("a")


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (Ledger(Mechanism("gaussian", 3.0, 99.0), None, DELTA, None), "'sigma': 12.0"),
        (Ledger(Mechanism("gaussian", 1.0, 12.0), None, DELTA, None), "'clip': 3.0"),
        (Ledger(LAPLACE, None, DELTA, None), "'noise': 'gaussian'"),
        (Ledger(GAUSSIAN, GRADIENTS, DELTA, None), "gradients None"),
    ],
)
def test_counts_made_with_other_noise_are_not_taken_over(other, named):
    """More noise from here on does not make less of what has left already."""
    before = ledger_of()
    before.count_release("a", 7)
    with pytest.raises(SettingsError, match=r"what was released so far had .* set the guard as it was") as error:
        other.restore(before.state())
    assert named in str(error.value)
    assert other.releases("a") == 0


@pytest.mark.parametrize("counts", [None, [], 7, {"a": -1}, {"a": 1.5}, {"a": "1"}, {"a": True}, {1: 1}, {"a": None}])
@pytest.mark.parametrize("name", ["releases", "uses"])
def test_damaged_counts_are_refused_and_nothing_changes(counts, name):
    ledger = ledger_of()
    ledger.count_release("b", 2)
    state = ledger.state() | {name: counts}
    with pytest.raises(StateCorrupt, match=f"of {name}, which are no counts"):
        ledger.restore(state)
    assert ledger.releases("b") == 2


def test_an_empty_state_is_damage_too():
    with pytest.raises(StateCorrupt, match="None of releases"):
        ledger_of().restore({})


def test_the_same_figure_is_not_computed_twice():
    epsilon_of.cache_clear()
    ledger = ledger_of(budget=100.0)
    for block in range(500):
        ledger.count_release(f"block {block}")
    assert epsilon_of.cache_info().misses == 1
