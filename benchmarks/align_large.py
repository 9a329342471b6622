"""Do parties find their shared rows in 2 GB of memory, however many ids they have? And what is done twice after a kill?

Two parties and the server are processes of their own, on this machine, from the agreement on a key to the row numbers.
Each may have 2 GiB of memory of its own, by the system's limit on data (RLIMIT_DATA): one that needs more fails.
Mapped files are not in it, as the system takes their pages back. Ids are made in a mapped file before; reading tables
and storing what was found are not measured. With `--only ecdh` one party is killed in the middle and started again.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.align import Case, Counter, ServerCalls, serving
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row
from fdml.align.consent import consent_to_all
from fdml.align.conversation import converse
from fdml.align.group_key import agree
from fdml.align.kept import KeptAlignment, change_of
from fdml.align.matching import Aligner, align
from fdml.align.party_ids import PartyIds
from fdml.align.party_secrets import Secrets
from fdml.errors import InvariantBroken, SettingsError
from fdml.protocol.alignment_messages import POINT_ROWS, AlignmentRequest, BlindedIds, Post
from fdml.storage.disk import FolderDisk
from fdml.storage.scratch_arrays import scratch_array

LIMIT = 2 * 2**30
"""Bytes of its own memory that a process may have."""
_SHARED = 0.6
_STEP = 2**20
_WIDTH = 18
"""Characters of an id."""
_PAUSE = 0.1
_MEGABYTE = 2**20
_MOST_SECONDS = 24 * 3600.0


@dataclass(frozen=True)
class Spent:
    """What one process took."""

    cpu: float
    own: float
    """Mebibytes of memory of its own at most, the interpreter and libraries included."""
    mapped: float
    """The same with the pages of mapped files that the system had left in memory."""
    points: int
    """Pieces of blinded points that it posted."""
    shared: int = 0
    digest: bytes = b""


def run(progress: Progress, rows: int = 5_000_000, only: str = "tokens") -> Report:
    """Align so many ids of two parties."""
    if only not in ("tokens", "ecdh"):
        raise SettingsError(f"--only {only} is no way to align; choose tokens or ecdh")
    case = Case("ecdh" if only == "ecdh" else "tokens", rows, 2, 0.0)
    before = machine()
    with tempfile.TemporaryDirectory(prefix="fdml-align-") as folder, watched_disk(Path(folder)) as disk:
        parties, server, seconds = _aligned(case, Path(folder), progress)
    _check(case, parties[-2:])
    results = [
        row(f"{case.name}: all", [seconds], "seconds"),
        row("slowest party", [max(each.cpu for each in parties)], "CPU seconds"),
        row("server", [server.cpu], "CPU seconds"),
        row("largest party, its own memory", [max(each.own for each in parties)], "MiB"),
        row("largest party, with mapped files", [max(each.mapped for each in parties)], "MiB"),
        row("server, its own memory", [server.own], "MiB"),
        row("server, with mapped files", [server.mapped], "MiB"),
        row("disk of all at most", [disk[0]], "MiB"),
    ]
    if case.mode == "ecdh":
        results += [
            row(f"pieces posted by {name}", [each.points], "pieces") for name, each in zip(_NAMES, parties, strict=True)
        ]
    question = (
        f"How long do 2 parties take to find their shared rows, with {LIMIT / 2**30:g} GiB of memory for each process? "
        f"{_SHARED:.0%} of ids are shared; the server and the parties are on one machine."
    )
    return Report("align-large", question, results, {}, before, commit())


_NAMES = ("p0 until it was killed", "p0 from then on", "p1")


def _aligned(case: Case, folder: Path, progress: Progress) -> tuple[list[Spent], Spent, float]:
    """What the parties and the server took, and the seconds of all; where points travel, p0 is killed once."""
    spawning = multiprocessing.get_context("spawn")
    with serving(LimitedServer, case, folder) as server:
        began = time.perf_counter()
        parties: list[Spent] = []
        processes = {party: _start(spawning, server, case, party, folder) for party in case.settings.parties}
        if case.mode == "ecdh":
            progress("waiting for half of p0's pieces")
            parties.append(_killed(spawning, server, case, processes, folder))
        progress("waiting for both parties")
        parties += [_result(server, party, processes[party]) for party in case.settings.parties]
        return parties, server.spent(), time.perf_counter() - began


def _start(spawning: Any, server: Any, case: Case, party: str, folder: Path) -> Any:
    process = spawning.Process(target=_take_part, args=(server, case, party, folder / party))
    process.start()
    return process


def _killed(spawning: Any, server: Any, case: Case, processes: dict[str, Any], folder: Path) -> Spent:
    """Kill p0 once half of its points are posted, and start it again."""
    while server.posted("p0") * POINT_ROWS < case.ids / 2:
        time.sleep(_PAUSE)
        if not processes["p0"].is_alive():
            raise InvariantBroken("p0 ended before it could be killed")
    processes["p0"].kill()
    processes["p0"].join()
    pieces = server.posted("p0")
    processes["p0"] = _start(spawning, server, case, "p0", folder)
    return Spent(0.0, 0.0, 0.0, pieces)


def _result(server: Any, party: str, process: Any) -> Spent:
    process.join()
    spent: Spent | None = server.told(party)
    if spent is None:
        raise InvariantBroken(f"{party} ended without a result; see its error above")
    return spent


class LimitedServer(Counter):
    """The server's process within its memory."""

    def __init__(self, case: Case, folder: Path) -> None:
        self._memory = MemoryLimit()
        super().__init__(case, folder)
        self._points: dict[str, int] = {}
        self._results: dict[str, Spent] = {}

    def post(self, sender: str, to: str, about: str, raw: bytes) -> None:
        """Store a message; pieces of a party's own points are counted."""
        super().post(sender, to, about, raw)
        if sender == about:
            self._points[sender] = self._points.get(sender, 0) + 1

    def posted(self, party: str) -> int:
        """How many pieces of its own points a party has posted."""
        return self._points.get(party, 0)

    def tell(self, party: str, spent: Spent) -> None:
        """Keep what a party took."""
        self._results[party] = spent

    def told(self, party: str) -> Spent | None:
        """What a party took, once it has ended."""
        return self._results.get(party)

    def spent(self) -> Any:
        """What the server took so far."""
        return self._memory.spent()


