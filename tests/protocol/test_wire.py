import re
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.messages import (
    PROTOCOL,
    SEALED_EPOCH_BYTES,
    Ack,
    BestEpoch,
    Checkpointed,
    Finished,
    Gradient,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    Release,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
)
from fdml.protocol.waited_for import WaitedFor
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party, encode_from_server

hashes = st.binary(min_size=32, max_size=32)
steps = st.integers(0, 2**53)
epochs = st.integers(0, 2**32 - 1)
signed = st.integers(-(2**63), 2**63 - 1)
wide = arrays(np.int64, st.integers(0, 9), elements=signed)
codes = wide | arrays(np.int32, st.integers(0, 9)) | arrays(np.int16, st.integers(0, 9))
numbers = st.floats(allow_nan=False, allow_infinity=False)
mask_ids = st.integers(0, 2**64 - 1)
variances = st.floats(0, allow_nan=False, allow_infinity=False, allow_subnormal=False).map(abs)
releases = st.builds(Release, codes, mask_ids, variances)
few = st.integers(2, 16)


@st.composite
def differences(draw):
    """Differences of few bits, and how many bits they have."""
    bits = draw(few)
    half = 2 ** (bits - 1)
    return draw(arrays(np.int16, st.integers(0, 9), elements=st.integers(-half, half - 1))), bits


few_pushes = st.builds(
    lambda step, drawn, mask_id, scale: Push(step, Release(drawn[0], mask_id, 0.0, drawn[1], scale)),
    steps,
    differences(),
    mask_ids,
    st.integers(0, 16),
)
few_totals = st.builds(
    lambda step, drawn, pushed_at, ids: Total(step, drawn[0], tuple(pushed_at), tuple(ids), 0.0, drawn[1]),
    steps,
    differences(),
    st.lists(signed, min_size=1),
    st.lists(mask_ids),
)
gradients = st.builds(Gradient, steps, st.builds(Release, wide, mask_ids))
label_sets = st.builds(Labels, st.just(0) | st.integers(2, 2**16), st.binary(max_size=200))
from_party = st.one_of(
    st.builds(Hello, hashes, hashes, steps, steps, steps, signed, st.integers(0, 6), st.integers(0, 2**32 - 1)),
    label_sets,
    st.builds(Push, steps, releases),
    few_pushes,
    gradients,
    st.builds(Stop, steps, st.booleans()),
    st.builds(BestEpoch, st.binary(min_size=SEALED_EPOCH_BYTES, max_size=SEALED_EPOCH_BYTES)),
    st.builds(Checkpointed, steps),
    st.builds(HeldOutPredictions, epochs, releases),
    st.builds(SealedMetrics, epochs, st.just(b"") | st.binary(min_size=60, max_size=60)),
    st.builds(Finished, hashes),
)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)
reasons = st.text("abc {}[]'é", max_size=200)
from_server = st.one_of(
    st.builds(Welcome, signed, st.lists(epochs).map(tuple)),
    label_sets,
    st.builds(Ack, steps),
    st.builds(Total, steps, codes, st.lists(signed, min_size=1).map(tuple), st.lists(mask_ids).map(tuple), variances),
    few_totals,
    gradients,
    st.builds(HeldOutTotal, epochs, codes, st.lists(mask_ids).map(tuple), variances),
    st.builds(Stopped, names, steps, st.booleans()),
    st.builds(BestEpoch, st.binary(min_size=SEALED_EPOCH_BYTES, max_size=SEALED_EPOCH_BYTES)),
    st.builds(Waiting, st.lists(st.builds(WaitedFor, names, st.floats(-1, 1e9), reasons)).map(tuple)),
)
SIDES = {"party": (encode_from_party, decode_from_party), "server": (encode_from_server, decode_from_server)}


def plain(message):
    """A message as nested tuples, every array bit by bit."""
    if isinstance(message, np.ndarray):
        return message.dtype, message.shape, message.tobytes()
    if hasattr(message, "__dataclass_fields__"):
        return type(message), tuple((name, plain(value)) for name, value in vars(message).items())
    return type(message), message


@given(from_party)
def test_what_a_party_sends_arrives_bit_by_bit(message):
    assert plain(decode_from_party(encode_from_party(message))) == plain(message)


