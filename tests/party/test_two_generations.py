"""What a party can find out by comparing two generations of an alignment, and how far it can be driven."""

import pytest

from fdml.align.consent import objection
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import Consent
from tests.party.kept_runs import PARTIES, Federation, data_of, people

IDS = {"bank": people(range(40)), "shop": people(range(30)), "clinic": people(range(20))}


class Curious:
    """Consents to everything and keeps the counts that it is shown."""

    def __init__(self):
        self.seen = []

    def __call__(self, summary):
        self.seen.append(summary)
        return Consent(True)

    @property
    def who_changed(self):
        """The parties that have brought or dropped rows since the generation before, by the counts alone."""
        before, after = list({each.number: each for each in self.seen}.values())[-2:]
        moved = zip(PARTIES, before.rows, after.rows, after.new_rows, strict=True)
        return [party for party, old, new, added in moved if added or new != old]


def shared(outcome):
    return {*outcome.train, *outcome.held_out}


def test_where_one_of_three_parties_has_changed_the_others_learn_who_lacked_a_row():
    federation, bank = Federation(), Curious()
    first = federation.align_run("first", data_of(IDS), decide={"bank": bank})["bank"]
    assert shared(first) == set(people(range(20)))
    grown = data_of({**IDS, "clinic": people(range(25))})
    second = federation.align_run("second", grown, decide={"bank": bank})["bank"]
    assert bank.who_changed == ["clinic"]
    lacked_by_clinic = shared(second) - shared(first)
    assert lacked_by_clinic == set(people(range(20, 25)))
    assert lacked_by_clinic <= set(IDS["shop"]), "so shop held them when the clinic did not"
    fewer = data_of({**IDS, "clinic": people(range(10, 25))})
    third = federation.align_run("third", fewer, decide={"bank": bank})["bank"]
    assert bank.who_changed == ["clinic"]
    assert shared(second) - shared(third) == set(people(range(10))) <= set(IDS["shop"]), "and holds these still"


def test_of_two_parties_each_learns_what_the_other_has_taken_in_and_dropped():
    federation = Federation(parties=PARTIES[:2])
    first = federation.align_run("first", data_of(IDS))["bank"]
    second = federation.align_run("second", data_of({**IDS, "shop": people(range(5, 33))}))["bank"]
    assert shared(first) - shared(second) == set(people(range(5)))
    assert shared(second) - shared(first) == set(people(range(30, 33)))


def test_of_rows_that_are_not_shared_two_generations_tell_counts_alone():
    federation, bank = Federation(), Curious()
    federation.align_run("first", data_of(IDS), decide={"bank": bank})
    first = bank.seen[-1]
    strangers = data_of({**IDS, "shop": [*IDS["shop"], *people(range(500, 507))]})
    second = federation.align_run("second", strangers, decide={"bank": bank})["bank"]
    assert shared(second) == set(people(range(20)))
    assert (bank.seen[-1].shared, bank.seen[-1].new_rows) == (first.shared, (0, 7, 0))


def test_guesses_that_are_taken_back_count_against_the_limit():
    """A party that brings other guesses with every generation would else try as many ids as it likes."""
    federation = Federation(parties=PARTIES[:2])

    def careful(summary):
        against = objection(summary, federation.settings("any"), "bank", max_rows=35, min_shared=None)
        return Consent(not against, against)

    for number, guesses in enumerate((range(30), range(30, 35))):
        federation.align_run(f"run {number}", data_of({**IDS, "shop": people(guesses)}), decide={"bank": careful})
    with pytest.raises(AlignmentError, match=r"party 'shop' brings 40 rows, and align\.max_rows of 'bank' is 35"):
        federation.align_run("last", data_of({**IDS, "shop": people(range(35, 40))}), decide={"bank": careful})
