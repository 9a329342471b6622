"""Asking and answering without a network: sums, masks, rights, versions, unknown rows, absent parties."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.errors import DataError, PrivacyBudgetSpent, SettingsError
from fdml.protocol.fixed_point import FIXED_POINTS, decode
from fdml.protocol.prediction_messages import Question
from fdml.protocol.prediction_wire import decode_answered
from fdml.serving.answers import row_patterns
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.local_line import LocalLine
from fdml.settings.serving import ServingSettings
from tests.serving.published import (
    IDS,
    PARTIES,
    Counted,
    answerer_of,
    ask,
    asker_of,
    federation,
    publication_of,
    reading_of,
    run_of,
    texts,
    values_of,
)


def total_of(values, rows):
    return sum(values[name][rows] for name in values)


@pytest.mark.parametrize("parties", [("ann",), ("ann", "bob"), PARTIES, ("ann", "bob", "cid", "dan", "eve")])
def test_a_score_is_the_sum_of_all_parts_in_the_order_asked_for(parties):
    values = values_of(parties)
    _, asker = federation(values, run=run_of(parties))
    rows = [7, 3, 3, 0, 39]
    answers = ask(asker, [IDS[row] for row in rows])
    assert answers.score.tolist() == total_of(values, rows).tolist()
    assert not answers.lacks.any()
    assert answers.absent == {}


def test_a_multiclass_score_has_a_column_for_each_class():
    values, run = values_of(width=3), run_of(task="multiclass")
    _, asker = federation(values, run=run)
    answers = ask(asker, IDS[:4])
    assert answers.score.tolist() == total_of(values, slice(0, 4)).tolist()
    assert answers.probability.shape == (4, 3)
    assert answers.prediction.tolist() == [["a", "b", "c"][at] for at in total_of(values, slice(0, 4)).argmax(axis=1)]


def test_the_label_partys_calibration_is_applied():
    values = values_of()
    _, asker = federation(values, reading=reading_of(scale=2.0, offset=(0.5,)))
    assert ask(asker, IDS[:3]).score.tolist() == (2.0 * total_of(values, slice(0, 3)) + 0.5).tolist()


def test_another_party_that_may_ask_gets_the_same_scores_and_classes():
    run = run_of(serving=ServingSettings(may_ask=("ann", "bob")))
    values = values_of()
    found, asker = federation(values, run=run)
    others = asker_of(found, "bob")
    assert ask(others, IDS).score.tolist() == ask(asker, IDS).score.tolist()
    assert ask(others, IDS).prediction.tolist() == ask(asker, IDS).prediction.tolist()


def test_a_party_that_may_not_ask_is_told_so_at_once():
    found, _ = federation(values_of())
    with pytest.raises(SettingsError, match=r"'bob' may not ask .* serving.may_ask = ann"):
        asker_of(found, "bob")


def test_a_party_that_asks_all_the_same_is_refused_by_each():
    found, _ = federation(values_of())
    mild = run_of(serving=ServingSettings(may_ask=("bob",)))
    bob = replace(found["bob"], facts=replace(found["bob"].facts, run=mild))
    asker = Asker(bob, LocalLine("bob", {name: answerer_of(found[name]) for name in ("ann", "cid")}, PARTIES))
    answers = ask(asker, IDS[:2])
    assert not answers.has_score.any()
    assert all("bob may not ask" in answers.absent[name] for name in ("ann", "cid"))


def test_a_partys_own_policy_narrows_who_may_ask():
    found, _ = federation(values_of())
    line = LocalLine(
        "ann", {"bob": answerer_of(found["bob"], askers=("cid",)), "cid": answerer_of(found["cid"])}, PARTIES
    )
    answers = ask(Asker(found["ann"], line), IDS[:2])
    assert "policy.askers" in answers.absent["bob"]
    assert not answers.has_score.any()


def test_a_party_with_another_version_is_absent_never_mixed_in():
    values = values_of()
    found, _ = federation(values)
    other = publication_of("cid", IDS, values["cid"], version="f" * 32)
    same_keys = replace(other, facts=replace(other.facts, keys=found["cid"].facts.keys))
    asker = asker_of({**found, "cid": same_keys}, "ann")
    answers = ask(asker, IDS[:2])
    assert not answers.has_score.any()
    assert "it has version ffffffffffff of run 'first', not 0123456789ab" in answers.absent["cid"]
    strangers = ask(asker_of({**found, "cid": other}, "ann"), IDS[:2])
    assert "another run or version" in strangers.absent["cid"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"offset": (0.0, 1.0, 2.0)},
        {"offset": ()},
        {"scale": float("nan")},
        {"scale": float("inf")},
        {"task": "multiclass", "offset": (0.0,)},
    ],
)
def test_a_label_party_whose_reading_does_not_fit_is_absent(wrong):
    """Else rows would have no score with nobody missing, or the asker would end with an error."""
    run = run_of(serving=ServingSettings(may_ask=("ann", "bob")))
    found, _ = federation(values_of(), run=run)
    ann = found["ann"]
    found["ann"] = replace(ann, facts=replace(ann.facts, reading=reading_of(**wrong).to_json().decode()))
    answers = ask(asker_of(found, "bob"), IDS[:2])
    assert not answers.has_score.any()
    assert "label party" in answers.absent["ann"]


def test_more_rows_than_an_answer_can_carry_are_refused():
    values, run = values_of(width=3), run_of(task="multiclass")
    found, _ = federation(values, run=run)
    wide = replace(found["bob"].column, codes=np.zeros((40, 2000), np.int64), exact=np.zeros((40, 2000), np.int64))
    found["bob"] = replace(found["bob"], column=wide)
    assert "rows; of this model" in ask(asker_of(found, "ann"), list(IDS) * 60).absent["bob"]


class Tapped:
    """A line that keeps what it carries."""

    def __init__(self, line):
        self.line, self.questions, self.replies = line, [], []

    def exchange(self, questions, seconds):
        found = self.line.exchange(questions, seconds)
        self.questions += questions
        self.replies.append(found)
        return found


def opened_parts(found, tapped):
    """What the asker sees of each answer, after it has taken the seals off."""
    keys, parts = found["ann"].facts.keys, {}
    for party, reply in tapped.replies[-1].items():
        parts[party] = decode_answered(keys.open(party, "answer", reply.number, reply.sealed), len(IDS)).codes
    return parts


def tapped_asker(found):
    line = Tapped(LocalLine("ann", {name: answerer_of(found[name]) for name in ("bob", "cid")}, PARTIES))
    return Asker(found["ann"], line), line


def test_the_asker_sees_the_sum_of_the_others_and_not_their_parts():
    values = values_of()
    found, _ = federation(values)
    asker, line = tapped_asker(found)
    ask(asker, IDS)
    parts = opened_parts(found, line)
    for party in ("bob", "cid"):
        plain = found[party].column.codes[found[party].column.find(found[party].facts.keys.tokens_of(texts(IDS)))]
        assert (parts[party] != plain).all(), "a part is under masks that the asker does not have"
        assert (np.abs(parts[party].astype(float)) > 2**50).mean() > 0.9, "masks fill all 64 bits"
    assert (
        decode((parts["bob"] + parts["cid"]).astype(FIXED_POINTS[32].dtype)).tolist()
        == (values["bob"] + values["cid"]).tolist()
    )


def test_the_same_rows_asked_twice_are_under_other_masks():
    found, _ = federation(values_of())
    asker, line = tapped_asker(found)
    seen = []
    for _ in range(2):
        ask(asker, IDS)
        seen.append(opened_parts(found, line)["bob"])
    assert (seen[0] != seen[1]).all()


def test_the_relay_sees_neither_ids_nor_tokens_nor_that_they_repeat():
    """As the alignment's canary: an id that is easy to find must not be found, nor anything that stands for it."""
    canary = "canary-4711@example.com"
    values = values_of(rows=len(IDS) + 1)
    found, _ = federation(values, ids=(*IDS, canary))
    asker, line = tapped_asker(found)
    for _ in range(2):
        ask(asker, [canary, *IDS])
    tokens = found["ann"].facts.keys.tokens_of(texts([canary, *IDS]))
    seen = [each.sealed for each in line.questions] + [
        each.sealed for replies in line.replies for each in replies.values()
    ]
    for sealed in seen:
        assert canary.encode() not in sealed
        assert not any(token.tobytes() in sealed for token in tokens)
    windows = [{sealed[at : at + 8] for at in range(len(sealed) - 8)} for sealed in seen]
    for at, one in enumerate(windows):
        for other in windows[at + 1 :]:
            assert not one & other, "two messages have eight bytes in common, by which they could be linked"