@given(from_server)
def test_what_the_server_sends_arrives_bit_by_bit(message):
    assert plain(decode_from_server(encode_from_server(message))) == plain(message)


@given(from_party)
def test_the_same_message_is_the_same_bytes(message):
    raw = encode_from_party(message)
    assert encode_from_party(decode_from_party(raw)) == raw


def test_the_bytes_are_fixed():
    """A change here is a new protocol version."""
    push = Push(3, Release(np.array([[1], [-2]])))
    assert encode_from_party(push).hex() == "1a100803120a01000000feffffff00ff2805"
    large = Push(3, Release(np.array([[2**39], [-2]])))
    assert encode_from_party(large).hex() == "1a16080312100000000080000000feffffffffffffff2808"
    narrow = Push(3, Release(np.array([[1], [-2]], np.int16), 5, 0.25))
    assert encode_from_party(narrow).hex() == "1a1c080312040100feff19050000000000000021000000000000d03f2802"
    few = Push(3, Release(np.array([[1], [-1], [3]], np.int16), 0, 0.0, 4, 7))
    assert encode_from_party(few).hex() == "1a0c08031202f103300438034007"
    total = Total(3, np.array([1, -1, 3], np.int16), (3, 3), bits=4)
    assert encode_from_server(total).hex() == "220e08031202f1031a02060638044003"
    assert encode_from_party(Checkpointed(300)).hex() == "220308ac02"
    assert encode_from_server(Welcome(-1)).hex() == "0a020801"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"bits": 1}, "differences of 1 bits; it takes 2 to 16"),
        ({"bits": 17}, "differences of 17 bits"),
        ({"count": 5}, "5 differences of 4 bits in 2 bytes, and they take 3"),
        ({"count": 2**31}, "in 2 bytes"),
        ({"codes": b"\xf1\x13"}, "no bit to spare set"),
        ({"width": 2}, "3 differences of 4 bits"),
        ({"scale": 17}, r"steps of 2\*\*17"),
        ({"bits": 0, "width": 2}, "whole predictions with a count or scale of differences"),
    ],
)
def test_differences_that_are_not_what_they_say_are_refused(change, words):
    fields = {"step": 3, "codes": b"\xf1\x03", "bits": 4, "count": 3, "scale": 7} | change
    raw = pb.FromParty(push=pb.Push(**fields)).SerializeToString()
    assert re.search(words, refused_as_invalid(decode_from_party, raw))
    if "scale" not in change:
        answer = pb.Total(**{key: value for key, value in fields.items() if key != "scale"})
        assert re.search(words, refused_as_invalid(decode_from_server, pb.FromServer(total=answer).SerializeToString()))


def test_no_more_differences_are_unpacked_than_the_largest_block_has():
    raw = encode_from_party(Push(3, Release(np.zeros(8, np.int16), 0, 0.0, 2, 0)))
    assert len(decode_from_party(raw, lambda: 8).release.values) == 8
    with pytest.raises(MessageRefused, match="8 differences; the largest block of this run has 7") as refused:
        decode_from_party(raw, lambda: 7)
    assert refused.value.refusal is Refusal.TOO_LARGE


def test_a_table_travels_row_by_row_whatever_its_layout_in_memory():
    table = np.arange(6).reshape(2, 3)
    for same in (table, np.asfortranarray(table), table.astype(">i8"), table.repeat(2, axis=1)[:, ::2]):
        received = decode_from_party(encode_from_party(Push(0, Release(same)))).release.values
        assert received.tolist() == [0, 1, 2, 3, 4, 5]


def refused_as_invalid(decode, raw):
    with pytest.raises(MessageRefused) as refused:
        decode(raw)
    assert refused.value.refusal is Refusal.INVALID
    assert "both sides must run the same version of fdml" in str(refused.value)
    return str(refused.value)


def check_refusal(refused):
    """As invalid; or for its protocol, where the bytes are a hello of another one, which is said first."""
    other_protocol = "received a message of protocol " in str(refused)
    assert refused.refusal is (Refusal.MISMATCH if other_protocol else Refusal.INVALID)


def only_refused(decode, raw):
    """Either a message, or refused: never another error."""
    try:
        decode(raw)
    except MessageRefused as refused:
        check_refusal(refused)


