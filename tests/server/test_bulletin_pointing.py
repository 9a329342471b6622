"""The bulletin board where rows of the label party point to those of the others."""

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import (
    BlindedIds,
    Consent,
    RowCounts,
    RowPointers,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.server.bulletin import BulletinStore
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("weather", "flights", "planes")
DIGEST = b"d" * 32


def tokens(*numbers):
    return np.array([[number] * 16 for number in numbers], np.uint8).reshape(-1, 16)


def points(*numbers):
    return np.array([[number] * 32 for number in numbers], np.uint8).reshape(-1, 32)


SETS = [
    ("flights", "", "", Tokens(by_position=RowCounts(10))),
    ("flights", "", "weather", Tokens(tokens(1, 3, 5))),
    ("flights", "", "planes", Tokens(tokens(2, 4))),
    ("weather", "", "", Tokens(tokens(3, 4, 5, 6))),
    ("planes", "", "", Tokens(tokens(2, 9))),
]
POINTERS = RowPointers(10, 0, DIGEST, b"sealed")


def open_store(disk=None, mode="tokens"):
    return BulletinStore.open(PARTIES, mode, disk or MemoryDisk(), pointing="flights")


def post(store, sender, to, about, message):
    store.post(sender, to, about, encode_alignment(message))


def filled(disk=None, *, consents=PARTIES, sets=SETS):
    store = open_store(disk)
    for each in sets:
        post(store, *each)
    for party in consents:
        post(store, party, "", "", Consent(True))
    return store


def fetched(store, reader, kind, about=""):
    raw = store.fetch(reader, kind, "" if kind != "row_pointers" else "flights", about)
    return None if raw is None else decode_alignment(raw)


def refused(refusal, text, store, *posting):
    with pytest.raises(MessageRefused, match=text) as raised:
        post(store, *posting)
    assert raised.value.refusal is refusal


def test_every_other_party_is_matched_with_the_label_party_alone():
    store = filled()
    assert fetched(store, "planes", "row_summary") == RowSummary((4, 10, 2), (), 1, 0, (2, 10, 1))
    assert fetched(store, "weather", "shared_rows").train.tolist() == [0, 2]
    assert fetched(store, "flights", "shared_rows", "weather").train.tolist() == [1, 2]
    assert fetched(store, "planes", "shared_rows").train.tolist() == [0]
    found = fetched(store, "flights", "shared_rows", "planes")
    assert isinstance(found, SharedRowIndex)
    assert (found.train.tolist(), found.counts) == ([0], (4, 10, 2))
    assert found.digest == fetched(store, "planes", "shared_rows").digest


@pytest.mark.parametrize("left_out", range(len(SETS)))
def test_it_waits_for_every_set_and_names_whose_it_is(left_out):
    store = filled(consents=(), sets=[each for number, each in enumerate(SETS) if number != left_out])
    assert store.fetch("planes", "row_summary", "") is None
    assert store.waits_for("planes", "row_summary", "") == [SETS[left_out][0]]


def test_no_row_number_is_told_before_all_have_consented():
    store = filled(consents=("weather", "planes"))
    assert fetched(store, "flights", "shared_rows", "weather") is None
    assert store.waits_for("weather", "shared_rows", "") == ["flights"]
    refused(Refusal.GAP, "before all parties have consented", store, "flights", "weather", "", POINTERS)


def test_the_run_has_the_rows_that_the_pointers_say():
    store = filled()
    assert store.shared is None
    assert store.digest is None
    assert store.waits_for("weather", "row_pointers", "flights") == ["flights"]
    assert store.largest_post("flights") > 2**20
    post(store, "flights", "weather", "", POINTERS)
    assert store.digest == DIGEST, "the weather may join while the planes still wait for theirs"
    post(store, "flights", "planes", "", POINTERS)
    assert fetched(store, "planes", "row_pointers") == POINTERS
    assert store.digest == DIGEST
    assert store.split(0.2, seed=7) == RowCounts(8, 2)
    assert store.shared == RowCounts(10, 0)
    assert store.largest_post("flights") < 200


def test_the_label_party_may_post_large_pointers_until_all_have_them():
    store = filled()
    post(store, "flights", "weather", "", POINTERS)
    assert store.largest_post("flights") > 2**20
    assert store.split(0.2, seed=7) == RowCounts(8, 2)


def test_pointers_are_of_the_same_rows_for_all_and_read_by_nobody_else():
    store = filled()
    post(store, "flights", "weather", "", POINTERS)
    other = RowPointers(8, 2, DIGEST, b"sealed")
    refused(Refusal.INVALID, "pointers of different rows", store, "flights", "planes", "", other)
    other = RowPointers(10, 0, b"e" * 32, b"sealed")
    refused(Refusal.INVALID, "pointers of different rows", store, "flights", "planes", "", other)
    refused(Refusal.INVALID, "whom it is not for", store, "weather", "planes", "", POINTERS)
    assert store.fetch("planes", "row_pointers", "flights") is None
    with pytest.raises(MessageRefused, match="not for it"):
        store.fetch("flights", "row_pointers", "flights")


def test_what_does_not_fit_is_refused():
    store = open_store()
    flights = ("flights", "", "")
    refused(Refusal.INVALID, "only their number is wanted", store, *flights, Tokens(tokens(1)))
    refused(Refusal.INVALID, "only their number is wanted", store, *flights, Tokens(by_position=RowCounts(0)))
    refused(Refusal.INVALID, "ascending order", store, "flights", "", "planes", Tokens(tokens(4, 2)))
    refused(Refusal.INVALID, "file without rows", store, "flights", "", "planes", Tokens())
    refused(Refusal.MISMATCH, "'planes' has no ids", store, "planes", "", "", Tokens(by_position=RowCounts(4)))
    refused(Refusal.INVALID, "is not for", store, "weather", "", "planes", Tokens(tokens(1)))
    refused(Refusal.MISMATCH, "aligns by", store, "planes", "flights", "planes", BlindedIds(points(1)))


@pytest.mark.parametrize("first", [0, 1])
def test_test_rows_are_brought_by_both_or_by_none(first):
    posts = [("flights", "", "weather", Tokens(tokens(1), tokens(2))), ("weather", "", "", Tokens(tokens(1)))]
    store = open_store()
    post(store, *posts[first])
    refused(Refusal.MISMATCH, "'weather' has no test rows but 'flights' has", store, *posts[1 - first])


def test_blinded_sets_pass_the_two_that_are_matched_and_no_one_else():
    store = open_store(mode="ecdh")
    post(store, "flights", "weather", "flights", BlindedIds(points(1, 3)))
    post(store, "flights", "planes", "flights", BlindedIds(points(2, 4)))
    refused(Refusal.INVALID, "whom it is not for", store, "weather", "planes", "flights", BlindedIds(points(5, 6)))
    assert fetched_blinded(store, "planes", "flights", "flights").train.tolist() == points(2, 4).tolist()
    post(store, "weather", "flights", "weather", BlindedIds(points(7, 8, 9)))
    refused(Refusal.INVALID, "another number of rows", store, "flights", "", "weather", BlindedIds(points(1)))
    assert store.waits_for("weather", "row_summary", "") == ["weather", "flights", "planes"]
    post(store, "weather", "", "flights", BlindedIds(points(11, 12)))
    assert "weather" not in store.waits_for("weather", "row_summary", "")


def fetched_blinded(store, reader, sender, about):
    return decode_alignment(store.fetch(reader, "blinded_ids", sender, about))


def test_a_store_that_is_opened_again_goes_on_and_one_of_another_kind_finds_nothing():
    disk = MemoryDisk()
    store = filled(disk)
    for party in ("weather", "planes"):
        post(store, "flights", party, "", POINTERS)
    assert open_store(disk).digest == DIGEST
    assert BulletinStore.open(PARTIES, "tokens", disk).rows == {}
