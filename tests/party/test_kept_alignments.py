"""Runs of one federation over one alignment: it is used again while ids are the same, and added to when rows come."""

import numpy as np
import pytest

from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import Consent, RemovedRows, RowsOffer, Tokens
from fdml.server.generations import Generations
from tests.party.kept_runs import PARTIES, Federation, IdData, data_of, people

MODES = ("tokens", "ecdh")
FIRST = {
    "bank": people(range(60)),
    "shop": people(range(10, 70)),
    "clinic": people(range(5, 50), range(80, 90)),
}
"""40 persons are shared: 10 to 49."""


def later(extra=range(100, 110), gone=()):
    """New persons at all parties, each in another order of its file."""
    random = np.random.default_rng(3)
    new = {}
    for party, ids in FIRST.items():
        now = [each for each in [*ids, *people(extra)] if each not in people(gone)]
        new[party] = list(random.permutation(now))
    return data_of(new)


@pytest.mark.parametrize("mode", MODES)
def test_five_runs_over_the_same_ids_and_seed_have_the_same_split_and_order(mode):
    federation = Federation(mode)
    runs = [federation.align_run(f"run {number}", data_of(FIRST)) for number in range(5)]
    for party in PARTIES:
        first = runs[0][party]
        assert sorted([*first.train, *first.held_out]) == sorted(people(range(10, 50)))
        for run in runs[1:]:
            assert run[party].train == first.train
            assert run[party].held_out == first.held_out
            assert run[party].shared.digest == first.shared.digest
            assert run[party].keys_posted == 0, "nothing has changed, so no key travels"
            assert [type(each) for each in run[party].posted] == [RowsOffer]


def test_another_seed_has_another_split_over_the_same_alignment():
    federation = Federation()
    first = federation.align_run("first", data_of(FIRST))["bank"]
    other = federation.align_run("other", data_of(FIRST), seed=8)["bank"]
    assert other.keys_posted == 0
    assert sorted(other.train + other.held_out) == sorted(first.train + first.held_out)
    assert other.held_out != first.held_out


def test_what_seals_a_run_is_of_that_run_alone():
    federation = Federation()
    runs = [federation.align_run(name, data_of(FIRST))["bank"].shared for name in ("first", "second")]
    assert runs[0].digest == runs[1].digest
    assert runs[0].key.secret != runs[1].key.secret
    assert set(runs[0].pair_keys.values()).isdisjoint(runs[1].pair_keys.values())
    theirs = Federation.align_run(federation, "third", data_of(FIRST))
    assert theirs["bank"].shared.key.secret == theirs["shop"].shared.key.secret


@pytest.mark.parametrize("mode", MODES)
def test_of_new_rows_alone_keys_travel_and_old_rows_keep_order_and_split(mode):
    federation = Federation(mode)
    before = federation.align_run("first", data_of(FIRST))
    after = federation.align_run("second", later())
    for party in PARTIES:
        old, new = before[party], after[party]
        assert new.keys_posted == 10
        assert new.train[: len(old.train)] == old.train, "old rows keep their order"
        assert new.held_out[: len(old.held_out)] == old.held_out, "held-out rows stay held out"
        added = new.train[len(old.train) :] + new.held_out[len(old.held_out) :]
        assert sorted(added) == sorted(people(range(100, 110)))
        assert (len(new.train), len(new.held_out)) == (38, 12), "a quarter of all rows is held out"
        assert new.train == after["bank"].train, "all parties have the same order"
        assert new.shared.digest != old.shared.digest
        assert "10 new rows, 0 gone; the others keep their order and split" in new.remarks
    again = federation.align_run("third", later())
    assert [each.keys_posted for each in again.values()] == [0, 0, 0]
    assert again["shop"].train == after["shop"].train


