"""One direction of a virtual line, which may stall or break with messages on their way."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from simulator.clock import EventQueue

T = TypeVar("T")


class Link(Generic[T]):
    """One direction of a line: what arrives, arrives in order and once."""

    def __init__(self, queue: EventQueue, seconds: float, arrive: Callable[[T], None]) -> None:
        self._queue = queue
        self._seconds = seconds
        self._arrive = arrive
        self._on_their_way: deque[tuple[float, T]] = deque()
        self._not_before = 0.0
        self._cut = False

    def send(self, item: T) -> None:
        """Put on its way; what is sent into a pipe that was cut is lost."""
        if self._cut:
            return
        self._on_their_way.append((self._queue.now + self._queue.about(self._seconds), item))
        if len(self._on_their_way) == 1:
            self._plan()

    def stall(self, seconds: float) -> None:
        """Let nothing through for a while."""
        self._not_before = max(self._not_before, self._queue.now + seconds)

    def cut(self) -> None:
        """Lose the end of what is under way; the rest may arrive long after."""
        if self._cut:
            return
        self._cut = True
        for _ in range(self._queue.random.randint(0, len(self._on_their_way))):
            self._on_their_way.pop()
        if self._on_their_way and self._queue.random.random() < 0.5:
            self.stall(self._queue.about(30 * self._seconds))

    def _plan(self) -> None:
        due = max(self._on_their_way[0][0], self._not_before)
        self._queue.after(max(due - self._queue.now, 0.0), self._deliver)

    def _deliver(self) -> None:
        if not self._on_their_way:
            return
        if self._queue.now < self._not_before:
            self._plan()
            return
        _, item = self._on_their_way.popleft()
        if self._on_their_way:
            self._plan()
        self._arrive(item)
