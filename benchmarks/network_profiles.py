"""Lines to the server that are as slow as asked: each goes through a proxy that delays it and limits its rate."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection

from benchmarks.proxy import Proxy

MEGABIT = 125_000
"""Bytes a second."""


@dataclass(frozen=True)
class NetworkProfile:
    """What the way to the server is like, in each direction of each party's connection."""

    name: str
    round_trip: float = 0.0
    """Seconds."""
    rate: float = 0.0
    """Bytes a second; 0 for no limit."""

    @property
    def is_direct(self) -> bool:
        """Whether it goes through no proxy."""
        return self.round_trip == 0.0 and self.rate == 0.0


LOOPBACK = NetworkProfile("loopback")
NEAR = NetworkProfile("1 ms", 0.001, 100 * MEGABIT)
MIDDLE = NetworkProfile("20 ms", 0.02, 100 * MEGABIT)
FAR = NetworkProfile("100 ms", 0.1, 100 * MEGABIT)


@contextmanager
def proxies(target: int, line: NetworkProfile, count: int) -> Iterator[list[int]]:
    """So many proxies, all in a process of their own; gives their ports. A direct line has none."""
    if line.is_direct:
        yield [target] * count
        return
    context = multiprocessing.get_context("forkserver")
    ours, theirs = context.Pipe()
    process = context.Process(target=_carry, args=(target, line, count, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield ours.recv()
    finally:
        process.kill()
        process.join()


def _carry(target: int, line: NetworkProfile, count: int, answers: Connection[list[int], None]) -> None:
    made = [Proxy(target) for _ in range(count)]
    for proxy in made:
        proxy.delay(line.round_trip / 2)
        proxy.slow(line.rate)
    answers.send([proxy.port for proxy in made])
    with suppress(EOFError):  # who asked for them is gone
        answers.recv()
