"""What is to leave on a stream, in order: one task takes it, others of the same loop put it there."""

from __future__ import annotations

import asyncio
from collections import deque

from fdml.errors import MessageRefused

Item = bytes | MessageRefused | None
"""A message, a refusal that ends the stream, or None, which ends it without one."""


class Outgoing:
    """A queue for one reader and without a bound, with nothing else: a server passes it for every message it sends."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque()
        self._reader: asyncio.Future[None] | None = None

    def put(self, item: Item) -> None:
        """Add what is to leave."""
        self._items.append(item)
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    async def get(self) -> Item:
        """What is to leave next, once there is something."""
        while not self._items:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._items.popleft()
