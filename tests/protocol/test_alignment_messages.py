"""What may travel before training: keys, hashes and counts, and no place for an id."""

import dataclasses
from typing import get_args

import numpy as np
import pytest

from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_messages import (
    KINDS,
    POINT_BYTES,
    TOKEN_BYTES,
    AlignmentMessage,
    BlindedIds,
    Fetch,
    KeyCheck,
    KeyOffer,
    Piece,
    Post,
    RowCounts,
    Tokens,
    piece_count,
)

FIELDS = {
    "RowsOffer": {"tag": "bytes", "chain": "tuple[bytes, ...]", "number": "int", "whole": "bool", "start": "bytes"},
    "RowsPlan": {"generation": "bytes", "base": "bytes", "number": "int", "starts": "tuple[bytes, ...]"},
    "RemovedRows": {"train": "NDArray[np.int64]", "test": "NDArray[np.int64]"},
    "KeyOffer": {"public": "bytes", "certificate": "bytes", "signature": "bytes", "brings_key": "bool"},
    "KeyGrant": {"sealed": "bytes"},
    "KeyCheck": {"digest": "bytes"},
    "Tokens": {"train": "Keys", "test": "Keys | None", "by_position": "RowCounts | None", "piece": "Piece | None"},
    "BlindedIds": {"train": "Keys", "test": "Keys | None", "piece": "Piece | None"},
    "RowSummary": {
        "rows": "tuple[int, ...]",
        "test_rows": "tuple[int, ...]",
        "shared": "int",
        "shared_test": "int",
        "matched": "tuple[int, ...]",
        "number": "int",
        "new_rows": "tuple[int, ...]",
        "new_shared": "int",
        "left": "int",
        "brought": "tuple[int, ...]",
    },
    "Consent": {"given": "bool", "reason": "str", "line": "int"},
    "SharedRowIndex": {
        "train": "NDArray[np.int64]",
        "held_out": "NDArray[np.int64]",
        "digest": "bytes",
        "counts": "tuple[int, ...]",
        "left": "NDArray[np.int64]",
        "left_test": "NDArray[np.int64]",
        "piece": "Piece | None",
    },
    "RowPointers": {
        "train": "int",
        "held_out": "int",
        "digest": "bytes",
        "sealed": "bytes",
        "piece": "Piece | None",
    },
    "StoredPieces": {"count": "int"},
}


def test_no_message_has_a_place_for_an_id_or_a_sender():
    """Whoever adds a field must add it here, and say in the docs what it shows."""
    found = {
        kind.__name__: {field.name: field.type for field in dataclasses.fields(kind)}
        for kind in get_args(AlignmentMessage)
    }
    assert found == FIELDS


def test_the_bytes_on_the_wire_have_a_place_for_no_more_either():
    for content in pb.AlignmentMessage.DESCRIPTOR.fields:
        assert {field.name for field in content.message_type.fields} == set(FIELDS[content.message_type.name])


def test_every_kind_has_one_name_and_travels_under_it():
    assert set(KINDS.values()) == set(get_args(AlignmentMessage))
    assert set(KINDS) == {field.name for field in pb.AlignmentMessage.DESCRIPTOR.fields}


def test_a_party_without_ids_has_no_tokens():
    own = Tokens(by_position=RowCounts(12, 3))
    assert own.train.shape == (0, TOKEN_BYTES)
    assert own.test is None
    assert own.by_position == RowCounts(12, 3)


def test_keys_are_bytes_of_one_size():
    assert Tokens(np.zeros((2, TOKEN_BYTES), np.uint8)).train.itemsize == 1
    assert BlindedIds(np.zeros((2, POINT_BYTES), np.uint8)).train.shape[1] == 2 * TOKEN_BYTES


@pytest.mark.parametrize("made", [KeyOffer(b"p" * 32), RowCounts(3), Post(KeyCheck(b"d" * 32)), Fetch(KeyOffer, "ann")])
def test_messages_and_requests_cannot_be_changed(made):
    name = dataclasses.fields(made)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(made, name, None)


@pytest.mark.parametrize("rows", [RowCounts(7, 4), RowCounts(7), RowCounts(0, 5), RowCounts(6, 0), RowCounts(1)])
@pytest.mark.parametrize("size", [1, 3, 7, 11, 100])
def test_the_pieces_of_a_set_have_each_row_once_training_rows_first(rows, size):
    first = Piece(0, size, rows)
    found = [[], []]
    for piece in map(first.at, range(first.count)):
        each = [list(range(10))[piece.train], list(range(10))[piece.test]]
        assert sum(map(len, each)) == size or piece.number == first.count - 1
        assert not (each[1] and found[0] + each[0] != list(range(rows.train)))
        found = [before + more for before, more in zip(found, each, strict=True)]
    assert found == [list(range(rows.train)), list(range(rows.test or 0))]


def test_a_set_without_rows_is_one_piece():
    assert piece_count(RowCounts(0), 5) == 1
