"""The runs that a server has open just now: each is opened by its first call, and closed when it is over or idle."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from functools import partial
from typing import Protocol

from fdml.errors import FdmlError, MessageRefused, Refusal
from fdml.events import Listener
from fdml.monitor.listeners import of_run, remarks_of
from fdml.protocol.certificates import SERVER
from fdml.server.host import RunHost
from fdml.server.session import ServerSession
from fdml.settings import RunSettings
from fdml.transport.caller_certificates import CallerCertificates
from fdml.transport.run_lines import RunLines, ended_by


class OpenSession(Protocol):
    """A run's session, and what closes its files."""

    @property
    def session(self) -> ServerSession:
        """Of one run."""
        ...

    @property
    def close(self) -> Callable[[], None]:
        """Closes its files; called once."""
        ...


Open = Callable[[RunSettings], OpenSession]
"""Opens the session of a run, going on from what its folder holds; called in a thread."""


class OpenRuns:
    """Sessions by the name of their run."""

    def __init__(
        self, host: RunHost, open_session: Open, callers: CallerCertificates, on_event: Listener, *, standing: bool
    ) -> None:
        self._host = host
        self._open_session = open_session
        self._callers = callers
        self._on_event = on_event
        self._remark = remarks_of(SERVER, on_event)
        self._standing = standing
        self._lines: dict[str, RunLines] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._opening: dict[str, asyncio.Lock] = {}
        self._begun: set[asyncio.Task[RunLines]] = set()
        """Openings that go on."""

    @property
    def names(self) -> frozenset[str]:
        """The runs that are open."""
        return frozenset(self._lines)

    async def lines(self, name: str) -> RunLines:
        """The lines of a run, opened if they are not; whoever calls has the right to.

        A caller that hangs up meanwhile does not end the opening: a session that nobody knew of would hold its files,
        and the next call could not open the run.
        """
        begun = asyncio.create_task(self._opened(name))
        self._begun.add(begun)
        begun.add_done_callback(self._end_opening)
        await asyncio.wait([begun])  # who hangs up here does not cancel it
        return begun.result()

    def _end_opening(self, begun: asyncio.Task[RunLines]) -> None:
        self._begun.discard(begun)
        if not begun.cancelled():
            begun.exception()  # heard, also if nobody waits for it any more

    async def _opened(self, name: str) -> RunLines:
        async with self._opening.setdefault(name, asyncio.Lock()):
            if name not in self._lines:
                await self._open(name)
            self._lines[name].use()
            return self._lines[name]

    async def wait(self, name: str) -> None:
        """Wait for the end of a run; raises what has ended it."""
        await self.lines(name)
        await self._tasks[name]

    def refused(self, name: str, party: str, why: str) -> None:
        """A party was not let into a run: those who wait for it there hear why."""
        if name in self._lines:
            self._lines[name].session.alignment.presence.refuse(party, why)

    def accepted(self, name: str, party: str) -> None:
        """A party was let into a run, after all."""
        if name in self._lines:
            self._lines[name].session.alignment.presence.accept(party)

    def stop(self, name: str, refused: MessageRefused) -> None:
        """End a run's streams with a refusal, and close it."""
        if name in self._lines:
            self._lines[name].end(refused)
            self._tasks[name].cancel()

    async def close(self) -> None:
        """End all runs' streams, and close them; those that are being opened, too."""
        await asyncio.gather(*self._begun, return_exceptions=True)
        tasks = list(self._tasks.values())
        for lines in self._lines.values():
            lines.end()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _open(self, name: str) -> None:
        settings = self._host.run(name).settings
        try:
            opened = await asyncio.to_thread(self._open_session, settings)
        except (OSError, FdmlError) as error:
            if not self._standing:
                raise
            self._remark(f"run {name!r} cannot be opened: {error}")
            raise MessageRefused(
                f"the server cannot open run {name!r}; its operator's log says why", Refusal.NOT_STORED
            ) from None
        listener = of_run(name, self._on_event) if self._standing else self._on_event
        lines = RunLines(opened.session, settings, self._callers, listener, standing=self._standing)
        self._lines[name] = lines
        self._tasks[name] = asyncio.create_task(self._hold(name, lines, opened.close))
        self._tasks[name].add_done_callback(partial(self._report, name, lines))

    async def _hold(self, name: str, lines: RunLines, close: Callable[[], None]) -> None:
        try:
            await lines.run(lambda: self._host.finish(name))
            lines.end()
        except (OSError, FdmlError) as error:
            if not self._standing:
                raise
            lines.end(ended_by(error))
            self._remark(f"run {name!r} is closed for now: {error or type(error).__name__}")
        finally:
            self._lines.pop(name, None)
            self._tasks.pop(name, None)
            close()

    def _report(self, name: str, lines: RunLines, task: asyncio.Task[None]) -> None:
        """Tell the parties of a run what has ended it; a bug ends its run alone, and its traceback is printed."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        lines.end(ended_by(error))
        if self._standing:
            text = "".join(traceback.format_exception(error)).rstrip()
            self._remark(f"run {name!r} is closed for now, by a bug of fdml; please report it:\n{text}")
