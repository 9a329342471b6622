"""What does finding the shared rows cost? Every party and the server in a process of its own, on this machine.

CPU seconds of a party are all that its process spends from agreeing on the key
to its row numbers: hashing, sorting, blinding its own and the others' sets, and
carrying messages over a local pipe. Reading files and normalising ids are not in it.
The seconds of all are by the clock, from starting the parties' processes to the last result.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.align.consent import consent_to_all
from fdml.align.conversation import converse
from fdml.align.group_key import agree
from fdml.align.kept import KeptAlignment, change_of
from fdml.align.matching import Aligner, align
from fdml.align.party_ids import PartyIds
from fdml.align.party_secrets import Secrets
from fdml.align.split import shuffled_rows
from fdml.errors import InvariantBroken, PeerTimeout
from fdml.protocol.alignment_messages import AlignmentMessage, AlignmentRequest, Post
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment, kind_of
from fdml.server.bulletin import BulletinStore
from fdml.settings import RunSettings, TrainingSettings
from fdml.settings.choices import Align
from fdml.storage.disk import FolderDisk

_SHARED = 0.6
"""The share of each party's ids that all hold."""
_PEER_TIMEOUT = 600.0
_PAUSE = 0.02
_MEGABYTE = 2**20


@dataclass(frozen=True)
class Case:
    """One alignment that is measured, and how many CPU seconds a party may take for it."""

    mode: Align
    ids: int
    parties: int
    bar: float

    @property
    def name(self) -> str:
        """For the report."""
        return f"{self.mode}, {self.ids:,} ids, {self.parties} parties"

    @property
    def settings(self) -> RunSettings:
        """The run that is aligned."""
        names = tuple(f"p{number}" for number in range(self.parties))
        training = TrainingSettings(peer_timeout_seconds=_PEER_TIMEOUT)
        return RunSettings(parties=names, label_party="p0", align=self.mode, training=training)


CASES = (
    Case("tokens", 1_000_000, 2, 5.0),
    Case("tokens", 1_000_000, 3, 5.0),
    Case("ecdh", 100_000, 2, 15.0),
    Case("ecdh", 100_000, 3, 20.0),
)


@dataclass(frozen=True)
class _Spent:
    """What one process took."""

    cpu: float
    peak: float
    """Mebibytes of memory at most, the interpreter and libraries included."""
    shared: int = 0
    digest: bytes = b""


class Counter:
    """The server's process: the alignment messages, one call at a time."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._store = BulletinStore.open(case.settings.parties, case.mode, FolderDisk(folder))
        self._turn = threading.Lock()
        self._began = time.process_time()

    def post(self, sender: str, to: str, about: str, raw: bytes) -> None:
        """Store a message."""
        with self._turn:
            self._store.post(sender, to, about, raw)

    def fetch(self, reader: str, kind: str, sender: str, about: str, piece: int = 0) -> bytes | None:
        """A message, or a piece of it, if it is there."""
        with self._turn:
            return self._store.fetch(reader, kind, sender, about, piece)

    def spent(self) -> _Spent:
        """What the server took so far."""
        return _Spent(time.process_time() - self._began, _peak())


class _Manager(BaseManager):
    """Carries calls to the server's process."""


@contextmanager
def serving(kind: type[Counter], case: Case, folder: Path) -> Iterator[Any]:
    """A server in a process of its own."""
    _Manager.register(kind.__name__, kind)
    with _Manager(ctx=multiprocessing.get_context("spawn")) as manager:
        yield getattr(manager, kind.__name__)(case, folder)


class ServerCalls:
    """One party's line to the server's process."""

    def __init__(self, counter: Any, party: str, seconds: float = _PEER_TIMEOUT) -> None:
        self._counter = counter
        self.party = party
        self._seconds = seconds

    def answer(self, request: AlignmentRequest) -> AlignmentMessage | None:
        """Carry out one request."""
        if isinstance(request, Post):
            self._counter.post(self.party, request.to, request.about, encode_alignment(request.message))
            return None
        deadline = time.monotonic() + self._seconds
        question = (self.party, kind_of(request.kind), request.sender, request.about, request.piece)
        while (raw := self._counter.fetch(*question)) is None:
            if time.monotonic() > deadline:
                waited_for = request.sender or "the server"
                raise PeerTimeout(f"party {self.party!r} waited {self._seconds:g} s for {waited_for!r}")
            time.sleep(_PAUSE)
        return decode_alignment(raw)