class MemoryLimit:
    """Limits this process's memory, and watches it."""

    def __init__(self) -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))
        self._own = 0
        self._began = time.process_time()
        threading.Thread(target=self._watch, daemon=True).start()

    def spent(self, points: int = 0, shared: int = 0, digest: bytes = b"") -> Spent:
        """What this process took so far."""
        self._look()
        mapped = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        return Spent(time.process_time() - self._began, self._own / 1024, mapped, points, shared, digest)

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(_PAUSE)

    def _look(self) -> None:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                self._own = max(self._own, int(line.split()[1]))


class CountedCalls(ServerCalls):
    """A party's line to the server; counts pieces of its own points."""

    points = 0

    def answer(self, request: AlignmentRequest) -> Any:
        """Carry out one request."""
        if isinstance(request, Post) and isinstance(request.message, BlindedIds) and request.about == self.party:
            self.points += 1
        return super().answer(request)


def _take_part(server: Any, case: Case, party: str, folder: Path) -> None:
    disk, run = FolderDisk(folder), case.settings
    ids = PartyIds(mapped_ids(case, party, disk))
    memory, line = MemoryLimit(), CountedCalls(server, party, _MOST_SECONDS)
    secrets = Secrets.load_or_make(disk, run, party, None)
    agreement = converse(agree(run, party, secrets, None), line.answer)
    side, kept = Aligner(run, party, agreement.key, secrets, consent_to_all, disk=disk), KeptAlignment()
    found = converse(align(side, ids, kept, change_of(run, kept, ids, secrets.tag_key(), disk=disk)), line.answer)
    server.tell(party, memory.spent(line.points, len(found.places[0]), found.digest))


def mapped_ids(case: Case, party: str, disk: FolderDisk) -> pa.LargeStringArray:
    """Ids in an order of the party's own, in a mapped file; those with the party's name in them are its own too."""
    shared, count = round(_SHARED * case.ids), case.ids
    data = scratch_array(disk, (count, _WIDTH), np.uint8)
    bounds = scratch_array(disk, (count + 1,), np.int64)
    own, stride = f"{party}-customer"[: _WIDTH - 9].encode(), _coprime(count)
    for begin in range(0, count, _STEP):
        places = np.arange(begin, min(begin + _STEP, count), dtype=np.int64)
        numbers = (places * stride + case.settings.parties.index(party)) % count
        part = data[begin : begin + len(places)]
        part[:, : _WIDTH - 9] = np.where(
            (numbers < shared)[:, None], np.frombuffer(b"customer-", np.uint8), np.frombuffer(own, np.uint8)
        )
        for digit in range(9):
            part[:, _WIDTH - 1 - digit] = 48 + (numbers // 10**digit) % 10
        bounds[begin : begin + len(places)] = places * _WIDTH
    bounds[count] = count * _WIDTH
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data.reshape(-1))]
    return pa.Array.from_buffers(pa.large_string(), count, buffers)


def _coprime(count: int) -> int:
    """A stride that visits every number below `count` once."""
    return next(each for each in range(int(count * 0.618) | 1, 2 * count + 3) if np.gcd(each, count) == 1)


def _check(case: Case, parties: list[Spent]) -> None:
    """A wrong result is no measurement."""
    expected = round(_SHARED * case.ids)
    if {each.shared for each in parties} != {expected} or len({each.digest for each in parties}) != 1:
        raise InvariantBroken(f"{case.name}: found {[each.shared for each in parties]} rows instead of {expected}")


@contextmanager
def watched_disk(folder: Path) -> Iterator[list[float]]:
    """In the one number that it gives: mebibytes of the disk that were taken at most meanwhile, by anybody."""
    free, most, done = shutil.disk_usage(folder).free, [0.0], threading.Event()

    def watch() -> None:
        while not done.wait(_PAUSE):
            most[0] = max(most[0], (free - shutil.disk_usage(folder).free) / _MEGABYTE)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()
