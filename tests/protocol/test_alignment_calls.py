from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.alignment_calls import (
    FetchAnswer,
    FetchCall,
    PostCall,
    decode_answer,
    decode_fetch,
    decode_post,
    encode_answer,
    encode_fetch,
    encode_post,
)
from fdml.protocol.alignment_messages import BlindedIds, Fetch, KeyCheck, KeyOffer, Post
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.messages import PROTOCOL
from fdml.protocol.waited_for import WaitedFor

RUN_HASH = bytes(range(32))
versions = st.integers(0, 2**32 - 1)
texts, hashes = st.text(max_size=64), st.binary(min_size=32, max_size=32)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", fullmatch=True)
reasons = st.text("abc {}[]'é", max_size=200)
posts = st.builds(PostCall, texts, texts, st.binary(), hashes, versions)
fetches = st.builds(FetchCall, texts, texts, texts, hashes, versions)
waits = st.lists(st.tuples(names, st.floats(0, 1e9), reasons))
answers = st.builds(
    lambda message, waits: FetchAnswer(message, tuple(WaitedFor(*each) for each in waits)),
    st.binary(),
    waits,
)
POST = PostCall("ann", "bob", b"message", RUN_HASH)
FETCH = FetchCall("key_offer", "ann", "bob", RUN_HASH)


@given(posts)
def test_a_post_comes_back_as_it_was(call):
    assert decode_post(encode_post(call)) == call


@given(fetches)
def test_a_fetch_comes_back_as_it_was(call):
    assert decode_fetch(encode_fetch(call)) == call


@given(answers)
def test_an_answer_comes_back_as_it_was(answer):
    assert decode_answer(encode_answer(answer)) == answer


def test_a_request_becomes_a_call_of_this_run_and_protocol():
    offer = KeyOffer(b"p" * 32)
    posted = PostCall.of(Post(offer, to="ann", about="bob"), RUN_HASH)
    assert posted == PostCall("ann", "bob", encode_alignment(offer), RUN_HASH, PROTOCOL)
    assert FetchCall.of(Fetch(BlindedIds, "ann", "bob"), RUN_HASH) == FetchCall("blinded_ids", "ann", "bob", RUN_HASH)
    assert FetchCall.of(Fetch(KeyCheck, "ann"), RUN_HASH).about == ""


DECODERS = {
    "post": (decode_post, encode_post(POST)),
    "fetch": (decode_fetch, encode_fetch(FETCH)),
    "answer": (decode_answer, encode_answer(FetchAnswer(b"message", (WaitedFor("ann", 1.5),)))),
}


@pytest.mark.parametrize("kind", DECODERS)
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda raw: b"\xff\xff\xff", "3 bytes that are no message"),
        (lambda raw: raw + b"\x50\x01", "unknown fields or trailing bytes"),
        (lambda raw: raw + raw, "unknown fields or trailing bytes"),
        (lambda raw: raw[:-1], "no message"),
    ],
    ids=["nonsense", "an unknown field", "twice", "cut short"],
)
def test_bytes_that_are_no_call_are_refused(kind, change, text):
    decoded, raw = DECODERS[kind]
    with pytest.raises(MessageRefused, match=text) as refused:
        decoded(change(raw))
    assert refused.value.refusal is Refusal.INVALID


@pytest.mark.parametrize("field", ["to", "about"])
def test_a_post_with_a_long_name_is_refused_before_anything_else(field):
    """Finding 9: a name of 20 MiB is neither looked up nor quoted."""
    with pytest.raises(MessageRefused, match="a name of 20971520 characters; it may have 64") as refused:
        decode_post(encode_post(replace(POST, **{field: "x" * (20 * 2**20)})))
    assert refused.value.refusal is Refusal.TOO_LARGE
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("field", ["kind", "sender", "about"])
def test_a_fetch_with_a_long_name_is_refused_before_anything_else(field):
    """Finding 9."""
    with pytest.raises(MessageRefused, match="a name of 65 characters") as refused:
        decode_fetch(encode_fetch(replace(FETCH, **{field: "x" * 65})))
    assert refused.value.refusal is Refusal.TOO_LARGE


@pytest.mark.parametrize("run_hash", [b"", bytes(31), bytes(2**20)])
def test_a_run_hash_of_another_length_is_refused(run_hash):
    with pytest.raises(MessageRefused, match=f"run_hash of {len(run_hash)} bytes"):
        decode_fetch(encode_fetch(replace(FETCH, run_hash=run_hash)))


@pytest.mark.parametrize("other", [{"run_hash": b"longer than it is here" * 3}, {"about": "x" * 99}])
def test_a_call_of_another_version_is_refused_for_its_version(other):
    """Chaos 12: whatever else is new in that version, both numbers are said."""
    text = f"protocol 99, and this side speaks {PROTOCOL}"
    for decoded, raw in (
        (decode_post, encode_post(replace(POST, protocol=99, **other))),
        (decode_fetch, encode_fetch(replace(FETCH, protocol=99, **other)) + b"\x98\x06\x01"),
    ):
        with pytest.raises(MessageRefused, match=text) as refused:
            decoded(raw)
        assert refused.value.refusal is Refusal.MISMATCH


@pytest.mark.parametrize("name", ["", "[/x]", "a\x1b[2J", "n" * 65])
def test_an_answer_names_only_what_a_party_can_be_called(name):
    """Finding 9: a lying server's text does not get to a party's terminal."""
    with pytest.raises(MessageRefused, match="which no party can have"):
        decode_answer(encode_answer(FetchAnswer(b"", (WaitedFor(name, 1.0),))))


def test_the_server_s_reasons_are_cut_and_have_no_control_characters():
    """Finding 9."""
    answer = decode_answer(encode_answer(FetchAnswer(b"", (WaitedFor("ann", 1.0, "\x1b[2J" + "x" * 1000),))))
    (ann,) = answer.waits_for
    assert ann.refusal.startswith("\\x1b[2Jxxx")
    assert len(ann.refusal) < 410
    assert ann.refusal.isprintable()


def test_an_answer_with_fewer_times_than_names_is_refused():
    with pytest.raises(MessageRefused, match="1 names and 0 times"):
        decode_answer(pb.FetchReply(waits_for=["ann"]).SerializeToString())


def test_a_call_says_which_protocol_it_speaks():
    assert decode_post(encode_post(replace(POST, protocol=99))).protocol == 99
    assert decode_fetch(encode_fetch(replace(FETCH, protocol=99))).protocol == 99