def run(progress: Progress, cases: tuple[Case, ...] = CASES, rounds: int = 3) -> Report:
    """Align each case some times."""
    results: list[dict[str, Any]] = []
    ratios: dict[str, dict[str, Any]] = {}
    for case in cases:
        taken = []
        for turn in range(rounds):
            progress(f"{case.name}, round {turn + 1} of {rounds}")
            taken.append(_measured(case))
        slowest = [max(each.cpu for each in parties) for parties, _, _ in taken]
        results += [
            row(f"{case.name}: slowest party", slowest, "CPU seconds"),
            row(f"{case.name}: server", [server.cpu for _, server, _ in taken], "CPU seconds"),
            row(f"{case.name}: all", [seconds for _, _, seconds in taken], "seconds"),
            row(f"{case.name}: largest party", [max(each.peak for each in parties) for parties, _, _ in taken], "MiB"),
            row(f"{case.name}: server", [server.peak for _, server, _ in taken], "MiB"),
        ]
        ratios[f"{case.name}: bar/CPU seconds"] = spread([case.bar / each for each in slowest]) | {"target": 1.0}
    question = (
        f"How long does a party work to find its shared rows? {_SHARED:.0%} of ids are shared, no test files; "
        f"one process for each party and the server, {os.cpu_count()} cores."
    )
    return Report("align", question, results, ratios, machine(), commit())


def _measured(case: Case) -> tuple[list[_Spent], _Spent, float]:
    """What every party and the server took, and the seconds from the first to the last of them."""
    spawning = multiprocessing.get_context("spawn")
    names = case.settings.parties
    with tempfile.TemporaryDirectory(prefix="fdml-align-") as folder, serving(Counter, case, Path(folder)) as counter:
        with ProcessPoolExecutor(len(names), spawning) as processes:
            began = time.perf_counter()
            work = [processes.submit(_take_part, counter, case, name, Path(folder) / name) for name in names]
            parties = [each.result() for each in work]
            seconds = time.perf_counter() - began
        server: _Spent = counter.spent()
    _check(case, parties)
    return parties, server, seconds


def _check(case: Case, parties: list[_Spent]) -> None:
    """A wrong result is no measurement."""
    expected = round(_SHARED * case.ids)
    if {each.shared for each in parties} != {expected} or len({each.digest for each in parties}) != 1:
        found = ", ".join(f"{each.shared}" for each in parties)
        raise InvariantBroken(f"{case.name}: the parties found {found} shared rows, but there are {expected}")


def _take_part(counter: Any, case: Case, party: str, folder: Path) -> _Spent:
    ids = PartyIds(_ids(case, party))
    shuffled_rows(2, 0)  # so that it is compiled or loaded before anything is timed
    run = case.settings
    line = ServerCalls(counter, party)
    began = time.process_time()
    secrets = Secrets.load_or_make(FolderDisk(folder), run, party, None)
    agreement = converse(agree(run, party, secrets, None), line.answer)
    side, kept = Aligner(run, party, agreement.key, secrets, consent_to_all), KeptAlignment()
    found = converse(align(side, ids, kept, change_of(run, kept, ids, secrets.tag_key())), line.answer)
    return _Spent(time.process_time() - began, _peak(), len(found.places[0]), found.digest)


def _ids(case: Case, party: str) -> pa.LargeStringArray:
    """Ids in an order of the party's own; those with the party's name in them are its own too."""
    shared = round(_SHARED * case.ids)
    texts = [f"customer-{number:09}" for number in range(shared)]
    texts += [f"{party}-customer-{number:09}" for number in range(case.ids - shared)]
    order = np.random.default_rng(case.settings.parties.index(party)).permutation(case.ids)
    return pa.array(texts, pa.large_string()).take(pa.array(order))


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MEGABYTE