def test_an_unknown_id_has_a_row_that_says_who_does_not_know_it():
    values = values_of()
    found, _ = federation(values)
    found["bob"] = publication_of("bob", IDS[1:], values["bob"][1:])
    answers = ask(asker_of(found, "ann"), [IDS[0], IDS[1], "stranger"])
    assert answers.has_score.tolist() == [False, True, False]
    assert answers.missing_text(answers.lacks[0]) == "bob"
    assert answers.why_text(answers.lacks[0]) == "bob: unknown id"
    assert answers.answered_text(answers.lacks[1]) == "ann,bob,cid"
    assert answers.missing_text(answers.lacks[2]) == "ann,bob,cid"


def test_a_row_that_one_party_lacks_tells_nothing_of_the_others():
    """Else an asker could learn a single party's part by asking for rows that the others do not hold."""
    values = values_of()
    found, _ = federation(values)
    found["bob"] = publication_of("bob", IDS[1:], values["bob"][1:])
    asker, line = tapped_asker(found)
    ask(asker, IDS)
    parts = opened_parts(found, line)
    both = parts["bob"] + parts["cid"]
    cid = found["cid"].column.codes[found["cid"].column.find(found["cid"].facts.keys.tokens_of(texts(IDS)))]
    assert both[0, 0] != cid[0, 0]
    assert abs(float(both[0, 0])) > 2**40


