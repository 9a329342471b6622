"""Commands as a service manager keeps them: started again whenever they end."""

from __future__ import annotations

import contextlib
import resource
import signal
import threading
from collections.abc import Callable

from tests.end_to_end.cluster import Started, until

_RESTART_SECONDS = 0.3


class Unit:
    """One command that is started again whenever it ends; with `on_failure`, not once it has ended well."""

    def __init__(self, start: Callable[[], Started], *, on_failure: bool = False) -> None:
        self._start = start
        self._on_failure = on_failure
        self._wanted = threading.Event()
        self._wanted.set()
        self._over = threading.Event()
        self.codes: list[int] = []
        """Exit codes of all starts that have ended."""
        self.process = start()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def _keep(self) -> None:
        while not self._over.is_set():
            if (code := self.process.code) is None:
                self._over.wait(0.05)
                continue
            self.codes.append(code)
            if self._on_failure and code == 0:
                return
            self._over.wait(_RESTART_SECONDS)
            self._wanted.wait()
            if not self._over.is_set():
                self.process = self._start()

    @property
    def is_done(self) -> bool:
        """Whether it has ended well and is not started again."""
        return self._on_failure and bool(self.codes) and self.codes[-1] == 0

    def kill(self) -> None:
        """End its process as a power cut would; it is started again."""
        self.process.send(signal.SIGKILL)

    def hold(self) -> None:
        """Stop the unit, until `release`."""
        self._wanted.clear()
        self.process.send(signal.SIGTERM)
        until(lambda: self.process.code is not None, "the end of a unit that is stopped")

    def release(self) -> None:
        """Start the unit again."""
        self._wanted.set()

    def fill_disk(self, seconds: float) -> Callable[[], None]:
        """As `fill_disk`, of whatever process the unit has: one may just have ended, and the next not begun."""
        found: list[Callable[[], None]] = []

        def is_filled() -> bool:
            with contextlib.suppress(ProcessLookupError):
                found.append(fill_disk(self.process.pid))
            return bool(found)

        until(is_filled, "a process of the unit", seconds)
        return found[0]

    def end(self) -> None:
        """Start it no more."""
        self._over.set()
        self._wanted.set()
        self._thread.join(10)


def fill_disk(process: int) -> Callable[[], None]:
    """Let a process write no more to files, as if its disk were full; call what comes back once there is room."""
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (0, hard))
    return lambda: _make_room(process, soft, hard)


def _make_room(process: int, soft: int, hard: int) -> None:
    try:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))
    except ProcessLookupError:
        return  # it has ended of it, as it may
