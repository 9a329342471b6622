import pytest

from fdml.align.conversation import converse, fetch, post
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import SERVER, BlindedIds, Fetch, KeyCheck, KeyGrant, KeyOffer, Post

OFFER, CHECK = KeyOffer(b"p" * 32), KeyCheck(b"d" * 32)


def greeting():
    """Posts an offer, fetches two checks, and ends with what it was sent."""
    yield from post(OFFER)
    first = yield from fetch(KeyCheck, "ann")
    second = yield from fetch(KeyCheck, "bob", about="ann")
    return first, second


def test_requests_come_in_order_and_the_result_is_what_the_conversation_returns():
    requests = []

    def answer(request):
        requests.append(request)
        return CHECK if isinstance(request, Fetch) else None

    assert converse(greeting(), answer) == (CHECK, CHECK)
    assert requests == [Post(OFFER, SERVER, ""), Fetch(KeyCheck, "ann", ""), Fetch(KeyCheck, "bob", "ann")]


def test_a_conversation_without_requests_ends_at_once():
    def silent():
        return 7
        yield

    assert converse(silent(), lambda request: pytest.fail(f"{request} was asked for")) == 7


@pytest.mark.parametrize("reply", [OFFER, KeyGrant(b"x"), None])
def test_an_answer_of_another_kind_is_an_error_that_names_both_kinds(reply):
    text = f"answered with {type(reply).__name__} instead of KeyCheck; see that both run the same version"
    with pytest.raises(AlignmentError, match=text):
        converse(fetch(KeyCheck, "ann"), lambda _: reply)


def test_what_an_answer_raises_ends_the_conversation():
    def refuse(request):
        raise AlignmentError("the server is gone")

    conversation = greeting()
    with pytest.raises(AlignmentError, match="the server is gone"):
        converse(conversation, refuse)


def test_a_message_for_one_reader_about_another_party_keeps_both_names():
    (request,) = list(post(CHECK, to="bob", about="ann"))
    assert (request.to, request.about, request.message) == ("bob", "ann", CHECK)
    assert next(fetch(BlindedIds, "ann", "bob")) == Fetch(BlindedIds, "ann", "bob")


def test_a_conversation_can_be_held_step_by_step():
    conversation = greeting()
    assert isinstance(next(conversation), Post)
    assert conversation.send(None).sender == "ann"
    assert conversation.send(CHECK).sender == "bob"
    with pytest.raises(StopIteration) as end:
        conversation.send(KeyCheck(b"e" * 32))
    assert end.value.value == (CHECK, KeyCheck(b"e" * 32))
