"""Serving keys: tokens other than the alignment's, seals of pairs, masks that cancel in the sum of one question alone."""

import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.align.tokens import id_tokens
from fdml.errors import MessageRefused
from fdml.serving.keys import ServingKeys, question_digest, tokens_digest
from tests.serving.published import PARTIES, VERSION, keys_of, pair_keys, texts

NUMBER = b"n" * 16


def test_all_parties_make_the_same_token_of_an_id():
    ann, bob = (keys_of(PARTIES, name).tokens_of(texts(["7", "8"])) for name in ("ann", "bob"))
    assert (ann == bob).all()
    assert (ann[0] != ann[1]).any()


def test_a_token_is_another_one_than_in_the_alignment_and_than_of_another_version():
    group = GroupKey(b"g" * 32)
    ours = ServingKeys.of("ann", VERSION, group, {}).tokens_of(texts(["7"]))
    other = ServingKeys.of("ann", VERSION[::-1], group, {}).tokens_of(texts(["7"]))
    for context in ("training", "test", "run", ""):
        assert (ours != id_tokens(texts(["7"]), group, context)).any()
    assert (ours != other).any()


def test_a_row_without_an_id_has_a_token_that_no_row_has():
    keys = keys_of(PARTIES, "ann")
    assert (keys.tokens_of(texts([None])) != keys.tokens_of(texts(["None"]))).any()


def test_what_one_party_seals_the_other_opens():
    ann, bob = keys_of(PARTIES, "ann"), keys_of(PARTIES, "bob")
    assert bob.open("ann", "question", NUMBER, ann.seal("bob", "question", NUMBER, b"which rows")) == b"which rows"


def test_the_same_content_sealed_twice_has_nothing_in_common():
    ann = keys_of(PARTIES, "ann")
    first, second = (ann.seal("bob", "question", NUMBER, b"x" * 64) for _ in range(2))
    assert first[:12] != second[:12]
    assert first[12:28] != second[12:28]


@pytest.mark.parametrize(
    "change",
    [
        lambda sealed: ("ann", "answer", NUMBER, sealed),
        lambda sealed: ("ann", "question", b"m" * 16, sealed),
        lambda sealed: ("cid", "question", NUMBER, sealed),
        lambda sealed: ("ann", "question", NUMBER, sealed[:-1] + bytes([sealed[-1] ^ 1])),
        lambda sealed: ("ann", "question", NUMBER, b""),
        lambda sealed: ("eve", "question", NUMBER, sealed),
    ],
)
def test_nothing_opens_for_another_purpose_number_party_or_content(change):
    sealed = keys_of(PARTIES, "ann").seal("bob", "question", NUMBER, b"which rows")
    with pytest.raises(MessageRefused):
        keys_of(PARTIES, "bob").open(*change(sealed))


def test_keys_of_another_version_open_nothing():
    sealed = keys_of(PARTIES, "ann").seal("bob", "question", NUMBER, b"which rows")
    with pytest.raises(MessageRefused, match="another run or version"):
        keys_of(PARTIES, "bob", VERSION[::-1]).open("ann", "question", NUMBER, sealed)


@pytest.mark.parametrize("parties", [("bob", "cid"), ("ann", "bob", "cid"), ("bob", "cid", "dan", "eve")])
def test_masks_cancel_in_the_sum_of_all_that_answer(parties):
    everyone = ("asker", *parties)
    random = np.random.default_rng(1)
    codes = {name: random.integers(-(2**40), 2**40, size=(5, 2)) for name in parties}
    masked = {name: keys_of(everyone, name).mask(parties, b"q" * 32, codes[name]) for name in parties}
    assert (sum(masked.values()) == sum(codes.values())).all()
    for name in parties:
        assert (masked[name] != codes[name]).all()


def test_masks_of_two_questions_do_not_cancel():
    parties, codes = ("bob", "cid"), np.zeros((4, 1), np.int64)
    bob = keys_of(PARTIES, "bob").mask(parties, b"1" * 32, codes)
    cid = keys_of(PARTIES, "cid").mask(parties, b"2" * 32, codes)
    assert (bob + cid != 0).all()
    again = keys_of(PARTIES, "bob").mask(parties, b"2" * 32, codes)
    assert (bob - again != 0).all(), "an asker that changes anything must not get the same masks"


def test_a_question_digest_covers_everything():
    tokens = tokens_digest(keys_of(PARTIES, "ann").tokens_of(texts(["1", "2"])))
    other = tokens_digest(keys_of(PARTIES, "ann").tokens_of(texts(["2", "1"])))
    assert tokens != other
    found = {
        question_digest("ann", NUMBER, ("bob", "cid"), (tokens, tokens)),
        question_digest("ann", NUMBER, ("cid", "bob"), (tokens, tokens)),
        question_digest("ann", b"m" * 16, ("bob", "cid"), (tokens, tokens)),
        question_digest("dan", NUMBER, ("bob", "cid"), (tokens, tokens)),
        question_digest("ann", NUMBER, ("bob", "cid"), (tokens, other)),
        question_digest("ann", NUMBER, ("bob",), (tokens,)),
    }
    assert len(found) == 6


def test_secrets_are_not_shown():
    shown = repr(keys_of(PARTIES, "ann"))
    assert keys_of(PARTIES, "ann").tokens.hex() not in shown
    for key in pair_keys(PARTIES, "ann").values():
        assert repr(key) not in shown
