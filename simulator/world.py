"""A world to try a protocol in: time, disks and lines, all drawn from one seed.

Nothing here knows the protocol. A disk dies in the middle of a write, a line
breaks with messages under way, and the same seed does it all again.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable, Sequence
from random import Random
from typing import Generic, TypeVar

T = TypeVar("T")


class Crashed(BaseException):
    """The process died here. Nothing in it may catch this but who started it."""


class EventQueue:
    """What happens when, in virtual seconds; what falls on the same moment happens in the order of its planning."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.events = 0
        self._planned = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.trace: list[str] = []

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Plan an action."""
        self._planned += 1
        heapq.heappush(self._due, (self.now + seconds, self._planned, action))

    def next(self) -> bool:
        """Do what is due next; False if nothing is planned any more."""
        if not self._due:
            return False
        self.now, _, action = heapq.heappop(self._due)
        self.events += 1
        action()
        return True

    def about(self, seconds: float) -> float:
        """A random duration: mostly near `seconds`, now and then many times as long."""
        return self.random.expovariate(1.0 / seconds) * (10.0 if self.random.random() < 0.05 else 1.0)

    def note(self, what: str) -> None:
        """Write a line of the trace."""
        self.trace.append(f"{self.now:.6f} {what}")

    def trace_hash(self) -> str:
        """Equal only if everything happened in the same way."""
        return hashlib.blake2b("\n".join(self.trace).encode(), digest_size=16).hexdigest()


class VirtualDisk:
    """A disk that keeps all that was written, but may die in the middle of a write.

    An append is then there not at all, in part or whole. A file is replaced whole
    or not at all, as `Disk` promises; but where its name begins as one of `torn`,
    which have two generations, only part may take the place of what was there.
    """

    def __init__(self, random: Random, torn: Sequence[str] = ()) -> None:
        self.files: dict[str, bytes] = {}
        self._random = random
        self._torn = tuple(torn)
        self._writes_left: int | None = None

    def arm(self, writes: int) -> None:
        """Die in the write after so many more."""
        self._writes_left = writes

    def disarm(self) -> None:
        """Live on; a process that died otherwise starts with a sound disk."""
        self._writes_left = None

    def read(self, name: str) -> bytes | None:
        """The whole file, or None if there is none."""
        return self.files.get(name)

    def replace(self, name: str, content: bytes) -> None:
        """Write a whole file."""
        if self._dies():
            arrived = self._arrived(content, tear=name in self.files and name.startswith(self._torn))
            if arrived is not None:
                self.files[name] = arrived
            raise Crashed
        self.files[name] = content

    def append(self, name: str, content: bytes) -> None:
        """Write at a file's end."""
        dies = self._dies()
        arrived = self._arrived(content, tear=True) if dies else content
        self.files[name] = self.files.get(name, b"") + (arrived or b"")
        if dies:
            raise Crashed

    def truncate(self, name: str, size: int) -> None:
        """Cut a file."""
        dies = self._dies()
        if not dies or self._random.random() < 0.5:
            self.files[name] = self.files[name][:size]
        if dies:
            raise Crashed

    def remove(self, name: str) -> None:
        """Take a file away."""
        dies = self._dies()
        if not dies or self._random.random() < 0.5:
            self.files.pop(name, None)
        if dies:
            raise Crashed

    def damage(self, name: str) -> None:
        """Turn one byte of a file over, as an old disk does."""
        content = bytearray(self.files[name])
        content[self._random.randrange(len(content))] ^= 0xFF
        self.files[name] = bytes(content)

    def _dies(self) -> bool:
        if self._writes_left is None:
            return False
        self._writes_left -= 1
        if self._writes_left >= 0:
            return False
        self._writes_left = None
        return True

    def _arrived(self, content: bytes, *, tear: bool) -> bytes | None:
        match self._random.choice(("nothing", "part", "all") if tear else ("nothing", "all")):
            case "nothing":
                return None
            case "part":
                return content[: self._random.randrange(len(content))]
            case _:
                return content


class Link(Generic[T]):
    """One direction of a line: what arrives, arrives in order and once."""

    def __init__(self, agenda: EventQueue, seconds: float, arrive: Callable[[T], None]) -> None:
        self._agenda = agenda
        self._seconds = seconds
        self._arrive = arrive
        self._under_way: deque[tuple[float, T]] = deque()
        self._not_before = 0.0
        self._cut = False

    def send(self, item: T) -> None:
        """Put on its way; what is sent into a pipe that was cut is lost."""
        if self._cut:
            return
        self._under_way.append((self._agenda.now + self._agenda.about(self._seconds), item))
        if len(self._under_way) == 1:
            self._plan()

    def stall(self, seconds: float) -> None:
        """Let nothing through for a while."""
        self._not_before = max(self._not_before, self._agenda.now + seconds)

    def cut(self) -> None:
        """Lose the end of what is under way; the rest may arrive long after."""
        if self._cut:
            return
        self._cut = True
        for _ in range(self._agenda.random.randint(0, len(self._under_way))):
            self._under_way.pop()
        if self._under_way and self._agenda.random.random() < 0.5:
            self.stall(self._agenda.about(30 * self._seconds))

    def _plan(self) -> None:
        due = max(self._under_way[0][0], self._not_before)
        self._agenda.after(max(due - self._agenda.now, 0.0), self._deliver)

    def _deliver(self) -> None:
        if not self._under_way:
            return
        if self._agenda.now < self._not_before:
            self._plan()
            return
        _, item = self._under_way.popleft()
        if self._under_way:
            self._plan()
        self._arrive(item)
