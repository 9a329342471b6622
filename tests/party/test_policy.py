"""A party's policy: which runs it takes, which wait for a person, and which rule says so."""

import datetime
import math

import pytest

from fdml.errors import SettingsError
from fdml.party.policy import Hours, PolicySettings, ProposedRun, Spending, answer_of, objections_to
from fdml.settings import PrivacySettings, RunSettings
from fdml.settings.evaluation import PromotionSettings

RUN = RunSettings(name="first", parties=("ann", "bob"), label_party="ann")
MONDAY = datetime.datetime(2024, 1, 1, 10, 30)
SPENDING = Spending(releases=10, epsilon=2.0, total_releases=30, total_epsilon=5.0)


def proposed(run=RUN, **changes):
    return ProposedRun(
        **{"run": run, "starter": "ann", "model": "linear", "spending": SPENDING, "rows": 100, **changes}
    )


def answer(policy, total_epsilon=None, now=MONDAY, **changes):
    return answer_of(policy, proposed(**changes), now, total_epsilon)


def test_without_a_policy_every_run_waits_for_a_person():
    found = answer(PolicySettings())
    assert (found.outcome, found.rule) == ("ask", "policy.accept")


def test_a_policy_without_rules_accepts_everything():
    assert answer(PolicySettings(accept="policy")).outcome == "accept"


WITHIN = {
    "starters": ("ann",),
    "tasks": ("binary", "regression"),
    "labels": ("shared",),
    "servers": ("plain",),
    "models": ("linear", "mlp"),
    "max_epsilon": 2.0,
    "max_releases": 10,
    "total_releases": 30,
    "max_rows": 100,
    "hours": ("mon 10:00-11:00",),
    "promotion": False,
}
OUTSIDE = {
    "starters": ("bob",),
    "tasks": ("regression",),
    "labels": ("private",),
    "servers": ("blind",),
    "models": ("mlp",),
    "max_epsilon": 1.9,
    "max_releases": 9,
    "max_rows": 99,
    "hours": ("11:00-12:00",),
}


def test_a_run_at_every_limit_is_within_the_policy():
    assert answer(PolicySettings(accept="policy", **WITHIN), total_epsilon=5.0).outcome == "accept"


@pytest.mark.parametrize("rule", OUTSIDE)
def test_a_run_outside_waits_for_a_person_and_the_rule_is_named(rule):
    found = answer(PolicySettings(accept="policy", **{**WITHIN, rule: OUTSIDE[rule]}))
    assert (found.outcome, found.rule) == ("ask", f"policy.{rule}")
    assert f"policy.{rule}" in found.reason


@pytest.mark.parametrize("rule", OUTSIDE)
def test_a_run_outside_is_refused_where_the_policy_says_so(rule):
    found = answer(PolicySettings(accept="policy", otherwise="refuse", **{rule: OUTSIDE[rule]}))
    assert (found.outcome, found.rule) == ("refuse", f"policy.{rule}")


@pytest.mark.parametrize("accept", ["ask", "policy"])
def test_what_would_overspend_a_total_is_refused_and_nobody_is_asked(accept):
    found = answer(PolicySettings(accept=accept), total_epsilon=4.9)
    assert (found.outcome, found.rule) == ("refuse", "guard.total_epsilon")
    assert "to epsilon 5, over guard.total_epsilon 4.9" in found.reason
    found = answer(PolicySettings(accept=accept, total_releases=29))
    assert (found.outcome, found.rule) == ("refuse", "policy.total_releases")


def test_a_total_comes_before_any_other_rule():
    found = answer(PolicySettings(accept="policy", starters=("bob",)), total_epsilon=1.0)
    assert found.rule == "guard.total_epsilon"


def test_all_rules_that_object_are_in_the_reason():
    found = answer(PolicySettings(accept="policy", starters=("bob",), tasks=("regression",)))
    assert found.rule == "policy.starters"
    assert "policy.tasks allows regression" in found.reason


def test_a_run_without_noise_has_no_bound():
    free = Spending(10, math.inf, 10, math.inf)
    found = answer(PolicySettings(accept="policy", max_epsilon=100.0), spending=free)
    assert (found.outcome, found.rule) == ("ask", "policy.max_epsilon")
    assert "an epsilon without bound" in found.reason


