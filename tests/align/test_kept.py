"""What a party keeps of an alignment: how its ids differ from it, and what the server sees of that."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.group_key import GroupKey
from fdml.align.kept import NO_KEYS, Generation, KeptAlignment, LocalKeys, MatchedRows, change_of, offer_of, usable
from fdml.align.party_ids import PartyIds
from fdml.protocol.alignment_messages import KeyOffer, RowCounts
from tests.align.test_matching import MODES, run_of

SECRET = b"s" * 32
KEY = GroupKey(bytes(range(32)))
OWN = ("bank", KeyOffer(b"p" * 32))


def ids(*texts):
    return PartyIds(pa.array(texts, pa.large_string()))


def first_generation(run, own):
    """A first generation in which all of these ids are shared, in the order of their keys."""
    change = change_of(run, KeptAlignment(), own, SECRET)
    keys = LocalKeys(run, KEY).of(own.train)
    order = np.lexsort(keys.T[::-1])
    found = MatchedRows(
        digest=b"d" * 32,
        places=(np.arange(len(order)), np.zeros(0, np.int64)),
        counts={"bank": len(order)},
        posted=(keys[order], NO_KEYS),
        at=(order, np.zeros(0, np.int64)),
    )
    named = {"id": b"1" * 16, "base": b"", "number": 1, "key": KEY, "offers": dict([OWN])}
    return KeptAlignment((Generation(**named, found=found, tag=change.tag, state=change.state),))


@pytest.mark.parametrize("mode", MODES)
def test_the_same_ids_have_the_tag_of_before_in_whatever_order_they_are(mode):
    run = run_of(mode)
    kept = first_generation(run, ids("a", "b", "c"))
    for own in (ids("a", "b", "c"), ids("c", "a", "b")):
        change = change_of(run, kept, own, SECRET)
        assert change.is_none
        assert change.tag == kept.newest.tag


@pytest.mark.parametrize("mode", MODES)
@given(new=st.sets(st.integers(10, 19)), gone=st.sets(st.integers(0, 8)))
def test_new_and_gone_ids_are_told_apart_from_those_that_stay(mode, new, gone):
    run, before = run_of(mode), [str(number) for number in range(10)]
    kept = first_generation(run, ids(*before))
    own = [str(number) for number in (*sorted(new), *(number for number in range(9, -1, -1) if number not in gone))]
    change = change_of(run, kept, ids(*own), SECRET, places=True)
    assert {own[number] for number in change.new[0]} == {str(number) for number in new}
    at = kept.newest.found.at[0]
    assert {before[at[place]] for place in change.gone[0]} == {str(number) for number in gone}
    stays = [(before[at[place]], own[number]) for place, number in enumerate(change.ids[0]) if number >= 0]
    assert all(old == now for old, now in stays)
    assert len(stays) == 10 - len(gone)
    assert (change.tag == kept.newest.tag) == (not new and not gone)


def test_a_tag_shows_nothing_to_whoever_lacks_the_party_s_secret():
    run, own = run_of("tokens"), ids("a", "b", "c")
    tags = {change_of(run, KeptAlignment(), own, secret).tag for secret in (SECRET, b"t" * 32, b"u" * 32)}
    assert len(tags) == 3
    assert change_of(run, KeptAlignment(), own, SECRET).tag == change_of(run, KeptAlignment(), own, SECRET).tag
    assert change_of(run, KeptAlignment(), ids("a", "b", "d"), SECRET).tag not in tags


def test_an_offer_has_a_tag_and_names_of_generations_and_nothing_of_an_id():
    run, own = run_of("tokens"), ids("a", "b", "c")
    kept = first_generation(run, own)
    offer = offer_of(run, kept, kept, own, change_of(run, kept, own, SECRET))
    assert (offer.chain, offer.number, offer.whole) == ((b"1" * 16,), 1, False)
    tokens = {row.tobytes() for row in LocalKeys(run, KEY).of(own.train)}
    assert offer.tag not in tokens


def test_what_other_keys_have_made_is_not_added_to():
    run, own = run_of("tokens"), ids("a", "b")
    kept = first_generation(run, own)
    assert usable(kept, run, own, OWN, None) is kept
    assert usable(kept, run, own, OWN, KEY) is kept
    assert usable(kept, run, own, OWN, GroupKey(bytes(32))).chain == ()
    assert usable(kept, run, own, ("bank", KeyOffer(b"q" * 32)), None).chain == ()


def test_test_files_that_come_and_rows_without_ids_are_aligned_anew():
    run, own = run_of("tokens"), ids("a", "b")
    kept = first_generation(run, own)
    assert usable(kept, run, PartyIds(own.train, own.train), OWN, None).chain == ()
    assert usable(kept, run, PartyIds(by_position=RowCounts(2)), OWN, None).chain == ()
