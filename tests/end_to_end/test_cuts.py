"""One party's line is cut, hangs or is slow, between real processes: the others wait or run on to the bound."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from benchmarks.proxy import Proxy
from tests.end_to_end.cluster import Cluster, until

pytestmark = pytest.mark.slow
PARTIES = ("ann", "bob", "cyd")
OTHERS = ("ann", "bob")
FAULTS = ("cut", "stall")
SECONDS = 10.0


@dataclass(frozen=True)
class Seen:
    """What was seen of one fault in cyd's line."""

    ahead: dict[str, int]
    """By how many steps each of the others had been served past cyd's last push, when the fault had lasted long."""
    waits_for: dict[str, list[str]]
    since: dict[str, float]
    cyd_is_there: bool
    moved: bool
    """Whether anyone was served anything in the second half of the fault."""
    resumed: float
    """Seconds from healing until both others were served their next step."""


@dataclass(frozen=True)
class Ended:
    """How a disturbed run went."""

    seen: dict[str, Seen]
    hashes: dict[str, str]
    lines: int
    """Connections that cyd made."""


def disturb(cluster: Cluster, proxy: Proxy, fault: str) -> Seen:
    began = time.monotonic()
    getattr(proxy, fault)()
    time.sleep(SECONDS / 2)
    halfway = cluster.statuses()
    time.sleep(max(0.0, SECONDS - (time.monotonic() - began)))
    late = cluster.statuses()
    proxy.heal()
    resumed = until(
        lambda: all(found.served > late[name].served for name, found in cluster.statuses().items() if name in OTHERS),
        "the others go on",
    )
    return Seen(
        {name: late[name].served - late["cyd"].pushed for name in OTHERS},
        {name: list(late[name].waits_for) for name in OTHERS},
        {name: late[name].waiting_seconds for name in OTHERS},
        late["cyd"].connected,
        any(late[name].served != halfway[name].served for name in PARTIES),
        resumed,
    )


def disturbed_run(home, staleness: int) -> Ended:
    """A run in which cyd's line is first cut, then hangs. A delay on it makes the training last."""
    cluster = Cluster(home, PARTIES, epochs=15, staleness=staleness)
    proxy = Proxy(cluster.port)
    try:
        proxy.delay(0.01)
        cluster.through("cyd", proxy.port)
        cluster.start()
        seen = {}
        for fault in FAULTS:
            cluster.await_step(cluster.statuses()["ann"].served + 30 if seen else 30)
            seen[fault] = disturb(cluster, proxy, fault)
        proxy.delay(0.0)
        cluster.finish()
        return Ended(seen, cluster.model_hashes(), proxy.accepted)
    finally:
        cluster.stop()
        proxy.close()


def calm_run(home) -> dict[str, str]:
    cluster = Cluster(home, PARTIES, epochs=15)
    try:
        cluster.start()
        cluster.finish()
        return cluster.model_hashes()
    finally:
        cluster.stop()


def slow_run(home) -> tuple[int, float]:
    """A run in which one message takes longer than a dead line would be kept; the connections made, and the seconds."""
    cluster = Cluster(home, ("ann", "bob"), rows=20_000, epochs=1, batches_per_block=200)
    proxy = Proxy(cluster.port)
    try:
        proxy.slow(50_000)
        cluster.through("bob", proxy.port)
        cluster.serve()
        until(lambda: cluster.status().run == "first", "the server runs")
        for party in cluster.parties:
            cluster.join(party)
        began = time.monotonic()
        cluster.finish()
        return proxy.accepted, time.monotonic() - began
    finally:
        cluster.stop()
        proxy.close()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """All runs at once, as they mostly wait."""
    home = tmp_path_factory.mktemp("cuts")
    with ThreadPoolExecutor() as pool:
        found = {staleness: pool.submit(disturbed_run, home / f"by-{staleness}", staleness) for staleness in (0, 8)}
        found["slow"] = pool.submit(slow_run, home / "slow")
        found["calm"] = pool.submit(calm_run, home / "calm")
        return found


@pytest.mark.parametrize("fault", FAULTS)
def test_at_staleness_0_the_others_wait_for_the_party_by_name(runs, fault):
    seen = runs[0].result().seen[fault]
    assert seen.ahead == {"ann": 0, "bob": 0}
    assert seen.waits_for == {"ann": ["cyd"], "bob": ["cyd"]}
    assert all(since > SECONDS / 2 for since in seen.since.values()), seen.since
    assert not seen.moved


@pytest.mark.parametrize("fault", FAULTS)
def test_at_staleness_8_the_others_run_on_exactly_to_the_bound(runs, fault):
    seen = runs[8].result().seen[fault]
    assert seen.ahead == {"ann": 8, "bob": 8}
    assert seen.waits_for == {"ann": ["cyd"], "bob": ["cyd"]}
    assert not seen.moved


@pytest.mark.parametrize("staleness", [0, 8])
@pytest.mark.parametrize("fault", FAULTS)
def test_all_go_on_when_the_line_is_healed(runs, staleness, fault, record_property):
    resumed = runs[staleness].result().seen[fault].resumed
    record_property("seconds until the others went on", resumed)
    assert resumed < 3 * SECONDS, "far less than anyone would wait for a line that stays broken"


def test_the_server_knows_that_a_cut_party_is_away(runs):
    assert not runs[0].result().seen["cut"].cyd_is_there
    assert not runs[8].result().seen["cut"].cyd_is_there


def test_at_staleness_0_the_models_are_those_of_the_undisturbed_run_to_the_bit(runs):
    assert runs[0].result().hashes == runs["calm"].result()


def test_a_slow_line_is_not_taken_for_a_dead_one(runs):
    lines, seconds = runs["slow"].result()
    assert seconds > 6, "the labels alone take longer than an unanswered line is kept"
    assert lines == 5, "to join the run, and for the rest: one to ask for the certificate; one to align, one to train"
