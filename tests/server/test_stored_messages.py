"""Messages and pieces on the server's disk."""

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import KeyCheck, Piece, RowCounts, SharedRowIndex, Tokens
from fdml.protocol.alignment_wire import encode_alignment
from fdml.server.bulletin import BulletinStore
from fdml.server.bulletin_slots import BulletinSlots, Slot
from fdml.server.message_files import MessageFiles
from fdml.server.stored_messages import StoredMessages
from tests.server.test_bulletin import keys
from tests.storage.memory_disk import MemoryDisk

SLOTS = BulletinSlots(("a", "b"))
SET = Slot(Tokens, "a")
WHOLE = keys(*range(1, 8))
FIRST = Piece(0, 3, RowCounts(7))


def piece_of(number):
    piece = FIRST.at(number)
    return Tokens(WHOLE[piece.train], piece=piece)


def stored_on(disk):
    found = StoredMessages(MessageFiles(disk, "here"), SLOTS)
    found.load()
    return found


def put(stored, message, slot=SET):
    stored.put(slot, encode_alignment(message), message)


def test_a_set_is_an_entry_once_all_of_its_pieces_are_there():
    disk = MemoryDisk()
    for number in (0, 2, 1):
        assert SET not in stored_on(disk).entries
        put(stored_on(disk), piece_of(number))
    stored = stored_on(disk)
    assert stored.entries[SET].rows == RowCounts(7)
    np.testing.assert_array_equal(stored.ids(SET).train, WHOLE)
    assert stored.ids(SET).piece is None


def test_how_many_pieces_are_there_from_the_first_on():
    stored = stored_on(MemoryDisk())
    counts = [stored.leading(SET)]
    for number in (0, 2, 1):
        put(stored, piece_of(number))
        counts.append(stored.leading(SET))
    assert counts == [0, 1, 1, 3]


@pytest.mark.parametrize(
    "message",
    [
        Tokens(WHOLE),
        Tokens(WHOLE[:4], piece=Piece(0, 4, RowCounts(7))),
        Tokens(WHOLE[:3], piece=Piece(0, 3, RowCounts(8))),
    ],
)
def test_a_piece_of_another_set_is_refused(message):
    stored = stored_on(MemoryDisk())
    put(stored, piece_of(0))
    with pytest.raises(MessageRefused, match="does not fit those before it") as refused:
        stored.check_piece(SET, message)
    assert refused.value.refusal is Refusal.CONFLICT


@pytest.mark.parametrize("restarts", [False, True])
def test_pieces_may_come_in_any_order_and_the_server_may_end_in_between(restarts):
    """A full disk may refuse the first piece while the second is on its way."""
    disk = MemoryDisk()
    stored = stored_on(disk)
    for number in (2, 1, 0):
        stored = stored_on(disk) if restarts else stored
        stored.check_piece(SET, piece_of(number))
        assert stored.digest(SET, piece_of(number)) is None
        put(stored, piece_of(number))
    assert stored.leading(SET) == 3
    np.testing.assert_array_equal(stored.ids(SET).train, WHOLE)


def test_what_is_left_of_another_cut_does_not_count():
    disk = MemoryDisk()
    put(stored_on(disk), Tokens(WHOLE[4:], piece=Piece(1, 4, RowCounts(7))))
    stored = stored_on(disk)
    put(stored, piece_of(0))
    assert stored.leading(SET) == 1


def test_a_piece_that_is_gone_from_the_disk_is_named():
    disk = MemoryDisk()
    stored = stored_on(disk)
    for number in range(3):
        put(stored, piece_of(number))
    disk.remove("bulletin-tokens-0.1")
    with pytest.raises(StateCorrupt, match="is not where it was"):
        stored.ids(SET)


def test_shared_rows_in_pieces_come_back_whole_and_name_who_left_once():
    stored, answer = stored_on(MemoryDisk()), Slot(SharedRowIndex, "", "a")
    index = SharedRowIndex(np.arange(5), np.arange(2), bytes(32), (9, 9), np.array([1]), np.array([2]))
    stored.put_index(answer, index, 3)
    parts = list(stored.parts(answer))
    assert [(len(each.train), len(each.held_out), each.left.tolist()) for each in parts] == [
        (3, 0, [1]),
        (2, 1, []),
        (0, 1, []),
    ]
    again = stored.index(answer)
    assert (again.train.tolist(), again.held_out.tolist(), again.left_test.tolist()) == ([0, 1, 2, 3, 4], [0, 1], [2])


def test_an_answer_of_another_kind_is_damage():
    stored = stored_on(MemoryDisk())
    put(stored, KeyCheck(bytes(32)), Slot(KeyCheck, "a"))
    with pytest.raises(StateCorrupt):
        stored.index(Slot(KeyCheck, "a"))
    with pytest.raises(StateCorrupt):
        stored.ids(Slot(KeyCheck, "a"))


# The bulletin board


def post(store, message, sender="a"):
    store.post(sender, "", "", encode_alignment(message))


def test_another_piece_in_the_place_of_one_that_is_there_is_refused():
    store = BulletinStore.open(("a", "b"), "tokens", MemoryDisk())
    post(store, piece_of(0))
    post(store, piece_of(0))
    other = Tokens(keys(1, 2, 9), piece=FIRST)
    with pytest.raises(MessageRefused, match="posted the message 'tokens' before and now another"):
        post(store, other)


def test_a_piece_that_is_not_in_ascending_order_is_refused_and_nothing_is_stored():
    disk = MemoryDisk()
    with pytest.raises(MessageRefused, match="not in ascending order"):
        post(BulletinStore.open(("a", "b"), "tokens", disk), Tokens(keys(3, 2, 1), piece=FIRST))
    assert not disk.files


def test_a_key_in_two_pieces_ends_the_alignment_with_the_owners_name():
    store = BulletinStore.open(("a", "b"), "tokens", MemoryDisk())
    post(store, Tokens(keys(5)), "b")
    post(store, Tokens(keys(1, 2), piece=Piece(0, 2, RowCounts(4))))
    with pytest.raises(MessageRefused, match="party 'a' came with keys that repeat"):
        post(store, Tokens(keys(2, 3), piece=Piece(1, 2, RowCounts(4))))
    assert store.summary is None


def test_how_many_pieces_are_stored_is_told_to_their_sender_alone():
    store = BulletinStore.open(("a", "b"), "tokens", MemoryDisk())
    post(store, piece_of(0))
    assert store.fetch("a", "stored_pieces", "") != store.fetch("b", "stored_pieces", "")
    with pytest.raises(MessageRefused):
        store.fetch("c", "stored_pieces", "")
    with pytest.raises(MessageRefused):
        store.fetch("a", "stored_pieces", "b")
