"""The alignment as a conversation without a network: a generator that yields requests and is sent the answers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import SERVER, AlignmentMessage, AlignmentRequest, Fetch, N, Post

T = TypeVar("T")
Conversation = Generator[AlignmentRequest, AlignmentMessage | None, T]
"""Yields requests, is sent the answer to each `Fetch` and None to each `Post`, and returns its result.

The same conversation after a crash posts the same bytes and ends the same.
"""


def post(message: AlignmentMessage, to: str = SERVER, about: str = "") -> Conversation[None]:
    """Post one message."""
    yield Post(message, to, about)


def fetch(kind: type[N], sender: str, about: str = "", piece: int = 0) -> Conversation[N]:
    """Fetch one message, or a piece of it."""
    message = yield Fetch(kind, sender, about, piece)
    if not isinstance(message, kind):
        raise AlignmentError(
            f"the server answered with {type(message).__name__} instead of {kind.__name__}; see that both run the "
            f"same version of fdml"
        )
    return message


def converse(conversation: Conversation[T], answer: Callable[[AlignmentRequest], AlignmentMessage | None]) -> T:
    """Hold a conversation to its end; `answer` carries out each request and waits for what it fetches."""
    reply: AlignmentMessage | None = None
    while True:
        try:
            request = conversation.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result
        reply = answer(request)
