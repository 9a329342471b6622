"""Sets in pieces: the same rows as in one message, and nothing is made or sent again that the server has."""

from dataclasses import replace

import numpy as np
import pytest

import fdml.align.made_keys as made_keys_module
from fdml.align.conversation import converse
from fdml.align.pieces import fetch_index, pass_pieces, post_set
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import (
    BlindedIds,
    Fetch,
    Piece,
    Post,
    RowCounts,
    SharedRowIndex,
    StoredPieces,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment
from tests.align.bulletins import Killed, PartyCalls, align_all, align_alone, alignment_of, open_store, take_turns
from tests.align.test_matching import MODES, TESTS, TEXTS, ids_of, run_of
from tests.align.test_pointing import ids_of as pointing_ids
from tests.align.test_pointing import run_of as pointing_run
from tests.storage.memory_disk import MemoryDisk

ROWS = 2
"""Of a piece: every set here has several."""


def found_in(run, ids, piece_rows, disks):
    store = open_store(run, piece_rows=piece_rows or 100)
    found = align_all(run, ids, store, disks=disks, piece_rows=piece_rows)
    return {party: (each.train.tolist(), each.held_out.tolist(), each.digest) for party, (each, _) in found.items()}


def disks_of(run, ids):
    """Disks with the secrets of an alignment, so that the next one has the same."""
    disks = {party: MemoryDisk() for party in run.parties}
    align_all(run, ids, disks=disks)
    return disks


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("tests", [None, TESTS])
def test_sets_in_pieces_give_the_rows_of_whole_ones(mode, tests):
    run, ids = run_of(mode), ids_of(TEXTS, tests)
    disks = disks_of(run, ids)
    assert found_in(run, ids, ROWS, disks) == found_in(run, ids, None, disks)


@pytest.mark.parametrize("mode", MODES)
def test_rows_that_point_to_others_are_found_by_pieces_as_well(mode):
    run, ids = pointing_run(mode), pointing_ids()
    disks = disks_of(run, ids)
    assert found_in(run, ids, ROWS, disks) == found_in(run, ids, None, disks)


def pieces_in(posted):
    """The kind and the number of each piece, with whom it is about."""
    messages = [(kind, about, decode_alignment(raw)) for kind, _, about, raw in posted]
    return [(kind, about, each.piece.number) for kind, about, each in messages if hasattr(each, "piece") and each.piece]


@pytest.mark.parametrize("mode", MODES)
def test_no_stored_piece_is_posted_again_wherever_a_party_is_killed(mode):
    run, ids = run_of(mode), ids_of(TEXTS)
    disks = disks_of(run, ids)
    whole = open_store(run, piece_rows=ROWS)
    expected = align_all(run, ids, whole, disks=disks, piece_rows=ROWS)
    for party in run.parties:
        again = PartyCalls(whole, party)
        found, _ = align_alone(again, run, party, ids[party], disks[party], ROWS)
        assert found.digest == expected[party][0].digest
        assert pieces_in(again.posted) == []


def test_points_of_stored_pieces_are_not_made_again(monkeypatch):
    run, ids = run_of("ecdh", ("bank", "shop")), {party: ids_of(TEXTS)[party] for party in ("bank", "shop")}
    disks = disks_of(run, ids)
    blinded = []
    real = made_keys_module.blind
    monkeypatch.setattr(
        made_keys_module, "blind", lambda points, *more: blinded.append(len(points)) or real(points, *more)
    )
    store = open_store(run, piece_rows=ROWS)
    talks = {party: alignment_of(run, party, ids[party], disks[party], piece_rows=ROWS) for party in run.parties}
    with pytest.raises(Killed):
        take_turns(talks, {"bank": KilledAtPiece(store, "bank"), "shop": Shy(store, "shop")})
    assert blinded == [2, 2, 2, 2]
    del blinded[:]
    align_all(run, ids, store, disks=disks, piece_rows=ROWS)
    assert sum(blinded) == 8 - 6 + len(TEXTS["shop"])


class KilledAtPiece(PartyCalls):
    """A party that is killed before it posts its fourth piece."""

    def answer(self, request):
        piece = getattr(request.message, "piece", None) if isinstance(request, Post) else None
        if piece is not None and piece.number == 3:
            raise Killed
        return super().answer(request)


class Shy(PartyCalls):
    """A party that posts no ids."""

    def waits_for(self, request):
        shy = isinstance(request, Fetch) and request.kind is StoredPieces
        return ["bank"] if shy else super().waits_for(request)


def test_a_set_of_one_piece_is_one_message_without_a_question():
    whole = Piece(0, 5, RowCounts(5))
    talk = post_set(Tokens, whole, lambda piece: (np.zeros((5, 16), np.uint8)[piece.train], None))
    request = next(talk)
    assert request.message.piece is None
    assert len(request.message.train) == 5


def test_the_server_confirms_now_and_then_so_that_few_pieces_wait():
    talk = post_set(Tokens, Piece(0, 1, RowCounts(40)), lambda piece: (np.zeros((1, 16), np.uint8), None))
    kinds = []
    converse(
        talk, lambda request: kinds.append(type(request)) or (StoredPieces(0) if isinstance(request, Fetch) else None)
    )
    assert kinds.count(Post) == 40
    longest = max(map(len, "".join("p" if kind is Post else " " for kind in kinds).split()))
    assert longest == 16


def index_of(*pieces):
    """Answers with these pieces of shared rows."""
    return lambda request: pieces[request.piece]


FIRST = SharedRowIndex(np.array([3, 1]), np.array([], np.int64), bytes(32), (9,), piece=Piece(0, 2, RowCounts(3, 1)))
SECOND = replace(FIRST, train=np.array([0]), held_out=np.array([5]), piece=FIRST.piece.at(1))


def test_shared_rows_in_pieces_are_put_together():
    found = converse(fetch_index("", RowCounts(9, 9)), index_of(FIRST, SECOND))
    assert (found.train.tolist(), found.held_out.tolist(), found.piece) == ([3, 1, 0], [5], None)


@pytest.mark.parametrize(
    ("pieces", "most"),
    [
        ((FIRST, SECOND), RowCounts(2, 9)),
        ((FIRST, SECOND), RowCounts(9, 0)),
        ((FIRST, FIRST), RowCounts(9, 9)),
        ((FIRST, replace(SECOND, digest=b"x" * 32)), RowCounts(9, 9)),
        ((FIRST, replace(SECOND, piece=None)), RowCounts(9, 9)),
    ],
)
def test_pieces_that_do_not_fit_or_are_too_many_are_refused(pieces, most):
    with pytest.raises(AlignmentError, match="the server sent pieces of a set that do not fit together"):
        converse(fetch_index("", most), index_of(*pieces))


def test_a_party_that_passes_other_pieces_on_is_named():
    points = np.zeros((1, 32), np.uint8)
    first = BlindedIds(points, piece=Piece(0, 1, RowCounts(2)))

    def answer(request):
        if isinstance(request, Post):
            return None
        return StoredPieces(0) if request.kind is StoredPieces else first

    with pytest.raises(AlignmentError, match="party 'shop' sent pieces"):
        converse(pass_pieces("shop", "bank", "", lambda points: points), answer)
