"""Processes that `fdml` starts itself, forked from one that has everything imported.

A standing party starts a process for each run, and to import everything takes it two
seconds of a core. Here `subprocess.Popen` asks a server of forks instead: the child is a
real process with its own number, process group, output and signals, and it outlives whoever
asked for it; what it starts itself is forked as well. `Terminal` of tests.end_to_end.cluster
starts all from nothing, as users do.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

_MOST_BYTES = 2**16
_POPEN = subprocess.Popen


def serve_forks(listener: socket.socket, alive: Connection) -> None:
    """Fork a process for each call, and say its number and, in the end, its exit code; until `alive` breaks."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writer)
    callers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, reader, alive], [], [])
        if alive in ready:
            return
        if reader in ready:
            os.read(reader, _MOST_BYTES)
            _reap(callers)
        if listener in ready:
            caller, _ = listener.accept()
            try:
                number = _fork(caller, listener)
            except ConnectionError:  # who asked was killed meanwhile
                caller.close()
                continue
            callers[number] = caller
            _write(caller, number)


def _reap(callers: dict[int, socket.socket]) -> None:
    """Collect all children that have ended."""
    while callers:
        number, status = os.waitpid(-1, os.WNOHANG)
        if number == 0:
            return
        caller = callers.pop(number)
        _write(caller, os.waitstatus_to_exitcode(status))
        caller.close()


def _write(caller: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # it may have been killed
        caller.sendall(f"{number}\n".encode())


def _fork(caller: socket.socket, listener: socket.socket) -> int:
    raw, handles, _, _ = socket.recv_fds(caller, _MOST_BYTES, 1)
    while not raw.endswith(b"\n"):
        more = caller.recv(_MOST_BYTES)
        if not more:
            raise ConnectionError("half a call")
        raw += more
    (output,) = handles
    number = os.fork()
    if number:
        os.close(output)
        return number
    code = 1
    try:
        listener.close()
        caller.close()
        _become(json.loads(raw), output)
        code = _run()
    except BaseException:  # noqa: BLE001 - nothing may go on as the server's copy
        traceback.print_exc()
    finally:
        os._exit(code)


def _become(asked: Mapping[str, Any], output: int) -> None:
    """Take on what the caller would have handed down."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if asked["group"] is not None:
        os.setpgid(0, asked["group"])
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    further = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path.extend(path for path in further if path and path not in sys.path)
    subprocess.Popen = warm_popen(lambda: asked["address"])  # type: ignore[misc]
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, handle in enumerate((nothing, output, output)):
        os.dup2(handle, number)
    os.close(nothing)
    os.close(output)
    sys.argv = ["fdml", *asked["words"]]


def _run() -> int:
    """The command, and its exit code."""
    from fdml.cli.app import main  # noqa: PLC0415 - imported long before, by whoever forks

    try:
        main()
    except SystemExit as end:
        if isinstance(end.code, str):  # as the interpreter does
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        threading._shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


def warm_popen(address: Callable[[], str]) -> Any:
    """A `subprocess.Popen` that has `fdml` commands forked by the server at this address, asked for with the first."""

    def popen(command: Sequence[str], **options: Any) -> Any:
        is_fdml = list(command[:3]) == [sys.executable, "-m", "fdml"]
        return (
            WarmProcess(address(), command[3:], options)
            if is_fdml and _is_file(options)
            else _POPEN(command, **options)
        )

    return popen


def _is_file(options: Mapping[str, Any]) -> bool:
    """Whether the output goes to a file, and not to a pipe that is still to be made."""
    return hasattr(options.get("stdout"), "fileno")


class WarmProcess:
    """What `subprocess.Popen` gives, as far as fdml uses it."""

    def __init__(self, address: str, words: Sequence[str], options: Mapping[str, Any]) -> None:
        self.args = [sys.executable, "-m", "fdml", *words]
        self.returncode: int | None = None
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(address)
        asked = {
            "words": list(words),
            "group": options.get("process_group"),
            "folder": str(options.get("cwd") or os.getcwd()),
            "environment": dict(options.get("env") or os.environ),
            "address": address,
        }
        socket.send_fds(self._line, [json.dumps(asked).encode() + b"\n"], [options["stdout"].fileno()])
        self._answers = self._line.makefile("r")
        self.pid = int(self._answers.readline())

    def poll(self) -> int | None:
        return self.wait(0.0) if self.returncode is None and self._has_ended(0.0) else self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not self._has_ended(timeout):
                raise subprocess.TimeoutExpired("fdml", timeout or 0.0)
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._line.close()
        return self.returncode

    def _has_ended(self, seconds: float | None) -> bool:
        return bool(select.select([self._line], [], [], seconds)[0])

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)
