"""What every channel must pass. A new channel is one more entry of `NETWORKS`."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fdml.errors import MessageRefused, PartyFailed, PeerTimeout, Refusal
from fdml.protocol.messages import Push, Release, Stop, Stopped
from fdml.protocol.schedule import schedule_for
from fdml.server.coordinator import Coordinator
from fdml.transport.in_process import InProcessExchange

PARTIES = ("store", "browser", "guard")
SCHEDULE = schedule_for(12, 2, 2, 1, 20, 7)
SOON = 20.0


class InProcess:
    """A network as the tests see it: a channel for each party, and a way to say that a party failed."""

    def __init__(self, staleness, peer_timeout):
        coordinator = Coordinator(PARTIES, SCHEDULE, 1, staleness)
        self._exchange = InProcessExchange(PARTIES, coordinator.handle, coordinator.waits_for, peer_timeout)
        self.channels = {name: self._exchange.channel(name) for name in PARTIES}

    def fail(self, party):
        self._exchange.fail(party)

    def close(self):
        """Nothing to close in one process."""


NETWORKS = {"in process": InProcess}


@pytest.fixture(params=NETWORKS)
def connect(request):
    """Makes a network; all that were made are closed in the end."""
    made = []

    def make(*, staleness=0, peer_timeout_seconds=SOON):
        made.append(NETWORKS[request.param](staleness, peer_timeout_seconds))
        return made[-1]

    yield make
    for network in made:
        network.close()


def values(party, step):
    return np.random.default_rng([PARTIES.index(party), step]).integers(-(2**40), 2**40, (SCHEDULE.visit(step).size, 1))


def sum_of(step):
    return sum(values(party, step) for party in PARTIES)


def send(network, party, step):
    network.channels[party].send(Push(step, Release(values(party, step))))


def together(*jobs):
    """Run all jobs as threads and give back what each returned or raised."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        futures = [pool.submit(job) for job in jobs]
        return [future.exception(SOON) or future.result() for future in futures]


def test_a_total_comes_back_to_every_party(connect):
    network = connect()
    for party in PARTIES:
        send(network, party, 0)
    for party in PARTIES:
        total = network.channels[party].receive(0)
        assert (total.step, total.pushed_at) == (0, (0, 0, 0))
        assert total.values.dtype == np.int64
        np.testing.assert_array_equal(total.values, sum_of(0))


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_whole_runs_with_threads_bring_every_total_in_order(connect, lookahead):
    network = connect()

    def run(party):
        totals = []
        for step in range(min(1 + lookahead, SCHEDULE.steps)):
            send(network, party, step)
        for step in range(SCHEDULE.steps):
            totals.append(network.channels[party].receive(step))
            if step + 1 + lookahead < SCHEDULE.steps:
                send(network, party, step + 1 + lookahead)
        return totals

    results = together(*(lambda party=party: run(party) for party in PARTIES))
    for totals in results:
        assert [total.step for total in totals] == list(range(SCHEDULE.steps))
        for total in totals:
            np.testing.assert_array_equal(total.values, sum_of(total.step))
            assert total.lag == 0


def test_a_receive_wakes_up_as_soon_as_the_last_push_comes(connect):
    network = connect()
    waiting = threading.Event()

    def wait():
        waiting.set()
        return network.channels["store"].receive(0)

    def push_late():
        waiting.wait(SOON)
        time.sleep(0.05)
        for party in ("browser", "guard"):
            send(network, party, 0)

    send(network, "store", 0)
    began = time.monotonic()
    total, nothing = together(wait, push_late)
    assert nothing is None
    np.testing.assert_array_equal(total.values, sum_of(0))
    assert time.monotonic() - began < SOON / 2


def test_totals_that_came_early_are_kept_until_they_are_asked_for(connect):
    network = connect()
    for step in range(3):
        for party in PARTIES:
            send(network, party, step)
    for step in (2, 0, 1):
        np.testing.assert_array_equal(network.channels["guard"].receive(step).values, sum_of(step))


def test_a_wait_ends_with_the_name_of_the_silent_party(connect):
    network = connect(peer_timeout_seconds=0.2)
    send(network, "store", 0)
    send(network, "guard", 0)
    began = time.monotonic()
    with pytest.raises(
        PeerTimeout, match=r"party 'store' waited 0.2 s at step 0 for 'browser'; .* training.peer_timeout_seconds"
    ) as caught:
        network.channels["store"].receive(0)
    assert "guard" not in str(caught.value)
    assert 0.15 < time.monotonic() - began < SOON / 2


