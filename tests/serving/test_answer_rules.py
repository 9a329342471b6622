"""A party's own policy on questions: who is answered, until when, how many rows in an hour."""

import datetime
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.federation.predicting import answer_rules
from fdml.party.policy import PolicySettings
from fdml.serving.answer_rules import AnsweredRows, AnswerRules
from fdml.serving.asking import Asker
from fdml.serving.local_line import LocalLine
from fdml.serving.reasons import Reason, reason_of
from tests.serving.published import IDS, PARTIES, Counted, answerer_of, ask, federation, values_of

LAST = datetime.date(2026, 12, 31)


class Clock:
    def __init__(self):
        self.now = 5_000.0

    def __call__(self):
        return self.now


def test_without_rules_everybody_is_answered():
    assert AnswerRules().why_not("ann", LAST) == ""
    assert answer_rules(PolicySettings()) == AnswerRules()


def test_the_policy_of_a_party_says_who_until_when_and_how_much():
    policy = PolicySettings(askers=("ann",), answer_until="2026-12-31", answers_per_hour=100)
    assert answer_rules(policy) == AnswerRules(("ann",), LAST, 100)


@pytest.mark.parametrize("wrong", [{"answers_per_hour": 0}, {"answer_until": "soon"}, {"answers_per_hour": -3}])
def test_a_rule_that_makes_no_sense_is_named(wrong):
    (name,) = wrong
    with pytest.raises(SettingsError, match=name):
        PolicySettings(**wrong)


def test_the_last_day_is_still_answered():
    rules = AnswerRules(until=LAST)
    assert rules.why_not("ann", LAST) == ""
    why = rules.why_not("ann", LAST + datetime.timedelta(days=1))
    assert why == "its policy does not answer after 2026-12-31 (policy.answer_until)"
    assert reason_of(why) is Reason.FORBIDDEN


def test_rows_of_the_last_hour_are_counted_for_each_asker():
    clock = Clock()
    answered = AnsweredRows(clock)
    assert answered.take("ann", 60, 100) == ""
    assert answered.take("bob", 100, 100) == ""
    why = answered.take("ann", 41, 100)
    assert "100 rows an hour (policy.answers_per_hour), of which 40 are left" in why
    assert reason_of(why) is Reason.TOO_OFTEN
    assert answered.take("ann", 40, 100) == "", "what was refused was not counted"
    clock.now += 3540.0
    assert "of which 0 are left" in answered.take("ann", 1, 100)
    clock.now += 120.0
    assert answered.take("ann", 100, 100) == ""


def test_a_rule_that_is_tightened_holds_for_what_was_told_before():
    answered = AnsweredRows(Clock())
    answered.take("ann", 60, 100)
    assert "of which 0 are left" in answered.take("ann", 1, 50)


@given(st.lists(st.tuples(st.floats(0, 900), st.integers(1, 40)), max_size=60))
def test_in_no_hour_more_rows_are_told_than_the_rule_says(asked):
    clock = Clock()
    answered, told = AnsweredRows(clock), []
    for pause, rows in asked:
        clock.now += pause
        if not answered.take("ann", rows, 100):
            told.append((clock.now, rows))
        assert sum(rows for when, rows in told if when > clock.now - 3600.0) <= 100


def asker_with(found, releases=None, **rules):
    answerers = {"bob": answerer_of(found["bob"], releases, **rules), "cid": answerer_of(found["cid"])}
    return Asker(found["ann"], LocalLine("ann", answerers, PARTIES))


def test_too_many_rows_are_refused_before_they_are_counted_as_released():
    found, _ = federation(values_of())
    ledger = Counted()
    asker = asker_with(found, ledger, rows_per_hour=3)
    assert "policy.answers_per_hour" in ask(asker, IDS[:4]).absent["bob"]
    assert ledger.seen == []
    assert ask(asker, IDS[:3]).has_score.all()
    assert "of which 0 are left" in ask(asker, IDS[:1]).absent["bob"]
    assert len(ledger.seen) == 1


def test_rows_that_a_party_does_not_hold_and_probes_are_not_counted():
    found, _ = federation(values_of())
    asker = asker_with(found, rows_per_hour=1)
    for _ in range(3):
        ask(asker, ["stranger"])
        assert asker.probe(1.0) == {}
    assert ask(asker, IDS[:1]).has_score.all()


def test_a_policy_that_has_ended_answers_nothing():
    found, _ = federation(values_of())
    ended = replace(answerer_of(found["bob"], until=LAST), today=lambda: LAST + datetime.timedelta(days=1))
    line = LocalLine("ann", {"bob": ended, "cid": answerer_of(found["cid"])}, PARTIES)
    answers = ask(Asker(found["ann"], line), IDS[:2])
    assert not answers.has_score.any()
    assert "after 2026-12-31" in answers.absent["bob"]
