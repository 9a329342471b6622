"""What every envelope is refused by, and the pieces that larger sets come in."""

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import Piece, RowCounts
from fdml.protocol.envelopes import MOST_PIECES, check_names, parsed, piece_in, piece_out
from fdml.protocol.wire import decode_from_party, decode_from_server

LABELS = pb.Labels(classes=2, sealed=b"x", piece=pb.Piece(number=1, size=4, train=7, test=2))


def refusal_of(act, text):
    with pytest.raises(MessageRefused, match=text) as refused:
        act()
    assert refused.value.refusal is Refusal.INVALID


@pytest.mark.parametrize("rows", [RowCounts(7, 2), RowCounts(7), RowCounts(0, 9)])
def test_a_piece_travels_as_it_is(rows):
    piece = Piece(1, 4, rows)
    assert piece_in(pb.Labels(piece=piece_out(piece))) == piece


def test_what_is_whole_has_no_piece():
    assert piece_out(None) is None
    assert piece_in(pb.Labels()) is None


WRONG = {
    "of no rows": ({"size": 0}, "pieces of 0 rows"),
    "of too many pieces": ({"size": 1, "train": MOST_PIECES}, f"a set has at most {MOST_PIECES} pieces"),
    "of more rows than there are": ({"size": 2**60, "train": 2**60}, "a set has at most"),
    "past the last": ({"number": 3}, "piece 3 of 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_piece_that_cannot_be_is_refused(case):
    changed, text = WRONG[case]
    given = {"number": 1, "size": 4, "train": 7, "test": 2, **changed}
    refusal_of(lambda: piece_in(pb.Labels(piece=pb.Piece(**given))), text)


def test_a_piece_with_unknown_fields_is_refused():
    raw = LABELS.piece.SerializeToString() + bytes([0x7A, 1, 0])
    labels = pb.Labels(classes=2, sealed=b"x")
    labels.piece.ParseFromString(raw)
    refusal_of(lambda: decode_from_party(pb.FromParty(labels=labels).SerializeToString()), "unknown fields")


@pytest.mark.parametrize("raw", [b"\xff", b"", LABELS.SerializeToString()[:-1]])
def test_bytes_that_are_no_envelope_are_refused(raw):
    refusal_of(lambda: parsed(pb.FromParty(), raw), "received")


@pytest.mark.parametrize(("labels", "digest"), [(0, b"d" * 32), (2, b""), (2, b"d" * 31)])
def test_a_welcome_has_a_digest_where_it_has_labels_and_only_there(labels, digest):
    welcome = pb.FromServer(welcome=pb.Welcome(pushed=-1, labels=labels, labels_digest=digest))
    refusal_of(lambda: decode_from_server(welcome.SerializeToString()), f"a digest of {labels} pieces of labels")


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 200])
def test_names_that_no_party_can_have_are_refused(name):
    refusal_of(lambda: check_names(["ann", name]), "which no party can have")
