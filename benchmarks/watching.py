"""What does watching cost a run, and how soon does the page of a long run open?

One run of a server and two parties as processes. Beside it `fdml watch` of a party, with a viewer, is stopped and goes
on by turns; the steps that the run does in each stretch are counted, and the processor time of all: on a machine that
does other things, too, only that says something. Then the party's history is replaced by one of ten hours (36 million
steps, 36,000 epochs), and its page is opened.
"""

from __future__ import annotations

import json
import mmap
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path

import numpy as np

from benchmarks.cluster import Cluster, cpu_of, run_folder, write_run
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.ports import reserved_port
from fdml.errors import PeerTimeout
from fdml.events import Evaluated, Event, StepDone
from fdml.federation.join import join
from fdml.federation.machine_limits import tune_party_process
from fdml.federation.party_folder import HISTORY
from fdml.federation.serve import serve
from fdml.federation.watch import Watch
from fdml.monitor.listeners import ignore_events
from fdml.monitor.measures import MEASURES, Measures, Start
from fdml.monitor.page_server import FILES

_STEPS = "steps"
"""The file by which a party tells how many steps it has done; 8 bytes that are mapped."""
_STRETCH_SECONDS = 4.0
_SETTLE_SECONDS = 0.5
_START_SECONDS = 120.0
_ROWS, _WIDTH, _BATCH = 20_000, 20, 100
LONG_EPOCHS, LONG_STEPS = 36_000, 36_000_000
"""Of a run of ten hours, with 1,000 steps a second and an epoch a second."""
_NOBODY = "127.0.0.1:1"


def run(progress: Progress, rounds: int = 15) -> Report:
    """Compare `rounds` stretches with the page and without, then open the page of a long run."""
    with tempfile.TemporaryDirectory(prefix="fdml-watching-") as folder, reserved_port() as port:
        home = Path(folder) / "home"
        _write(home)
        watched, alone = alternate(home, port, rounds, progress)
        progress("a history of ten hours")
        write_long_history(run_folder(home, "p0"))
        seconds, cpu, size = open_page(home / "p0" / "party.toml")
    pairs = list(zip(watched, alone, strict=True))
    rows = [
        row("watched", [each.speed for each in watched], "steps/s"),
        row("not watched", [each.speed for each in alone], "steps/s"),
        row("processor time of server and parties, watched", [each.run_cpu for each in watched], "ms/step"),
        row("processor time of server and parties, not watched", [each.run_cpu for each in alone], "ms/step"),
        row("processor time of the page", [each.page_cpu for each in watched], "ms/s"),
        row(f"page of {LONG_STEPS:,} steps: first state", [seconds], "s"),
        row(f"page of {LONG_STEPS:,} steps: its processor time", [cpu], "s"),
        row(f"page of {LONG_STEPS:,} steps: all that a browser loads", [size / 1e6], "MB"),
    ]
    ratios = {
        "steps a second, not watched / watched": spread([quiet.speed / seen.speed for seen, quiet in pairs]),
        "processor time a step, watched / not watched": spread([seen.run_cpu / quiet.run_cpu for seen, quiet in pairs]),
    }
    question = "What does watching cost a run, and how soon does the page of a ten-hour run open?"
    return Report("watching", question, rows, ratios, machine(), commit())


def _write(home: Path) -> None:
    random = np.random.default_rng(0)
    parts = [random.normal(size=(_ROWS, _WIDTH)).astype(np.float32) for _ in range(2)]
    labels = (sum(part.sum(1) for part in parts) > 0).astype(np.int64)
    settings = f'task = "binary"\n[training]\nepochs = 100000\nbatch_size = {_BATCH}\nbatches_per_block = 5\n'
    write_run(home, settings, parts, labels, ["", ""])


def counted_side(home: Path, name: str, address: str) -> None:
    """Be the server or a party; p0 counts its steps where another process sees it."""
    if name == "server":
        serve(home / "federation.toml", home / "run.toml", listen=address, on_event=ignore_events)
        return
    tune_party_process()
    path = home / name / _STEPS
    path.write_bytes(bytes(8))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 8) as place:

        def count(event: Event) -> None:
            if isinstance(event, StepDone):
                place[:] = struct.pack("<q", event.step)

        join(home / name / "party.toml", server=address, on_event=count)


@dataclass(frozen=True)
class Stretch:
    """What a run did in a few seconds."""

    speed: float
    """Steps a second."""
    run_cpu: float
    """Processor time of server and parties, in milliseconds a step."""
    page_cpu: float
    """Processor time of `fdml watch`, in milliseconds a second."""


