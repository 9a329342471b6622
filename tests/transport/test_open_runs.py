"""Runs that a server opens by their first call."""

import asyncio
import contextlib
import threading
import time

import pytest

from fdml.errors import MessageRefused
from fdml.monitor.listeners import ignore_events
from fdml.server.host import NO_RUNS, RunHost
from fdml.settings.federation import FederationSettings
from fdml.transport.caller_certificates import CallerCertificates
from fdml.transport.open_runs import OpenRuns
from tests.server.run_states import definition_of
from tests.transport.served import SECONDS, Opened, new_session

SETTINGS = definition_of().settings


class Opener:
    """Opens a session as slowly as a test says; one at a time, as a lock on its files would."""

    def __init__(self):
        self.may_go_on, self.begun, self.count = threading.Event(), threading.Event(), 0
        self._held = threading.Lock()

    @property
    def is_held(self):
        return self._held.locked()

    def __call__(self, settings):
        if not self._held.acquire(blocking=False):
            raise OSError("in use")
        self.count += 1
        self.begun.set()
        assert self.may_go_on.wait(SECONDS)
        return Opened(new_session(settings), self._held.release)


def runs_of(opener):
    federation = FederationSettings.of_run(SETTINGS)
    host = RunHost(federation, NO_RUNS, time.time, only=SETTINGS)
    return OpenRuns(host, opener, CallerCertificates(None, {}, ignore_events), ignore_events, standing=True)


def test_a_caller_that_hangs_up_while_a_run_is_opened_leaves_it_to_the_next():
    async def call_twice():
        opener = Opener()
        runs = runs_of(opener)
        first = asyncio.create_task(runs.lines(SETTINGS.name))
        await asyncio.to_thread(opener.begun.wait, SECONDS)
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        second = asyncio.create_task(runs.lines(SETTINGS.name))
        await asyncio.sleep(0.02)
        opener.may_go_on.set()
        lines = await asyncio.wait_for(second, SECONDS)
        assert lines is await runs.lines(SETTINGS.name)
        assert opener.count == 1
        await runs.close()

    asyncio.run(call_twice())


def test_a_run_that_cannot_be_opened_is_refused_to_each_caller():
    def fails(_):
        raise OSError("no such disk")

    async def call():
        runs = runs_of(fails)
        for _ in range(2):
            with pytest.raises(MessageRefused, match="cannot open run"):
                await runs.lines(SETTINGS.name)

    asyncio.run(call())


def test_a_run_that_is_being_opened_when_the_server_ends_is_closed_again():
    async def end():
        opener = Opener()
        runs = runs_of(opener)
        call = asyncio.create_task(runs.lines(SETTINGS.name))
        await asyncio.to_thread(opener.begun.wait, SECONDS)
        call.cancel()
        opener.may_go_on.set()
        await asyncio.wait_for(runs.close(), SECONDS)
        assert runs.names == frozenset()
        assert not opener.is_held

    asyncio.run(end())