class OtherRows(Asker):
    """Asks one party for other rows than the rest, in the same question."""

    def _tokens(self, rows, parties):
        found = super()._tokens(rows, parties)
        return {**found, parties[-1]: self.own.facts.keys.tokens_of(self.instead)}


@pytest.mark.parametrize("instead", ["r7", "stranger"])
@pytest.mark.parametrize("unmatched", ["drop", "keep"])
@pytest.mark.parametrize("absent", ["fail", "calibrated"])
def test_of_parties_that_are_asked_for_different_rows_nothing_is_learned(unmatched, absent, instead):
    """Else bob(r0) + cid(r7) and bob(r1) + cid(r7) would tell bob's part up to a constant, or without one."""
    run = run_of(unmatched=unmatched, serving=ServingSettings(absent=absent))
    values = values_of()
    found, _ = federation(values, run=run)
    line = LocalLine("ann", {name: answerer_of(found[name]) for name in ("bob", "cid")}, PARTIES)
    asker = OtherRows(found["ann"], line)
    asker.instead = texts([instead] * 2)
    total = asker.parts(AskedRows(texts(IDS[:2])), ("bob", "cid"), again=False).total
    assert (np.abs(total.astype(float)) > 2**40).all(), "the masks have not cancelled"


def test_a_party_with_keys_of_its_own_is_asked_by_them():
    run = run_of(keys={"cid": ("shop",)})
    values = values_of()
    _, asker = federation(values, run=run)
    answers = ask(asker, IDS[:2], cid=["r7", "r7"])
    assert answers.score.tolist() == (values["ann"][:2] + values["bob"][:2] + values["cid"][[7, 7]]).tolist()


def test_rows_trained_without_a_part_are_served_so():
    """With unmatched = "keep" a row that another party does not hold was trained with a part of zero."""
    run = run_of(unmatched="keep")
    values = values_of()
    found, _ = federation(values, run=run)
    found["bob"] = publication_of("bob", IDS[1:], values["bob"][1:], run=run)
    answers = ask(asker_of(found, "ann"), [IDS[0], IDS[1]])
    assert answers.score[0].tolist() == (values["ann"][0] + values["cid"][0]).tolist()
    assert answers.missing_text(answers.lacks[0]) == "bob"


def test_a_row_without_an_id_has_no_score():
    _, asker = federation(values_of())
    answers = ask(asker, [None, IDS[0]])
    assert answers.has_score.tolist() == [False, True]


def test_without_a_party_there_is_no_score_and_its_name_is_said():
    _, asker = federation(values_of(), missing=("cid",))
    answers = ask(asker, IDS[:3])
    assert not answers.has_score.any()
    assert answers.missing_text(answers.lacks[0]) == "cid"
    assert "not standing by" in answers.why_text(answers.lacks[0])


def test_a_party_is_not_asked_alone_where_the_rule_is_to_fail():
    """Else an asker could learn its part by saying that the others are missing."""
    _, asker = federation(values_of())
    parts = asker.parts(AskedRows(texts(IDS[:2])), ("bob",), again=False)
    assert "only where all parties are asked" in parts.absent["bob"]
    assert not parts.total.any()