def alternate(home: Path, port: int, rounds: int, progress: Progress) -> tuple[list[Stretch], list[Stretch]]:
    """Every stretch with a page and a viewer, and every one without; first one, then the other first."""
    cluster = Cluster(home, port, 3600.0, counted_side)
    watch: subprocess.Popen[str] | None = None
    found: tuple[list[Stretch], list[Stretch]] = ([], [])
    try:
        for name in ("server", "p0", "p1"):
            cluster.start(name)
        _await_steps(home, cluster)
        watch = _watch(home, f"127.0.0.1:{port}")
        threading.Thread(target=_view, args=(_address(watch),), daemon=True).start()
        time.sleep(2.0)
        for turn in range(rounds):
            for is_watched in (True, False) if turn % 2 else (False, True):
                watch.send_signal(signal.SIGCONT if is_watched else signal.SIGSTOP)
                time.sleep(_SETTLE_SECONDS)
                found[0 if is_watched else 1].append(_stretch(home, cluster, watch.pid))
            speeds = found[0][-1].speed, found[1][-1].speed
            progress(f"round {turn + 1} of {rounds}: {speeds[0]:.0f} watched, {speeds[1]:.0f} not, steps/s")
    finally:
        if watch is not None:
            watch.kill()
            watch.communicate()
        cluster.stop()
    return found


def _steps(home: Path) -> int:
    with suppress(OSError, struct.error):
        steps: int = struct.unpack("<q", (home / "p0" / _STEPS).read_bytes())[0]
        return steps
    return 0


def _stretch(home: Path, cluster: Cluster, page: int) -> Stretch:
    def cpu() -> float:
        return sum(cluster.cpu(name) or 0.0 for name in ("server", "p0", "p1"))

    began, steps, run_cpu, page_cpu = time.perf_counter(), _steps(home), cpu(), cpu_of(page)
    time.sleep(_STRETCH_SECONDS)
    done, seconds = max(1, _steps(home) - steps), time.perf_counter() - began
    return Stretch(done / seconds, 1000 * (cpu() - run_cpu) / done, 1000 * (cpu_of(page) - page_cpu) / seconds)


def _await_steps(home: Path, cluster: Cluster) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while _steps(home) < 200:
        if time.monotonic() > deadline or not cluster.is_running:
            raise PeerTimeout(f"the run in {home} did not begin within {_START_SECONDS:g} s")
        time.sleep(0.1)


def _watch(home: Path, server: str) -> subprocess.Popen[str]:
    words = ["watch", str(home / "p0" / "party.toml"), "--server", server, "--listen", "127.0.0.1:0"]
    return subprocess.Popen([sys.executable, "-m", "fdml", *words], stdout=subprocess.PIPE, text=True)


def _address(watch: subprocess.Popen[str]) -> str:
    for line in watch.stdout or ():
        if line.startswith("page: "):
            return line.split()[1]
    raise PeerTimeout("`fdml watch` ended without a page")


def _view(address: str) -> None:
    """Read the page's stream as a browser does, until it ends."""
    with suppress(OSError), urllib.request.urlopen(f"{address}events", timeout=3600.0) as stream:  # noqa: S310
        while stream.readline():
            pass


def write_long_history(folder: Path, epochs: int = LONG_EPOCHS, steps: int = LONG_STEPS) -> None:
    """Put figures of a run of ten hours in place of a run's own."""
    random = np.random.default_rng(0)
    loss = 0.3 + 0.4 / np.sqrt(np.arange(1, epochs + 1)) + random.normal(0.0, 0.001, epochs)
    rows = []
    for number in range(epochs):
        value = float(loss[number])
        figures: dict[str, float | None] = {"auc": 1.0 - value / 2, "log_loss": value, "accuracy": 0.9}
        each = asdict(Evaluated("p0", number + 1, float(number), value, value, 1.0 - value / 2, figures))
        del each["run"]
        rows.append(each)
    (folder / HISTORY).write_text(json.dumps(rows, indent=1))
    start = Start(0.0, steps=steps, seconds=36_000.0, waited_seconds=3600.0, bytes_sent=10**12, bytes_received=10**12)
    measures = Measures((start,), lag={0: steps - 1000, 1: 1000}, releases={"push": steps})
    (folder / MEASURES).write_text(json.dumps(asdict(measures)))


def open_page(path: Path) -> tuple[float, float, int]:
    """Seconds until the first state of a page, how many of them were processor time, and bytes that a browser loads."""
    began, cpu = time.perf_counter(), time.process_time()
    page = Watch(path, "first", server=_NOBODY, seconds=0.05)
    page.look()
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    files = sum(len(resources.files("fdml.monitor").joinpath("page", name).read_bytes()) for name, _ in FILES.values())
    return seconds, cpu, len(page.published.text.encode()) + files