def always_refused(decode, raw):
    with pytest.raises(MessageRefused) as refused:
        decode(raw)
    check_refusal(refused.value)


EMPTY_HELLO = b"\x0a\x00"
"""Of protocol 0."""


@given(st.sampled_from(list(SIDES)), st.binary(max_size=200))
@example("party", EMPTY_HELLO)
def test_random_bytes_never_raise_anything_but_a_refusal(side, raw):
    only_refused(SIDES[side][1], raw)


@given(st.data())
def test_a_message_with_random_edits_never_raises_anything_but_a_refusal(data):
    side = data.draw(st.sampled_from(list(SIDES)))
    encode, decode = SIDES[side]
    raw = bytearray(encode(data.draw(from_party if side == "party" else from_server)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    only_refused(decode, bytes(raw))


@given(from_party, st.data())
def test_a_message_cut_short_never_passes_for_the_whole(message, data):
    raw = encode_from_party(message)
    refused_as_invalid(decode_from_party, raw[: data.draw(st.integers(0, len(raw) - 1))])


@given(from_party, st.binary(min_size=1, max_size=20))
@example(Checkpointed(300), EMPTY_HELLO)
def test_trailing_bytes_are_refused(message, rest):
    always_refused(decode_from_party, encode_from_party(message) + rest)


@given(from_party, from_party)
def test_two_messages_in_one_are_refused(first, second):
    always_refused(decode_from_party, encode_from_party(first) + encode_from_party(second))


def test_what_the_server_sends_is_not_taken_from_a_party_and_the_other_way_round():
    refused_as_invalid(decode_from_party, encode_from_server(Waiting((WaitedFor("store"),))))
    refused_as_invalid(decode_from_server, encode_from_party(Hello(b"r" * 32, b"a" * 32, 1, 1, 1)))


def envelope(**content):
    return pb.FromParty(**content).SerializeToString()


BAD = {
    "nothing": (b"", "a message without content"),
    "an unknown kind": (b"\x7a\x00", "a message without content"),
    "an unknown field": (
        envelope(checkpointed=pb.Checkpointed(step=3)) + b"\x78\x01",
        "a checkpointed message with unknown fields",
    ),
    "an unknown field inside": (b"\x22\x04\x08\x03\x78\x01", "a checkpointed message with unknown fields"),
    "a field twice": (b"\x22\x04\x08\x03\x08\x04", "a checkpointed message with unknown fields or trailing bytes"),
    "a number longer than need be": (b"\x22\x03\x08\x83\x00", "a checkpointed message with"),
    "a field of another type": (b"\x22\x02\x0a\x00", "a checkpointed message with unknown fields"),
    "text": (b"GET / HTTP/1.1\r\n", "16 bytes that are no message of this protocol"),
    "predictions of half a number": (
        envelope(push=pb.Push(step=1, codes=b"1234", width=8)),
        "predictions of 4 bytes, which is no whole number of int64",
    ),
    "narrow predictions of half a number": (
        envelope(push=pb.Push(step=1, codes=b"123", width=2)),
        "predictions of 3 bytes, which is no whole number of int16",
    ),
    "held-out predictions of half a number": (
        envelope(held_out=pb.HeldOutPredictions(epoch=1, codes=b"123456789", width=4)),
        "of 9 bytes",
    ),
    "gradients of half a number": (
        envelope(gradient=pb.Gradient(step=1, codes=b"1234", mask_id=5)),
        "predictions of 4 bytes, which is no whole number of int64",
    ),
    "predictions of no width": (
        envelope(push=pb.Push(step=1, codes=b"12345678")),
        "of 0 bytes each; it takes 8, 4, 2, 5",
    ),
    "predictions of five bytes that are six": (
        envelope(push=pb.Push(step=1, codes=b"123456", width=5)),
        "predictions of 6 bytes, which is no whole number of int40",
    ),
    "predictions of a width that no type has": (
        envelope(held_out=pb.HeldOutPredictions(epoch=1, codes=b"123", width=3)),
        "of 3 bytes each",
    ),
    "noise below none": (envelope(push=pb.Push(step=1, width=8, variance=-1.0)), "noise of variance -1.0"),
    "noise without end": (
        envelope(held_out=pb.HeldOutPredictions(epoch=1, width=8, variance=np.inf)),
        "noise of variance inf",
    ),
    "noise that is no number": (envelope(push=pb.Push(step=1, width=8, variance=np.nan)), "noise of variance nan"),
    "labels of one class": (envelope(labels=pb.Labels(classes=1)), "labels of 1 classes"),
    "too many classes": (envelope(labels=pb.Labels(classes=2**16 + 1)), "labels of 65537 classes"),
    "a short run hash": (
        envelope(hello=pb.Hello(run_hash=b"short", alignment_hash=b"a" * 32, protocol=PROTOCOL)),
        "run_hash of 5 bytes instead of 32",
    ),
    "a long alignment hash": (
        envelope(hello=pb.Hello(run_hash=b"r" * 32, alignment_hash=b"a" * 33, protocol=PROTOCOL)),
        "alignment_hash of 33 bytes",
    ),
    "a long model hash": (envelope(finished=pb.Finished(model_mac=b"m" * 1000)), "model_mac of 1000 bytes"),
    "too many rows": (
        envelope(hello=pb.Hello(run_hash=b"r" * 32, alignment_hash=b"a" * 32, rows=2**60)),
        f"rows {2**60}",
    ),
    "a line slower than the slowest": (
        envelope(hello=pb.Hello(run_hash=b"r" * 32, alignment_hash=b"a" * 32, line=7, protocol=PROTOCOL)),
        "a line of class 7; the slowest is 6",
    ),
    "a best epoch that is not sealed": (
        envelope(best_epoch=pb.BestEpoch(sealed=b"3")),
        f"the sealed number of an epoch of 1 bytes instead of {SEALED_EPOCH_BYTES}",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_makes_no_sense_is_refused_with_the_reason(what):
    raw, text = BAD[what]
    assert re.search(text, refused_as_invalid(decode_from_party, raw))


@pytest.mark.parametrize("make", [lambda raw: raw + b"\x98\x06\x01", lambda raw: raw])
def test_a_hello_of_another_version_is_refused_for_its_version(make):
    """Chaos 12: whatever else is new in that version, both numbers are said."""
    hello = pb.Hello(run_hash=b"longer than it is here" * 3, alignment_hash=b"a" * 32, protocol=99)
    with pytest.raises(MessageRefused, match=f"protocol 99, and this side speaks {PROTOCOL}; install") as refused:
        decode_from_party(make(envelope(hello=hello)))
    assert refused.value.refusal is Refusal.MISMATCH


NO_NAMES = ["", "[/x]", "[bold red]all parties have finished[/]", "a\x1b[2J", "../x", "n" * 65, "two\nlines"]


@pytest.mark.parametrize("name", NO_NAMES)
@pytest.mark.parametrize(
    "message", [lambda name: Stopped(name, 3), lambda name: Waiting((WaitedFor("store"), WaitedFor(name)))]
)
def test_a_server_can_send_no_name_that_no_party_can_have(name, message):
    """Finding 9: a lying server's markup, control characters and long texts do not get to a party's terminal."""
    text = refused_as_invalid(decode_from_server, encode_from_server(message(name)))
    assert "which no party can have" in text
    assert text.isprintable()
    assert len(text) < 200


@pytest.mark.parametrize("size", [1, 32, 59, 61])
def test_metrics_that_are_not_as_long_as_sealed_ones_are_refused(size):
    """32 bytes are the figures without a seal."""
    raw = encode_from_party(SealedMetrics(1, b"s" * size))
    assert f"sealed metrics of {size} bytes instead of 60" in refused_as_invalid(decode_from_party, raw)


def test_figures_of_metrics_have_no_field_to_travel_in():
    """As an older version sent them: field 4 was the test loss."""
    raw = b"\x32\x0b\x08\x01\x21" + struct.pack("<d", 0.5)
    assert "unknown fields" in refused_as_invalid(decode_from_party, raw)


BAD_ANSWERS = {
    "a total of half a number": (
        pb.FromServer(total=pb.Total(step=1, codes=b"1234", width=8)),
        "predictions of 4 bytes, which is no whole number of int64",
    ),
    "a total of no width": (pb.FromServer(total=pb.Total(step=1, codes=b"12345678")), "of 0 bytes each"),
    "a total of noise below none": (
        pb.FromServer(total=pb.Total(step=1, width=8, variance=-0.5)),
        "noise of variance -0.5",
    ),
    "a held-out total of half a number": (
        pb.FromServer(held_out_total=pb.HeldOutTotal(epoch=1, codes=b"123", width=2)),
        "predictions of 3 bytes, which is no whole number of int16",
    ),
    "a held-out total of endless noise": (
        pb.FromServer(held_out_total=pb.HeldOutTotal(epoch=1, width=4, variance=np.inf)),
        "noise of variance inf",
    ),
    "a gradient of half a number": (
        pb.FromServer(gradient=pb.Gradient(step=1, codes=b"1", mask_id=2)),
        "predictions of 1 bytes",
    ),
    "labels of one class": (pb.FromServer(labels=pb.Labels(classes=1)), "labels of 1 classes"),
    "no content": (pb.FromServer(), "a message without content"),
}


@pytest.mark.parametrize("what", BAD_ANSWERS)
def test_what_makes_no_sense_is_not_taken_from_the_server_either(what):
    message, text = BAD_ANSWERS[what]
    assert text in refused_as_invalid(decode_from_server, message.SerializeToString())


@pytest.mark.parametrize(
    ("values", "bytes_each"),
    [
        (np.arange(1000), 5),
        (np.full(1000, -(2**39)), 5),
        (np.full(1000, 2**39), 8),
        (np.append(np.zeros(999, np.int64), 2**62), 8),
        (np.arange(1000, dtype=np.int32), 4),
        (np.arange(1000, dtype=np.int16), 2),
    ],
    ids=["small", "the smallest of 40 bits", "one more than 40 bits have", "one large among small", "int32", "int16"],
)
def test_a_value_takes_as_few_bytes_as_its_grid_and_size_allow(values, bytes_each):
    raw = encode_from_party(Push(1, Release(values)))
    assert len(raw) == pytest.approx(1000 * bytes_each, abs=20)
    np.testing.assert_array_equal(decode_from_party(raw).release.values, values)
    assert decode_from_party(raw).release.values.dtype == values.dtype


def test_a_message_without_values_is_still_of_its_type():
    for kind in (np.int64, np.int32, np.int16):
        empty = decode_from_party(encode_from_party(Push(1, Release(np.zeros(0, kind))))).release.values
        assert (empty.dtype, empty.size) == (np.dtype(kind), 0)


def test_digests_of_parts_travel_with_pushes_and_totals_and_take_nothing_where_there_are_none():
    values, digests = np.arange(4, dtype=np.int64), bytes(range(24))
    push, total = Push(3, Release(values, 7)), Total(3, values, (3, 3), (7, 7))
    with_seen, with_parts = replace(push, seen=digests), replace(total, parts=digests)
    assert decode_from_party(encode_from_party(with_seen)).seen == digests
    assert decode_from_server(encode_from_server(with_parts)).parts == digests
    assert len(encode_from_party(with_seen)) - len(encode_from_party(push)) == len(digests) + 2
    assert decode_from_party(encode_from_party(push)).seen == b""


def test_a_push_or_total_without_values_is_one_all_the_same():
    """All of its fields are those of a message without content."""
    nothing = np.zeros(0, np.int64)
    push = decode_from_party(encode_from_party(Push(0, Release(nothing))))
    assert isinstance(push, Push)
    assert (push.step, push.release.values.size) == (0, 0)
    total = decode_from_server(encode_from_server(Total(0, nothing, ())))
    assert isinstance(total, Total)
    assert (total.step, total.pushed_at, total.values.size) == (0, (), 0)


@pytest.mark.parametrize("extra", [b"\x7a\x01x", b"\xf8\x07\x01"], ids=["text", "number"])
def test_a_field_that_nobody_knows_is_refused_inside_and_outside(extra):
    whole = encode_from_party(Checkpointed(300))
    inside = whole[:1] + bytes([whole[1] + len(extra)]) + whole[2:] + extra
    for raw in (whole + extra, inside):
        with pytest.raises(MessageRefused, match="unknown fields or trailing bytes"):
            decode_from_party(raw)
    assert decode_from_party(whole) == Checkpointed(300)