def test_an_answer_is_counted_before_it_is_given_and_an_unknown_row_is_none():
    found, _ = federation(values_of())
    ledger = Counted()
    line = LocalLine("ann", {name: answerer_of(found[name], ledger) for name in ("bob", "cid")}, PARTIES)
    asker = Asker(found["ann"], line)
    ask(asker, ["stranger"])
    assert ledger.seen == []
    ask(asker, ["stranger", IDS[0]])
    assert sorted(ledger.seen) == [("bob", 1), ("cid", 1)]


class Spent:
    def count(self, publication):
        raise PrivacyBudgetSpent("epsilon 3.1 of 3.0; figures that stay at home")


def test_a_spent_budget_is_said_without_its_figures():
    found, _ = federation(values_of())
    line = LocalLine("ann", {"bob": answerer_of(found["bob"], Spent()), "cid": answerer_of(found["cid"])}, PARTIES)
    answers = ask(Asker(found["ann"], line), IDS[:2])
    assert "privacy budget is spent" in answers.absent["bob"]
    assert "3.1" not in answers.absent["bob"]
    assert not answers.has_score.any()


def test_a_run_that_a_party_does_not_know_is_said():
    found, _ = federation(values_of())
    nothing = answerer_of(
        publication_of("bob", IDS, values_of()["bob"], run=run_of().model_copy(update={"name": "other"}))
    )
    line = LocalLine("ann", {"bob": nothing, "cid": answerer_of(found["cid"])}, PARTIES)
    assert "no model of run 'first'" in ask(Asker(found["ann"], line), IDS[:2]).absent["bob"]


def test_a_question_that_was_changed_on_its_way_is_refused():
    found, _ = federation(values_of())
    reply = answerer_of(found["bob"]).answer(Question(b"n" * 16, "first", "ann", b"x" * 100))
    assert "cannot be opened" in reply.absent
    assert reply.sealed == b""


def test_too_many_rows_for_one_question_are_refused():
    _, asker = federation(values_of())
    with pytest.raises(DataError, match="the most is"):
        ask(asker, ["r1"] * (asker.rows_at_once + 1))


class Silent:
    """A line on which one party never answers, and a clock that the waiting moves."""

    def __init__(self, line, party):
        self.line, self.party, self.now, self.rounds = line, party, 0.0, []

    def exchange(self, questions, seconds):
        self.rounds.append([each.party for each in questions])
        found = self.line.exchange([each for each in questions if each.party != self.party], seconds)
        if any(each.party == self.party for each in questions):
            self.now += seconds
        return found


@pytest.mark.parametrize("rule", ["fail", "calibrated"])
def test_nobody_is_waited_for_past_the_deadline(rule):
    run = run_of(serving=ServingSettings(absent=rule))
    found, _ = federation(values_of(), run=run)
    line = Silent(LocalLine("ann", {name: answerer_of(found[name]) for name in ("bob", "cid")}, PARTIES), "bob")
    asker = Asker(found["ann"], line, seconds=3.0, clock=lambda: line.now)
    answers = ask(asker, IDS[:2])
    assert line.now <= 3.0
    assert "no answer within" in answers.absent["bob"]
    assert answers.missing_text(answers.lacks[0]) == "bob"
    assert line.rounds == ([["bob", "cid"]] if rule == "fail" else [["bob", "cid"], ["cid"]])


class EverFewer(Silent):
    """A line on which one more party falls silent with every question."""

    def exchange(self, questions, seconds):
        self.rounds.append([each.party for each in questions])
        self.now += seconds
        return self.line.exchange(questions[1:], seconds)


def test_the_deadline_is_that_of_all_questions_together_when_one_after_the_other_falls_silent():
    parties = ("ann", "bob", "cid", "dan", "eve")
    run = run_of(parties, serving=ServingSettings(absent="calibrated"))
    found, _ = federation(values_of(parties), run=run)
    line = EverFewer(LocalLine("ann", {name: answerer_of(found[name]) for name in parties[1:]}, parties), "")
    answers = ask(Asker(found["ann"], line, seconds=4.0, clock=lambda: line.now), IDS[:2])
    assert [len(each) for each in line.rounds] == [4, 3, 2, 1]
    assert line.now <= 4.0
    assert set(answers.absent) == {"bob", "cid", "dan", "eve"}


@pytest.mark.parametrize("parties", [1, 3, 8, 9, 70])
def test_rows_that_lack_the_same_parties_are_found_together(parties):
    lacks = np.random.default_rng(parties).random((50, parties)) < 0.2
    patterns, which = row_patterns(lacks)
    assert (patterns[which] == lacks).all()
    assert len(np.unique(patterns, axis=0)) == len(patterns)
