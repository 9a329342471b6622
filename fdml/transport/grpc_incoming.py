"""What comes on a stream of gRPC. Reading is told to end, never cancelled.

grpc.aio keeps for good the message that comes for a reader that was cancelled while it waited, up to a whole piece for
each stream: whoever sends rubbish and more behind it would fill the memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc


class Incoming:
    """The messages of one stream, until it ends or is to be read no further."""

    def __init__(self, requests: AsyncIterator[bytes]) -> None:
        self._requests = aiter(requests)
        self.ended = False
        """Whether nothing more is wanted. Once a call is over nothing may be read on it, or the process would crash."""

    def end(self) -> None:
        """Read no further. What is under way is waited for by whoever reads, and thrown away."""
        self.ended = True

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> bytes:
        if self.ended:
            raise StopAsyncIteration
        try:
            message = await anext(self._requests)
        except grpc.aio.BaseError:  # the call is over
            self.ended = True
            raise StopAsyncIteration from None
        if self.ended:
            raise StopAsyncIteration
        return message