def test_rows_that_are_not_known_yet_are_not_within_a_limit():
    rules = [each.rule for each in objections_to(PolicySettings(max_rows=10**6), proposed(rows=None), MONDAY)]
    assert rules == ["policy.max_rows"]


def test_a_person_who_is_asked_anyway_is_told_what_the_rules_say():
    found = answer(PolicySettings(tasks=("regression",)))
    assert (found.outcome, found.rule) == ("ask", "policy.tasks")


def test_labels_are_those_of_the_run():
    private = RUN.model_copy(update={"privacy": PrivacySettings(labels="private")})
    assert answer(PolicySettings(accept="policy", labels=("private",)), run=private).outcome == "accept"


@pytest.mark.parametrize(
    ("text", "day", "hour", "inside"),
    [
        ("08:00-18:00", 0, 8, True),
        ("08:00-18:00", 6, 17, True),
        ("08:00-18:00", 0, 18, False),
        ("mon-fri 08:00-18:00", 4, 12, True),
        ("mon-fri 08:00-18:00", 5, 12, False),
        ("Sat 00:00-24:00", 5, 23, True),
        ("fri-mon 00:00-24:00", 0, 0, True),
        ("fri-mon 00:00-24:00", 1, 0, False),
        ("22:00-06:00", 3, 23, True),
        ("22:00-06:00", 3, 5, True),
        ("22:00-06:00", 3, 6, False),
        ("fri 22:00-06:00", 5, 5, True),
        ("fri 22:00-06:00", 4, 5, False),
        ("sun 22:00-06:00", 0, 1, True),
    ],
)
def test_hours_hold_on_their_days_and_over_midnight(text, day, hour, inside):
    when = datetime.datetime(2024, 1, 1 + day, hour, 0)
    assert Hours.read(text).holds(when) is inside


@pytest.mark.parametrize("text", ["8-18", "mon 8:00-18:00", "xyz 08:00-18:00", "08:00-25:00", "08:70-09:00", ""])
def test_hours_that_are_none_are_refused_with_what_to_write(text):
    with pytest.raises(SettingsError, match=r"policy\.hours"):
        PolicySettings(hours=(text,))


def test_an_unknown_rule_is_refused():
    with pytest.raises(SettingsError, match="max_epsilon"):
        PolicySettings(max_epsilons=3.0)


def searched(policy, taken, **changes):
    run = RUN.model_copy(update={"search": "rates"})
    return answer(PolicySettings(accept="policy", **policy), run=run, of_its_search=taken, **changes)


def test_runs_of_a_search_wait_for_a_person_unless_the_policy_has_a_number_of_them():
    assert (searched({}, 0).outcome, searched({}, 0).rule) == ("ask", "policy.tuning")
    assert searched({"tuning": 3}, 2).outcome == "accept"
    third = searched({"tuning": 3}, 3)
    assert (third.outcome, third.rule) == ("ask", "policy.tuning")
    assert "search 'rates', of which 3 were accepted here; policy.tuning is 3" in third.reason
    assert searched({"tuning": 3, "otherwise": "refuse"}, 3).outcome == "refuse"


def test_runs_of_no_search_are_not_counted_as_one():
    assert answer(PolicySettings(accept="policy"), of_its_search=5).outcome == "accept"


def test_a_run_with_a_server_that_the_policy_does_not_name_waits():
    policy = PolicySettings(accept="policy", servers=("blind",))
    found = answer(policy)
    assert (found.outcome, found.rule) == ("ask", "policy.servers")
    assert "its server is 'plain'; policy.servers allows blind" in found.reason
    blind = RUN.model_copy(update={"privacy": PrivacySettings(server="blind")})
    assert answer(policy, run=blind).outcome == "accept"


def test_a_run_that_would_promote_itself_needs_a_policy_that_lets_it():
    run = RUN.model_copy(update={"promotion": PromotionSettings(at_least=-1.0)})
    assert answer(PolicySettings(accept="policy"), run=run).outcome == "accept"
    found = answer(PolicySettings(accept="policy", promotion=False), run=run)
    assert (found.outcome, found.rule) == ("ask", "policy.promotion")
