"""The kinds of reasons for no answer: every sentence of an answering party has the one that callers act on."""

from dataclasses import replace

import pytest

from fdml.errors import PrivacyBudgetSpent
from fdml.serving.online.refusals import STATUS, refused_by
from fdml.serving.reasons import Reason, first_reason, not_asked, reason_of, unreachable
from fdml.settings.serving import ServingSettings
from tests.serving.published import (
    IDS,
    Counted,
    answerer_of,
    ask,
    asker_of,
    federation,
    publication_of,
    run_of,
    values_of,
)


class Spent:
    def count(self, publication):
        raise PrivacyBudgetSpent("no more")


def absent_of(found, asker="ann", **options):
    """What an asker hears of the others' answers."""
    return ask(asker_of(found, asker, **options), IDS[:2]).absent


def with_answerer(monkeypatch, **options):
    monkeypatch.setattr("tests.serving.published.answerer_of", lambda each: answerer_of(each, **options))


def test_a_spent_budget(monkeypatch):
    found, _ = federation(values_of())
    with_answerer(monkeypatch, releases=Spent())
    assert {reason_of(words) for words in absent_of(found).values()} == {Reason.BUDGET}


def test_a_policy_that_does_not_answer(monkeypatch):
    found, _ = federation(values_of())
    with_answerer(monkeypatch, askers=("eve",))
    assert {reason_of(words) for words in absent_of(found).values()} == {Reason.FORBIDDEN}


def test_an_asker_that_the_run_does_not_let_ask():
    found, _ = federation(values_of())
    mild = run_of(serving=ServingSettings(may_ask=("bob",)))
    found["bob"] = replace(found["bob"], facts=replace(found["bob"].facts, run=mild))
    absent = absent_of(found, "bob")
    assert {reason_of(words) for words in absent.values()} == {Reason.FORBIDDEN}


@pytest.mark.parametrize("version", ["f" * 32])
def test_another_version(version):
    found, _ = federation(values_of())
    found["cid"] = publication_of("cid", IDS, values_of()["cid"], version=version)
    absent = absent_of(found)
    assert absent.keys() == {"cid"}
    assert reason_of(absent["cid"]) is Reason.VERSION


def test_another_version_under_the_same_keys():
    found, _ = federation(values_of())
    found["cid"] = replace(found["cid"], facts=replace(found["cid"].facts, version="f" * 32))
    assert reason_of(absent_of(found)["cid"]) is Reason.VERSION


def test_a_party_that_does_not_stand_by():
    found, _ = federation(values_of())
    absent = absent_of(found, missing=("cid",))
    assert reason_of(absent["cid"]) is Reason.AWAY
    assert unreachable(absent) == absent


def test_a_party_that_is_late():
    assert reason_of("no answer within 2 s") is Reason.LATE


def test_a_party_that_is_known_to_be_away_is_not_asked_and_the_others_say_so():
    _, asker = federation(values_of())
    asker.away = lambda: {"cid": "no answer within 2 s"}
    answers = ask(asker, IDS[:2])
    assert not answers.has_score.any()
    assert answers.absent == {"bob": not_asked(["cid"]), "cid": "no answer within 2 s"}
    assert reason_of(answers.absent["bob"]) is Reason.NOT_ASKED


def test_only_reasons_that_matter_are_told():
    refusal = refused_by({"bob": not_asked(["cid"]), "cid": "no answer within 2 s"})
    assert (refusal.status, str(refusal)) == (504, "cid: no answer within 2 s")


def test_the_gravest_reason_decides_the_status():
    absent = {"bob": "no answer within 2 s", "cid": "its privacy budget is spent", "dan": "it is not standing by"}
    assert first_reason(absent) is Reason.BUDGET
    assert refused_by(absent).status == 429
    assert all(name in str(refused_by(absent)) for name in absent)


def test_every_kind_of_reason_has_a_status():
    assert STATUS.keys() == set(Reason)


def test_a_probe_costs_no_release_and_tells_who_is_away(monkeypatch):
    counted = Counted()
    found, _ = federation(values_of())
    with_answerer(monkeypatch, releases=counted)
    assert asker_of(found, "ann", missing=("cid",)).probe(1.0).keys() == {"cid"}
    assert asker_of(found, "ann").probe(1.0) == {}
    assert counted.seen == []
    ask(asker_of(found, "ann"), IDS[:2])
    assert {party for party, _ in counted.seen} == {"bob", "cid"}
