"""Chaos 5: a server that slept does not take its own sleep for the parties' silence."""

import pytest

from fdml.errors import PeerTimeout
from fdml.server.awake_clock import AwakeClock
from tests.monitor.sample_events import Clock
from tests.server.sessions import Server, session_of, settings_of


def test_a_process_that_looks_every_second_sees_every_second():
    clock = Clock()
    awake = AwakeClock(clock)
    seen = []
    for _ in range(100):
        clock.now += 1.0
        seen.append(awake())
    assert seen == [float(second) for second in range(1, 101)]


def test_a_sleep_counts_for_two_seconds_however_long_it_was():
    clock = Clock()
    awake = AwakeClock(clock)
    clock.now += 10_000.0
    assert awake() == 2.0
    assert awake() == 2.0
    clock.now += 0.5
    assert awake() == 2.5


def running(session, clock, seconds):
    for _ in range(seconds):
        clock.now += 1.0
        session.tick()


def test_a_server_that_slept_longer_than_ten_time_outs_goes_on():
    clock = Clock()
    server = Server(peer_timeout_seconds=30.0)
    server.session = session = session_of(server.settings, AwakeClock(clock))
    server.training()
    running(session, clock, 100)
    clock.now += 10_000.0
    running(session, clock, 150)
    with pytest.raises(PeerTimeout, match="no message from any party for"):
        running(session, clock, 100)


def test_nobody_counts_as_silent_for_the_server_s_own_sleep():
    clock = Clock()
    session = session_of(settings_of(), AwakeClock(clock))
    session.saw("ann")
    clock.now += 10_000.0
    assert session.alignment.presence.is_here("ann")
