from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
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

RUN_HASH = bytes(range(32))
versions = st.integers(0, 2**32 - 1)
posts = st.builds(PostCall, st.text(), st.text(), st.binary(), st.binary(), versions)
fetches = st.builds(FetchCall, st.text(), st.text(), st.text(), st.binary(), versions)
answers = st.builds(
    FetchAnswer,
    st.binary(),
    st.lists(st.text()).map(tuple),
    st.lists(st.floats(0, 1e9)).map(tuple),
    st.lists(st.text()).map(tuple),
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
    "answer": (decode_answer, encode_answer(FetchAnswer(b"message", ("ann",), (1.5,), ("",)))),
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


def test_a_call_says_which_protocol_it_speaks():
    assert decode_post(encode_post(replace(POST, protocol=99))).protocol == 99
    assert decode_fetch(encode_fetch(replace(FETCH, protocol=99))).protocol == 99
