"""Workers as actors of a Ray cluster of the party's own, asked through a process that speaks to Ray for the party."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from fdml.cluster.frames import Frame, from_bytes, pieces, read_frame, to_bytes
from fdml.cluster.lines import LinedWorkers, LineLost, error_of
from fdml.errors import FdmlError, SettingsError
from fdml.extras import need

_GRACE = 5.0
"""Seconds that the process in between has beyond a task's own, which it keeps itself."""
_LOOK = 0.05
_LOG = "log"
_ENDING = 5.0
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_SAID = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_DEDUP_LOGS": "0",
}
"""What Ray is told, where nobody has told it otherwise: no cluster without a token, and no reports to its makers."""


class RayGateway:
    """The process that speaks to Ray. One that has ended is started again with the next line."""

    def __init__(self, address: str, setup: Frame, seconds: float) -> None:
        self._address = address
        self._setup = to_bytes(setup)
        self._seconds = seconds
        self._lock = threading.Lock()
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._remarked: set[str] = set()
        self.remarks: list[str] = []

    def line(self, number: int) -> RayLine:
        """A line to a new actor; raises `LineLost` where there is none."""
        deadline = time.monotonic() + self._seconds + _GRACE
        line = RayLine(self._connected(deadline), number)
        try:
            opened = line.begun(self._setup, self._seconds)
        except (LineLost, FdmlError):
            line.end()
            raise
        self._remark_on(opened)
        return line

    def _remark_on(self, opened: Frame) -> None:
        """What a person should know of a machine, once."""
        other, sent = opened.facts["other processor"], opened.facts["sent"]
        machine = opened.facts["machine"].rpartition(", process ")[0]
        texts = []
        if other:
            texts.append(f"{other} has another processor than this machine: the last bits of results may differ")
        if sent:
            texts.append(f"{machine} does not see the party's block store: {sent / 1e6:.1f} MB of rows were sent to it")
        with self._lock:
            self.remarks += [text for text in texts if text not in self._remarked]
            self._remarked.update(texts)

    def _connected(self, deadline: float) -> socket.socket:
        while time.monotonic() < deadline:
            path = self._running()
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(str(path))
            except OSError:  # it is not there yet, or not any more
                connection.close()
                time.sleep(_LOOK)
                continue
            return connection
        said = self._last_words()
        self.stop()
        raise LineLost(f"had no line to Ray at {self._address} within {self._seconds:g} s: {said}")

    def _running(self) -> Path:
        """Where the process takes lines; it is started where there is none, or where it was killed."""
        with self._lock:
            if self._folder is None:
                self._folder = Path(tempfile.mkdtemp(prefix="fdml-ray-"))
            path, process = self._folder / "lines", self._process
            if process is not None and process.poll() is not None:
                self._process = None
                _end(process)
                if process.returncode > 0:
                    raise LineLost(f"has no line to Ray at {self._address}: {self._last_words()}")
            if self._process is None:
                path.unlink(missing_ok=True)
                self._process = _started(self._address, path, self._folder / _LOG)
            return path

    def _last_words(self) -> str:
        """The last line that the process has said."""
        if self._folder is None:
            return ""
        lines = (self._folder / _LOG).read_text(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def stop(self) -> None:
        """End the process, and all actors with it."""
        with self._lock:
            process, self._process = self._process, None
            folder, self._folder = self._folder, None
        if process is not None:
            _end(process)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _started(address: str, path: Path, log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "fdml.cluster.ray_process", address, str(path)],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env=_environment(address),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        process.stdin.close()  # it ends with that
    try:
        process.wait(_ENDING)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_ENDING)


def _environment(address: str) -> dict[str, str]:
    said = dict(_SAID)
    if address.rpartition(":")[0] in _LOOPBACK:
        said["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else Ray takes it for the machine's outward address
    paths = os.pathsep.join(filter(None, sys.path))
    return {**said, **os.environ, "PYTHONPATH": paths}


class RayLine:
    """A line to an actor, by a connection to the process that speaks to Ray."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.machine = f"worker {number}"
        self._connection = connection
        self._answers = connection.makefile("rb")

    def begun(self, setup: bytes, seconds: float) -> Frame:
        """Have an actor set up; what is told of it."""
        opened = self.call(setup, seconds)
        if "refused" in opened.facts:
            raise SettingsError(f"{opened.facts['refused']}; install the same on all machines of workers.address")
        self.machine = f"{self.machine} ({opened.facts['machine']})"
        answer = from_bytes(opened.arrays["content"].tobytes())
        if "error" in answer.facts:
            raise error_of(answer, self.machine)
        return opened

    def ask(self, task: Frame, seconds: float) -> Frame:
        """The actor's answer."""
        return from_bytes(self.call(to_bytes(task), seconds).arrays["content"].tobytes())

    def call(self, content: bytes, seconds: float) -> Frame:
        """What the process answers to this content; raises where the actor is lost, or the process."""
        self._connection.settimeout(seconds + _GRACE)
        try:
            for piece in pieces(Frame({"seconds": seconds}, {"content": np.frombuffer(content, np.uint8)})):
                self._connection.sendall(piece)
            answer = read_frame(self._answers)
        except TimeoutError:
            raise LineLost(f"has not answered within {seconds:g} s, nor the process that speaks to Ray") from None
        except OSError as error:
            raise LineLost(f"is gone ({error.strerror}): the process that speaks to Ray has ended") from None
        if answer is None:
            raise LineLost("is gone: the process that speaks to Ray has ended")
        if "lost" in answer.facts:
            raise LineLost(answer.facts["lost"])
        return answer

    def end(self) -> None:
        """End the actor: it goes with the line."""
        self._answers.close()
        self._connection.close()


def ray_workers(setup: Frame, workers: int, seconds: float, address: str) -> LinedWorkers:
    """So many actors of the Ray cluster at this address, each set up by a frame that names its job."""
    need("ray", 'workers.kind = "ray"')
    gateway = RayGateway(address, setup, seconds)
    return LinedWorkers(gateway.line, workers, seconds, remarks=gateway.remarks, stop=gateway.stop)
