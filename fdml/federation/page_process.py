"""The live page beside a run: `fdml watch` as a process of its own, which ends with the one that has started it.

A process and not a thread: it shares no interpreter lock, no memory and no fate with the run. Whatever happens to it,
also that its port is taken, is said, and the run goes on.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

WITH_PARENT = "--with-parent"
"""The option by which `fdml watch` ends when its standard input does."""
_STOP_SECONDS = 5.0
_EVERYWHERE = ("0.0.0.0", "[::]", "::")  # noqa: S104 (only compared with)


def reached_here(address: str) -> str:
    """Where a server that listens at this address is reached from its own machine."""
    host, _, port = address.rpartition(":")
    return f"127.0.0.1:{port}" if host in _EVERYWHERE else address


class PageProcess:
    """`fdml watch` as a child; nothing happens until `start`. Leaving the block ends it."""

    def __init__(self, path: Path, listen: str, options: Sequence[str], remark: Callable[[str], None]) -> None:
        """`path` is a party.toml or federation.toml, `listen` where the page is; `remark` takes a line for a person."""
        self._words = ["watch", str(path), "--listen", listen, WITH_PARENT, *options]
        self._remark = remark
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._ended = False

    def start(self, *options: str) -> None:
        """Start it, with further options of `fdml watch`; it is ready once it has said its address."""
        command = [sys.executable, "-m", "fdml", *self._words, *options]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                process_group=0,
            )
        except OSError as error:
            self._remark(f"no page: {error}; the run goes on without it")
            return
        self._reader = threading.Thread(target=self._read, args=(self._process,), name="page process", daemon=True)
        self._reader.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        has_failed = False
        for line in process.stdout or ():
            text = line.strip()
            if text.startswith("page: "):
                self._remark(text)
            elif text and not (self._ended or has_failed):  # the rest must be read, and says no more
                has_failed = True
                why = text.removeprefix("fdml: ").replace(" --listen ", " --web-listen ")
                self._remark(f"no page: {why}; the run goes on without it")

    def __enter__(self) -> PageProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Let it end by itself; end it if it does not."""
        process, self._ended = self._process, True
        if process is None:
            return
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if self._reader is not None:
            self._reader.join(_STOP_SECONDS)
        if process.stdout is not None:
            process.stdout.close()
