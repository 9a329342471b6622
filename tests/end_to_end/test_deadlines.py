"""In a run under way nobody waits for ever: a wait that takes longer than the run's peer_timeout ends with exit code 1
and a name. Before that a party waits as long as it takes, or as --wait says."""

import contextlib
import re
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.end_to_end.cluster import Cluster, until

pytestmark = pytest.mark.slow
PEER_TIMEOUT = 8.0
LATE = 60.0
"""Seconds past the peer_timeout in which a process must have ended, also on a machine that has much else to do."""


@contextlib.contextmanager
def waiting(home, parties=("ann", "bob", "cyd"), **training):
    cluster = Cluster(home, parties, **{"peer_timeout_seconds": PEER_TIMEOUT, **training})
    try:
        yield cluster
    finally:
        for member in cluster.members.values():
            with contextlib.suppress(ProcessLookupError):
                member.send(signal.SIGCONT)
        cluster.stop()


def gave_up(cluster, *names):
    """What these parties said as they ended with exit code 1."""
    return {name: cluster[name].expect(1, seconds=PEER_TIMEOUT + LATE) for name in names}


def one_never_joins(home):
    with waiting(home) as cluster:
        cluster.serve()
        cluster.join("ann", "--wait", PEER_TIMEOUT)
        cluster.join("bob", "--wait", PEER_TIMEOUT)
        until(lambda: cluster.statuses()["bob"].waiting_seconds > 1, "bob waits")
        standing = cluster.statuses()
        return gave_up(cluster, "ann", "bob"), {name: list(found.waits_for) for name, found in standing.items()}


def the_label_party_never_joins(home):
    with waiting(home) as cluster:
        cluster.serve()
        cluster.join("bob", "--wait", PEER_TIMEOUT)
        until(lambda: cluster.statuses()["bob"].waiting_seconds > 1, "bob waits")
        standing = cluster.statuses()
        said = gave_up(cluster, "bob")
        until(lambda: cluster.statuses()["bob"].gone_seconds > 0, "bob is gone")
        states = {name: found.state for name, found in cluster.statuses().items()}
        return said, {name: list(found.waits_for) for name, found in standing.items()}, states


def no_server(home):
    with waiting(home) as cluster:
        cluster.join("ann", "--wait", PEER_TIMEOUT + 4)
        cluster.join("bob", "--wait", PEER_TIMEOUT + 4)
        return gave_up(cluster, "ann", "bob"), f"127.0.0.1:{cluster.port}"


def one_is_stopped(home, who):
    """Everyone trains, then one process is stopped as by Ctrl-Z; later it goes on and finds itself alone."""
    with waiting(home, epochs=2000) as cluster:
        cluster.start()
        cluster.await_step(20)
        cluster[who].send(signal.SIGSTOP)
        others = [name for name in cluster.parties if name != who]
        said = gave_up(cluster, *others)
        cluster[who].send(signal.SIGCONT)
        if who != "server":
            said |= gave_up(cluster, who)
        return said, f"127.0.0.1:{cluster.port}"


def the_label_party_waits_for_the_end(home):
    """At a high staleness the label party is done long before bob, who is stopped."""
    with waiting(home, ("ann", "bob"), staleness=1000, epochs=20, lookahead=0) as cluster:
        cluster.start()
        cluster.await_step(1, "bob")
        cluster["bob"].send(signal.SIGSTOP)
        return gave_up(cluster, "ann"), cluster.statuses()["bob"].served


def all_go(home):
    """Both parties are killed as soon as the run is under way."""
    with waiting(home, ("ann", "bob"), peer_timeout_seconds=0.3, epochs=2000) as cluster:
        cluster.start()
        until(lambda: cluster.status().steps > 0, "the labels are known")
        for party in cluster.parties:
            cluster[party].kill()
        return cluster["server"].expect(1, seconds=LATE)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All at once, as they mostly wait."""
    home = tmp_path_factory.mktemp("deadlines")
    with ThreadPoolExecutor() as pool:
        found = {
            work.__name__: pool.submit(work, home / work.__name__)
            for work in (
                one_never_joins,
                the_label_party_never_joins,
                no_server,
                the_label_party_waits_for_the_end,
                all_go,
            )
        }
        for who in ("bob", "server"):
            found[f"{who} is stopped"] = pool.submit(one_is_stopped, home / who, who)
        return found


def test_a_party_that_never_joins_is_named_by_the_others(runs):
    said, waits_for = runs["one_never_joins"].result()
    assert waits_for == {"ann": ["cyd"], "bob": ["cyd"], "cyd": []}
    for party in ("ann", "bob"):
        assert f"party '{party}' waited 8 s to align its rows with 'cyd' (cyd has not joined)" in said[party]


def test_a_label_party_that_never_joins_is_named_too(runs):
    said, waits_for, states = runs["the_label_party_never_joins"].result()
    assert waits_for == {"ann": [], "bob": ["ann", "cyd"], "cyd": []}
    assert "waited 8 s to align its rows with 'ann', 'cyd' (ann has not joined, cyd has not joined)" in said["bob"]
    assert states["ann"] == states["cyd"] == "not here yet"
    assert states["bob"].startswith("gone for ")


def test_without_a_server_the_address_is_named(runs):
    said, address = runs["no_server"].result()
    for party in ("ann", "bob"):
        assert f"{party}: waiting for 10 s so far: no server at {address} yet: connection refused" in said[party]
        assert re.search(rf"no server at {re.escape(address)} for 1[2-9]\.?\d* s", said[party])
        assert "fdml serve" in said[party]


def test_a_stopped_party_is_named_by_the_others_and_names_them_when_it_goes_on(runs):
    said, _ = runs["bob is stopped"].result()
    for party in ("ann", "cyd"):
        assert "for 'bob'" in said[party]
        assert "it goes on where it stopped" in said[party]
    assert "'ann'" in said["bob"]


def test_a_stopped_server_is_named_by_its_address(runs):
    said, address = runs["server is stopped"].result()
    for party in ("ann", "bob", "cyd"):
        assert address in said[party]


def test_a_label_party_that_waits_to_score_the_end_names_who_is_still_training(runs):
    said, bob = runs["the_label_party_waits_for_the_end"].result()
    assert bob < 319
    assert "to predict the held-out rows of epoch" in said["ann"]
    assert "for 'bob'" in said["ann"]


def test_a_server_whose_parties_are_all_gone_ends_and_names_them(runs):
    said = runs["all_go"].result()
    assert "no message from any party for" in said
    assert "ann, bob have not finished; start the server again" in said
