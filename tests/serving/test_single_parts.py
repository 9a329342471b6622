"""What an asker that asks as it likes can make of the answers, and what a party can try out on a question."""

import numpy as np

from fdml.protocol.fixed_point import FIXED_POINTS, decode
from fdml.protocol.prediction_wire import decode_asked
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.keys import tokens_digest
from fdml.serving.local_line import LocalLine
from tests.serving.published import (
    IDS,
    PARTIES,
    Counted,
    answerer_of,
    ask,
    asker_of,
    federation,
    publication_of,
    run_of,
    texts,
    values_of,
)
from tests.serving.test_asking import opened_parts, tapped_asker


class Crossing(Asker):
    """An asker that asks each party for a row of its own choice."""

    chosen = None

    def _tokens(self, rows, parties):
        return {name: self.own.facts.keys.tokens_of(texts([self.chosen[name]])) for name in parties}


def crossed_sums(run, rows):
    """What an asker makes of bob's part of one row and cid's of another, for all pairs of these rows."""
    values = values_of()
    found, _ = federation(values, run=run)
    line = LocalLine("ann", {name: answerer_of(found[name]) for name in ("bob", "cid")}, PARTIES)
    asker, sums = Crossing(found["ann"], line), np.zeros((len(rows), len(rows)))
    for at, one in enumerate(rows):
        for to, other in enumerate(rows):
            asker.chosen = {"bob": IDS[one], "cid": IDS[other]}
            parts = asker.parts(AskedRows(texts(["any"])), ("bob", "cid"), again=False)
            assert not parts.absent
            sums[at, to] = decode(parts.total.astype(FIXED_POINTS[32].dtype))[0, 0]
    return values, sums


def test_parts_of_different_rows_do_not_add_up():
    """Else sums of bob's row 0 or 1 with cid's row 0 or 1 would give each party's parts, but for one constant."""
    values, sums = crossed_sums(run_of(), [0, 1])
    for row in (0, 1):
        assert sums[row, row] == values["bob"][row, 0] + values["cid"][row, 0], "what is asked for rightly"
    for one, other in ((0, 1), (1, 0)):
        assert sums[one, other] != values["bob"][one, 0] + values["cid"][other, 0]
    assert sums[0, 0] - sums[1, 0] != values["bob"][0, 0] - values["bob"][1, 0]


def test_where_keys_lead_to_a_party_its_rows_are_the_askers_choice():
    """A limit that docs/privacy.md names: the others cannot know to which of its rows a row leads."""
    values, sums = crossed_sums(run_of(keys={"cid": ["hour"]}), [0, 1])
    assert sums[0, 1] - sums[1, 1] == values["bob"][0, 0] - values["bob"][1, 0]


def test_a_party_cannot_try_out_which_rows_of_another_a_question_leads_to():
    """Keys of another grain are few: an hour, a postcode. With an unkeyed digest bob would find cid's by guessing."""
    run = run_of(keys={"cid": ["hour"]})
    found, _ = federation(values_of(), run=run)
    asker, line = tapped_asker(found)
    ask(asker, [IDS[3]], cid=[IDS[5]])
    to_bob = next(each for each in line.questions if each.party == "bob")
    keys = found["bob"].facts.keys
    asked = decode_asked(keys.open("ann", "question", to_bob.number, to_bob.sealed))
    own, others = (asked.digests[asked.parties.index(name)] for name in ("bob", "cid"))
    tries = [keys.tokens_of(texts([guess])) for guess in IDS]
    assert own == keys.digest("ann", to_bob.number, tries[3]), "its own it can check"
    for tokens in tries:
        known = [tokens_digest(tokens), *(keys.digest(name, to_bob.number, tokens) for name in ("ann", "cid"))]
        assert others not in known


def test_a_row_that_one_party_alone_holds_shows_its_part_where_unmatched_rows_are_kept():
    """A limit that docs/privacy.md names: the zero of a party that does not hold the row hides nobody."""
    run, values = run_of(unmatched="keep"), values_of()
    found, _ = federation(values, run=run)
    found["bob"] = publication_of("bob", IDS[1:], values["bob"][1:], run=run)
    asker, line = tapped_asker(found)
    ask(asker, IDS)
    both = sum(opened_parts(found, line).values())
    assert decode(both.astype(FIXED_POINTS[32].dtype))[0].tolist() == values["cid"][0].tolist()


def test_two_scores_tell_what_one_party_has_changed_between_them():
    """A limit that docs/privacy.md names: a sum of two parts moves by as much as the one that moves."""
    values = values_of()
    found, _ = federation(values)
    before = ask(asker_of(found, "ann"), IDS[:3]).score
    changed = values["bob"].copy()
    changed[1] += 0.25
    found["bob"] = publication_of("bob", IDS, changed)
    after = ask(asker_of(found, "ann"), IDS[:3]).score
    assert (after - before).ravel().tolist() == [0.0, 0.25, 0.0]


def test_whoever_may_ask_can_try_ids_and_learns_who_holds_them_at_no_cost():
    """A limit that docs/privacy.md names: there is no `max_rows` of questions."""
    values = values_of()
    found, _ = federation(values)
    found["bob"] = publication_of("bob", IDS[20:], values["bob"][20:])
    answers = ask(asker_of(found, "ann"), [*IDS, "guess-1", "guess-2"])
    held = {name: (~answers.lacks[:, place]).tolist() for place, name in enumerate(PARTIES)}
    assert held["bob"] == [False] * 20 + [True] * 20 + [False] * 2
    assert held["cid"] == [True] * 40 + [False] * 2
    ledger = Counted()
    line = LocalLine("ann", {name: answerer_of(found[name], ledger) for name in ("bob", "cid")}, PARTIES)
    ask(Asker(found["ann"], line), ["guess-1", "guess-2"])
    assert ledger.seen == []