@pytest.mark.parametrize("mode", MODES)
def test_a_row_that_others_had_before_is_found_when_the_last_party_brings_it(mode):
    federation = Federation(mode)
    federation.align_run("first", data_of(FIRST))
    joined = data_of({**FIRST, "clinic": [*FIRST["clinic"], *people(range(50, 60))]})
    after = federation.align_run("second", joined)
    assert [each.keys_posted for each in after.values()] == [0, 0, 10]
    assert sorted(after["bank"].train + after["bank"].held_out) == sorted(people(range(10, 60)))
    assert after["bank"].train == after["shop"].train == after["clinic"].train


@pytest.mark.parametrize("mode", MODES)
def test_ids_that_have_gone_leave_and_the_others_keep_order_and_split(mode):
    federation = Federation(mode)
    before = federation.align_run("first", data_of(FIRST))["bank"]
    lost = {**FIRST, "shop": [each for each in FIRST["shop"] if each not in people(range(10, 15))]}
    after = federation.align_run("second", data_of(lost))
    for party, found in after.items():
        assert found.keys_posted == 0
        assert found.train == [each for each in before.train if each not in people(range(10, 15))], party
        assert found.held_out == [each for each in before.held_out if each not in people(range(10, 15))], party
        assert "0 new rows, 5 gone; the others keep their order and split" in found.remarks
    back = federation.align_run("third", data_of(FIRST))
    assert [each.keys_posted for each in back.values()] == [0, 0, 0], "the rows are those of the first generation"
    assert back["shop"].train == before.train


@pytest.mark.parametrize("mode", MODES)
def test_ids_that_come_back_are_new_rows(mode):
    federation = Federation(mode)
    federation.align_run("first", data_of(FIRST))
    federation.align_run("second", data_of({**FIRST, "shop": FIRST["shop"][5:]}))
    back = federation.align_run("third", data_of({**FIRST, "shop": [*FIRST["shop"], "another"]}))
    assert [each.keys_posted for each in back.values()] == [0, 6, 0]
    assert sorted(back["bank"].train + back["bank"].held_out) == sorted(people(range(10, 50)))
    assert back["bank"].train == back["shop"].train == back["clinic"].train


def test_many_changes_one_after_the_other_give_the_plain_intersection():
    federation, random = Federation(), np.random.default_rng(5)
    ids = {party: set(each) for party, each in FIRST.items()}
    held_out, trained = set(), set()
    for number in range(8):
        for each in ids.values():
            each -= set(random.permutation(sorted(each))[:3])
            each |= set(people(random.integers(0, 120, size=8)))
        found = federation.align_run(f"run {number}", data_of({party: sorted(each) for party, each in ids.items()}))
        shared = set.intersection(*ids.values())
        for each in found.values():
            assert each.train == found["bank"].train
            assert each.held_out == found["bank"].held_out
        assert set(found["bank"].train) | set(found["bank"].held_out) == shared
        assert len(found["bank"].train) + len(found["bank"].held_out) == len(shared)
        stayed = shared & (held_out | trained)
        assert {each for each in stayed if each in held_out and each in found["bank"].train} <= federation_returned
        held_out, trained = set(found["bank"].held_out), set(found["bank"].train)


federation_returned: set = set(people(range(130)))
"""Persons that may have gone and come back, as other rows."""


def test_the_same_ids_in_another_order_of_the_file_change_nothing():
    federation = Federation()
    first = federation.align_run("first", data_of(FIRST))
    turned = data_of({party: each[::-1] for party, each in FIRST.items()})
    second = federation.align_run("second", turned)
    for party in PARTIES:
        assert second[party].keys_posted == 0
        assert second[party].train == first[party].train
        assert second[party].shared.digest == first[party].shared.digest


def test_test_files_are_added_to_as_well():
    federation = Federation()
    tests = {party: people(range(200, 205)) for party in PARTIES}
    first = federation.align_run("first", data_of(FIRST, tests))
    more = {party: people(range(200, 208)) for party in PARTIES}
    second = federation.align_run("second", data_of(FIRST, more))
    for party in PARTIES:
        assert second[party].keys_posted == 3
        assert second[party].held_out[:5] == first[party].held_out
        assert sorted(second[party].held_out[5:]) == people(range(205, 208))
        assert second[party].train == first[party].train
    without = federation.align_run("third", data_of(FIRST))
    assert without["bank"].keys_posted == 60, "with test files or without is another alignment"


