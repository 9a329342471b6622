"""Labels and held-out predictions in pieces: what all sides know from the numbers of rows alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.messages import HeldOutPredictions, HeldOutTotal, Labels, Release, Welcome
from fdml.protocol.row_pieces import (
    HELD_OUT_VALUES,
    LABEL_ROWS,
    all_pieces,
    complete,
    cut,
    fit,
    held_out_pieces,
    label_pieces,
    labels_digest,
)
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party, encode_from_server


def test_what_fits_into_one_piece_is_one_message():
    assert all_pieces(label_pieces(LABEL_ROWS - 5, 5)) == [None]
    assert all_pieces(held_out_pieces(HELD_OUT_VALUES // 4, 4)) == [None]
    assert all_pieces(label_pieces(0, 0)) == [None]


@pytest.mark.parametrize(("rows", "width", "count"), [(2**20 + 1, 1, 2), (2**20, 3, 4), (5, 2**21, 5)])
def test_no_piece_of_held_out_predictions_is_larger_than_a_piece_or_a_row(rows, width, count):
    whole = held_out_pieces(rows, width)
    assert whole.count == count
    assert whole.size * width <= max(HELD_OUT_VALUES, width)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 9), st.randoms(use_true_random=False))
def test_a_release_that_is_cut_is_whole_again_in_any_order(rows, width, most, random):
    values, whole = np.arange(rows * width).reshape(rows, width), held_out_pieces(rows, width, most)
    sent = cut(HeldOutPredictions(3, Release(values, 7, 0.5)), whole)
    assert all((each.release.mask_id, each.release.variance) == (7, 0.5) for each in sent)
    shuffled = random.sample(sent, len(sent))
    found = {}
    *early, last = [complete(found, each) for each in shuffled]
    assert set(early) <= {None}
    assert fit(last, whole)
    np.testing.assert_array_equal(np.concatenate([each.release.values.reshape(-1) for each in last]), values.ravel())


def test_one_message_is_cut_to_itself():
    message = HeldOutPredictions(3, Release(np.arange(4).reshape(2, 2)))
    assert cut(message, held_out_pieces(2, 2)) == [message]


def test_pieces_of_another_size_do_not_fit():
    pieces = [Labels(2, b"", piece) for piece in all_pieces(label_pieces(7, 2, 4))]
    assert fit(pieces, label_pieces(7, 2, 4))
    assert not fit(pieces, label_pieces(7, 2, 5))
    assert not fit(pieces, label_pieces(7, 2))
    assert not fit(pieces[:2], label_pieces(7, 2, 4))


def test_the_digest_of_labels_tells_where_one_piece_ends_and_another_begins():
    assert labels_digest([Labels(2, b"ab"), Labels(2, b"c")]) != labels_digest([Labels(2, b"a"), Labels(2, b"bc")])


PIECE = held_out_pieces(9, 1, 4).at(2)


def test_pieces_travel():
    labels = Labels(2, b"sealed", label_pieces(7, 2, 4).at(1))
    assert decode_from_party(encode_from_party(labels)) == decode_from_server(encode_from_server(labels)) == labels
    sent = decode_from_party(encode_from_party(HeldOutPredictions(1, Release(np.arange(1)), PIECE)))
    told = decode_from_server(encode_from_server(HeldOutTotal(1, np.arange(1), (5,), 0.5, PIECE)))
    assert sent.piece == told.piece == PIECE
    welcome = Welcome(-1, (), 3, b"d" * 32)
    assert decode_from_server(encode_from_server(welcome)) == welcome


def test_without_pieces_the_bytes_are_those_of_before():
    """A small run stays what it was: nothing of pieces is in it."""
    assert encode_from_party(Labels(2, b"ab")).hex() == "1206080212026162"
    assert encode_from_server(Welcome(4, (1, 2))).hex() == "0a06080812020102"
