"""Messages about predictions as bytes: both ways, and what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.messages import PROTOCOL
from fdml.protocol.prediction_messages import MOST_ROWS, Answered, Asked, Question, Reply, answer_rows
from fdml.protocol.prediction_wire import (
    decode_answered,
    decode_asked,
    decode_relayed,
    encode_answered,
    encode_asked,
    encode_relayed,
)

NUMBER, VERSION = b"n" * 16, "0123456789abcdef" * 2


@pytest.mark.parametrize(
    "message",
    [
        Question(NUMBER, "first", "bob", b"sealed"),
        Reply(NUMBER, "first", "ann", b"sealed"),
        Reply(NUMBER, "first", "ann", absent="it is not standing by"),
    ],
)
def test_an_envelope_comes_back_as_it_was(message):
    assert decode_relayed(encode_relayed(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Question(b"short", "first", "bob", b"sealed"),
        Question(NUMBER, "no name!", "bob", b"sealed"),
        Question(NUMBER, "first", "no name!", b"sealed"),
        Reply(NUMBER, "first", "ann"),
        Reply(NUMBER, "first", "ann", b"sealed", "and a reason"),
    ],
)
def test_an_envelope_that_makes_no_sense_is_refused(message):
    with pytest.raises(MessageRefused) as refused:
        decode_relayed(encode_relayed(message))
    assert refused.value.refusal is Refusal.INVALID


def test_another_protocol_is_named():
    raw = encode_relayed(Question(NUMBER, "first", "bob", b"sealed", protocol=PROTOCOL + 1))
    with pytest.raises(MessageRefused, match=f"protocol {PROTOCOL + 1}"):
        decode_relayed(raw)


@given(st.binary(max_size=80))
def test_random_bytes_are_refused_and_never_an_error_of_another_kind(raw):
    for decode in (decode_relayed, decode_asked, lambda each: decode_answered(each, 3)):
        try:
            decode(raw)
        except MessageRefused:
            continue


def test_trailing_bytes_and_unknown_fields_are_refused():
    raw = encode_relayed(Question(NUMBER, "first", "bob", b"sealed"))
    for wrong in (raw + b"\x7a\x01x", b"", raw[:-1]):
        with pytest.raises(MessageRefused):
            decode_relayed(wrong)


def test_a_reason_is_cut_and_has_no_control_characters():
    found = decode_relayed(encode_relayed(Reply(NUMBER, "first", "ann", absent="a\nb" + "x" * 1000)))
    assert "\n" not in found.absent
    assert len(found.absent) <= 402


def asked(rows=3, **changes):
    given = {
        "version": VERSION,
        "tokens": np.arange(16 * rows, dtype=np.uint8).reshape(rows, 16),
        "parties": ("bob", "cid"),
        "digests": (b"b" * 32, b"c" * 32),
    }
    return Asked(**{**given, **changes})


def test_a_question_comes_back_as_it_was():
    found = decode_asked(encode_asked(asked()))
    assert (found.tokens == asked().tokens).all()
    assert (found.version, found.parties, found.digests) == (VERSION, ("bob", "cid"), (b"b" * 32, b"c" * 32))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "V" * 32},
        {"version": "ab"},
        {"parties": ("bob", "bob")},
        {"parties": ("bob",)},
        {"digests": (b"b" * 32, b"short")},
        {"tokens": np.zeros((1, 15), np.uint8)},
        {"tokens": np.zeros((MOST_ROWS + 1, 16), np.uint8)},
    ],
)
def test_a_question_that_makes_no_sense_is_refused(changes):
    with pytest.raises(MessageRefused):
        decode_asked(encode_asked(asked(**changes)))


def answered(**changes):
    given = {"version": VERSION, "known": b"\xe0", "codes": np.arange(-3, 3).reshape(3, 2), "bits": 32}
    return Answered(**{**given, **changes})


def test_an_answer_comes_back_as_it_was():
    found = decode_answered(encode_answered(answered(reading=b"{}")), 3)
    assert (found.codes == answered().codes).all()
    assert found.codes.dtype == np.int64
    assert (found.known, found.bits, found.reading) == (b"\xe0", 32, b"{}")


def test_a_refusal_has_nothing_but_its_reason():
    found = decode_answered(encode_answered(answered(refusal="spent")), 3)
    assert (found.refusal, found.codes) == ("spent", None)


@pytest.mark.parametrize(
    "changes",
    [
        {"known": b""},
        {"known": b"\xe0\x00"},
        {"bits": 8},
        {"codes": np.zeros((2, 2), np.int64)},
        {"codes": None},
        {"reading": b"x" * (2**20 + 1)},
    ],
)
def test_an_answer_that_does_not_fit_the_question_is_refused(changes):
    with pytest.raises(MessageRefused):
        decode_answered(encode_answered(answered(**changes)), 3)


def test_an_answer_of_as_many_rows_as_may_be_asked_for_may_travel():
    for width in (1, 10, 64, 1000):
        rows = answer_rows(width)
        assert 8 * rows * width <= 2**25
        assert 1 <= rows <= MOST_ROWS
    assert answer_rows(1) == MOST_ROWS


def test_an_empty_envelope_is_refused():
    with pytest.raises(MessageRefused, match="empty message"):
        decode_relayed(pb.Relayed().SerializeToString() or b"")