def test_rows_without_ids_are_matched_anew_when_their_number_changes():
    federation = Federation()
    of = {number: {party: IdData(None, count=number) for party in PARTIES} for number in (20, 24)}
    first = federation.align_run("first", of[20])["bank"]
    again = federation.align_run("second", of[20])["bank"]
    assert again.shared.train.tolist() == first.shared.train.tolist()
    assert [type(each) for each in again.posted] == [RowsOffer]
    more = federation.align_run("third", of[24])["bank"]
    assert sorted([*more.shared.train, *more.shared.held_out]) == list(range(24))
    ids = federation.align_run("fourth", data_of(FIRST))["bank"]
    assert ids.keys_posted == 60, "rows with ids cannot be added to rows without"


def test_a_party_that_has_lost_what_it_kept_makes_all_align_anew():
    federation = Federation()
    first = federation.align_run("first", data_of(FIRST))
    federation.kept["shop"].files.clear()
    second = federation.align_run("second", data_of(FIRST))
    assert [each.keys_posted for each in second.values()] == [60, 60, 55]
    assert second["bank"].train == second["shop"].train
    assert second["bank"].shared.digest == first["bank"].shared.digest, "the first party has the group key still"
    third = federation.align_run("third", data_of(FIRST))
    assert [each.keys_posted for each in third.values()] == [0, 0, 0]


def test_a_server_that_has_lost_what_it_kept_makes_all_align_anew():
    federation = Federation()
    federation.align_run("first", data_of(FIRST))
    federation.server.files.clear()
    second = federation.align_run("second", later())
    assert [each.keys_posted for each in second.values()] == [70, 70, 65]
    assert [each.keys_posted for each in federation.align_run("third", later()).values()] == [0, 0, 0]


def test_rows_that_one_party_has_stored_and_another_has_not_are_matched_again_to_the_same_bits():
    """A crash of one party before it stored the new generation, and then a run of another name."""
    federation = Federation()
    federation.align_run("first", data_of(FIRST))
    shop = federation.kept["shop"].copy()
    second = federation.align_run("second", later())
    federation.kept["shop"] = shop
    third = federation.align_run("third", later())
    assert [each.keys_posted for each in third.values()] == [0, 10, 0], "who has it stored need not post again"
    for party in PARTIES:
        assert third[party].train == second[party].train
        assert third[party].shared.digest == second[party].shared.digest


def test_a_run_goes_on_with_the_generation_that_it_began_with():
    federation = Federation()
    first = federation.align_run("first", data_of(FIRST))
    federation.align_run("second", later())
    again = federation.align_run("first", data_of(FIRST))
    assert [each.posted for each in again.values()] == [[], [], []]
    assert again["bank"].train == first["bank"].train


def test_ids_that_change_in_the_middle_of_a_runs_alignment_are_refused_with_the_way_out():
    federation = Federation()
    driver, channel, _ = federation.sides("first", data_of(FIRST))["bank"]
    driver.advance()
    assert [type(each.message) for each in channel.sent[:1]] == [RowsOffer]
    with pytest.raises(AlignmentError, match=r"the ids of party 'bank' have changed since.*give the run a new name"):
        federation.align_run("first", later())
    assert sorted(federation.align_run("second", later())["bank"].train) != []


def test_every_generation_is_consented_to_by_its_counts():
    seen = []

    def decide(summary):
        seen.append(summary)
        return Consent(True)

    federation = Federation(parties=PARTIES[:2])
    federation.align_run("first", data_of(FIRST), decide=decide)
    federation.align_run("second", data_of(FIRST), decide=decide)
    assert {each.number for each in seen} == {1}, "nobody is asked where nothing has changed"
    federation.align_run("third", later(gone=range(10, 13)), decide=decide)
    counts = seen[-1]
    assert (counts.number, counts.rows, counts.shared) == (2, (67, 67), 57)
    assert (counts.new_rows, counts.new_shared, counts.left) == ((10, 10), 10, 3)
    assert counts.brought == (70, 70)