def test_a_wait_names_all_who_are_silent(connect):
    network = connect(peer_timeout_seconds=0.1)
    send(network, "store", 0)
    with pytest.raises(PeerTimeout, match="for 'browser', 'guard'"):
        network.channels["store"].receive(0)


def test_a_wait_that_ended_can_be_taken_up_again(connect):
    network = connect(peer_timeout_seconds=0.1)
    send(network, "store", 0)
    with pytest.raises(PeerTimeout):
        network.channels["store"].receive(0)
    for party in ("browser", "guard"):
        send(network, party, 0)
    np.testing.assert_array_equal(network.channels["store"].receive(0).values, sum_of(0))


def test_a_failed_party_wakes_all_who_wait_for_it(connect):
    network = connect()
    for party in ("store", "guard"):
        send(network, party, 0)
    began = time.monotonic()

    def fail():
        time.sleep(0.05)
        network.fail("browser")

    first, second, _ = together(
        lambda: network.channels["store"].receive(0), lambda: network.channels["guard"].receive(0), fail
    )
    for error in (first, second):
        assert isinstance(error, PartyFailed)
        assert "party 'browser' stopped with an error" in str(error)
    assert time.monotonic() - began < SOON / 2


def test_the_first_party_that_failed_is_named(connect):
    network = connect()
    send(network, "store", 0)
    network.fail("guard")
    network.fail("browser")
    with pytest.raises(PartyFailed, match="party 'guard' stopped"):
        network.channels["store"].receive(0)


def test_a_total_that_has_come_is_given_out_even_after_a_failure(connect):
    network = connect()
    for party in PARTIES:
        send(network, party, 0)
    network.fail("browser")
    np.testing.assert_array_equal(network.channels["store"].receive(0).values, sum_of(0))


def test_a_refused_push_is_told_to_its_sender_and_the_others_go_on(connect):
    network = connect()
    with pytest.raises(MessageRefused, match="party 'store' pushed step 1; its next is 0") as refused:
        send(network, "store", 1)
    assert refused.value.refusal is Refusal.GAP
    for party in PARTIES:
        send(network, party, 0)
    for party in PARTIES:
        np.testing.assert_array_equal(network.channels[party].receive(0).values, sum_of(0))


def test_a_repeated_push_is_taken_once(connect):
    network = connect()
    for party in PARTIES:
        send(network, party, 0)
        send(network, party, 0)
    for party in PARTIES:
        total = network.channels[party].receive(0)
        np.testing.assert_array_equal(total.values, sum_of(0))
        send(network, party, 1)
        send(network, party, 0)
    for party in PARTIES:
        np.testing.assert_array_equal(network.channels[party].receive(1).values, sum_of(1))


def test_keeping_steps_stops_nothing(connect):
    network = connect()
    for step in range(4):
        for party in PARTIES:
            send(network, party, step)
        for party in PARTIES:
            np.testing.assert_array_equal(network.channels[party].receive(step).values, sum_of(step))
            network.channels[party].keep(step - 2)
            network.channels[party].keep(step - 1)
            network.channels[party].keep(step - 1)


def test_a_party_that_stops_ends_the_waits_for_its_next_step_and_no_earlier_one(connect):
    network = connect()
    for party in PARTIES:
        send(network, party, 0)
    for party in ("store", "guard"):
        send(network, party, 1)
    network.channels["browser"].send(Stop(1))
    for party in PARTIES:
        np.testing.assert_array_equal(network.channels[party].receive(0).values, sum_of(0))
        assert network.channels[party].receive(1) == Stopped("browser", 1)
        assert network.channels[party].receive(1) == Stopped("browser", 1), "it stays so however often it is asked"


def test_a_stop_wakes_those_who_wait_for_it(connect):
    network = connect()
    send(network, "store", 0)
    began = time.monotonic()

    def stop():
        time.sleep(0.05)
        network.channels["browser"].send(Stop(0))

    answer, nothing = together(lambda: network.channels["store"].receive(0), stop)
    assert nothing is None
    assert answer == Stopped("browser", 0)
    assert time.monotonic() - began < SOON / 2


@pytest.mark.parametrize("first", [1, 2])
def test_of_two_stops_the_earlier_step_counts_whichever_comes_first(connect, first):
    network = connect(peer_timeout_seconds=0.5)
    for party in PARTIES:
        send(network, party, 0)
    for party in ("store", "guard"):
        send(network, party, 1)
    stops = {1: ("browser", Stop(1)), 2: ("guard", Stop(2))}
    for at in (first, 3 - first):
        party, stop = stops[at]
        network.channels[party].send(stop)
    for party in PARTIES:
        network.channels[party].receive(0)
        assert network.channels[party].receive(1) == Stopped("browser", 1)