def test_a_refused_generation_leaves_the_kept_alignment_as_it_was():
    federation = Federation()
    first = federation.align_run("first", data_of(FIRST))
    kept = federation.kept["bank"].copy()
    refusing = {"bank": lambda _: Consent(False, "too many")}
    with pytest.raises(AlignmentError, match="party 'bank' does not consent"):
        federation.align_run("second", later(), decide=refusing)
    generations = [name for name in federation.kept["bank"].files if name.startswith("generation")]
    assert generations == [name for name in kept.files if name.startswith("generation")]
    assert federation.align_run("third", data_of(FIRST))["bank"].train == first["bank"].train
    after = federation.align_run("second", later())
    assert len(after["bank"].train) == 38, "the same run goes on once all consent"


def test_a_group_key_file_that_changes_makes_all_align_anew(tmp_path):
    federation, key_file = Federation(), tmp_path / "group.key"
    for text in ("ab", "cd"):
        key_file.write_text(text * 32)
        key_file.chmod(0o600)
        runs = [federation.align_run(f"{text} {number}", data_of(FIRST), key_file=key_file) for number in range(2)]
        assert [each["bank"].keys_posted for each in runs] == [60, 0]
    without = federation.align_run("without", data_of(FIRST))
    assert without["bank"].keys_posted == 60


def tokens_of(federation, run, data):
    found = federation.align_run(run, data)["bank"].posted
    return [each.tobytes() for message in found if isinstance(message, Tokens) for each in message.train]


def test_the_server_can_link_a_row_over_runs_of_one_federation_and_not_over_federations():
    one, other = Federation(name="credit"), Federation(name="health")
    first, theirs = tokens_of(one, "run", data_of(FIRST)), tokens_of(other, "run", data_of(FIRST))
    assert len(first) == 60
    assert set(first).isdisjoint(theirs)
    kept = b"".join(one.server.files.values())
    assert all(token in kept for token in first), "tokens stay at the server, for the rows that come later"
    gone = data_of({**FIRST, "bank": FIRST["bank"][5:]})
    assert tokens_of(one, "second", gone) == []
    back = tokens_of(one, "third", data_of({**FIRST, "bank": [*FIRST["bank"], "another"]}))
    assert len(back) == 6
    assert len(set(back) & set(first)) == 5, "who comes back has the token that he had"
    assert set(tokens_of(Federation(name="credit"), "run", data_of(FIRST))).isdisjoint(first), "the key is drawn"


def test_with_one_key_file_for_two_federations_their_tokens_differ(tmp_path):
    key_file = tmp_path / "group.key"
    key_file.write_text("ab" * 32)
    key_file.chmod(0o600)
    posted = []
    for name in ("credit", "health"):
        found = Federation(name=name).align_run("run", data_of(FIRST), key_file=key_file)["bank"].posted
        posted.append({each.tobytes() for message in found if isinstance(message, Tokens) for each in message.train})
    assert posted[0].isdisjoint(posted[1])


@pytest.mark.slow
def test_a_server_that_plans_on_what_a_party_does_not_keep_is_not_believed(monkeypatch):
    federation = Federation()
    federation.align_run("first", data_of(FIRST))
    federation.kept["bank"].files.clear()
    monkeypatch.setattr(Generations, "_common", lambda _, offers: list(offers["shop"].chain))
    with pytest.raises(AlignmentError, match="the server's answer does not fit"):
        federation.align_run("second", later())


def test_removed_rows_are_told_to_the_server_alone():
    federation = Federation()
    federation.align_run("first", data_of(FIRST))
    found = federation.align_run("second", later(gone=range(10, 13)))["bank"]
    (removed,) = (each for each in found.posted if isinstance(each, RemovedRows))
    assert len(removed.train) == 3
