"""An endpoint, a server and three parties as real processes over mutual TLS: killed, stopped, flapping and back."""

import signal
import time

import pytest

from fdml.errors import RequestRefused
from fdml.serving.client import EndpointClient
from tests.end_to_end.cluster import Terminal, until
from tests.end_to_end.standing import SECONDS, standing
from tests.serving.online.collector import attributes, collecting

pytestmark = pytest.mark.slow
DEADLINE = 2.0
ATTRIBUTES = {"fdml.model", "fdml.rows", "fdml.parties_missing", "http.response.status_code"}
"""Of the spans of requests."""
BACK = 5.0
"""Seconds within which a party that is back is used again."""


def port_of(cluster):
    for line in cluster["endpoint"].text.splitlines():
        if "answers callers at http://127.0.0.1:" in line:
            return int(line.rpartition(":")[2])
    return None


class Caller:
    """Asks for one row again and again."""

    def __init__(self, client, row):
        self.client, self._row = client, row

    def ask(self):
        """The status, the score or what is said, and how long it took."""
        began = time.monotonic()
        try:
            found = self.client.predict("one", [self._row])
        except RequestRefused as refused:
            return refused.status, str(refused), time.monotonic() - began
        assert found.answered.tolist() == ["ann,bob,cid"], "a success has all parts"
        return 200, float(found.score[0]), time.monotonic() - began

    def is_answered(self):
        return self.ask()[0] == 200


def test_no_success_hides_a_party_that_is_killed_stopped_or_flapping(tmp_path, monkeypatch):
    with standing(tmp_path / "run", rows=150) as cluster:
        cluster.stand_by()
        cluster.run("one", epochs=2)
        cluster.await_models("one")
        cluster.await_state("one", "finished")
        row = (cluster.home / "ann" / "data.csv").read_text().splitlines()[1].split(",")[0]
        party = cluster.home / "ann" / "party.toml"
        with collecting() as collector:
            monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
            words = ("endpoint", party, "--port", 0, "--deadline", DEADLINE, "--traces", "otlp")
            cluster.start_command(*words, kind=Terminal)
            answer_callers(cluster, row)
            until(lambda: missed(collector) >= {"cid", "bob"}, "the traces of those who were missed", SECONDS)
        assert {each.name for each in collector.spans} == {"request", "look-up", "exchange"}
        assert {name for each in collector.spans for name in attributes(each)} == ATTRIBUTES, "no id, no score"


def missed(collector):
    """The parties that a collector was told to be missing."""
    return {attributes(each).get("fdml.parties_missing") for each in collector.spans}


def answer_callers(cluster, row):
    until(lambda: port_of(cluster) is not None, "the endpoint", SECONDS)
    with EndpointClient(f"http://127.0.0.1:{port_of(cluster)}") as client:
        caller = Caller(client, row)
        until(caller.is_answered, "answers of all", SECONDS)
        disturb(cluster, caller, caller.ask()[1])


def disturb(cluster, caller, score):
    # stopped: every caller is told within the deadline, and after a few at once
    cluster["cid"].send(signal.SIGSTOP)
    for _ in range(5):
        status, said, took = caller.ask()
        assert status == 504
        assert "cid: no answer within 2 s" in said
        assert took < DEADLINE + 2.0
    assert "tried again" in said
    cluster["cid"].send(signal.SIGCONT)
    assert until(caller.is_answered, "cid again", SECONDS) < BACK
    assert caller.ask()[1] == score

    # flapping: right, or refused by name
    for _ in range(4):
        cluster["bob"].send(signal.SIGSTOP)
        status, said, _ = caller.ask()
        assert status == 504
        assert said.startswith("bob: ")
        cluster["bob"].send(signal.SIGCONT)
        until(caller.is_answered, "bob again", SECONDS)
        assert caller.ask()[1] == score

    # killed, and started again
    cluster["bob"].send(signal.SIGKILL)
    cluster["bob"].wait(30)
    until(lambda: caller.ask()[0] == 503, "bob to be missed", SECONDS)
    assert "bob: it is not standing by" in caller.ask()[1]
    assert not caller.client.is_ready("one")
    cluster.up("bob")
    until(caller.is_answered, "bob again", SECONDS)
    assert caller.ask()[1] == score
    assert caller.client.is_ready("one")

    # the server killed, and started again
    cluster["server"].send(signal.SIGKILL)
    cluster["server"].wait(30)
    until(lambda: caller.ask()[0] in (503, 504), "the server to be missed", SECONDS)
    cluster.serve()
    until(caller.is_answered, "all again after the server was killed", SECONDS)
    assert caller.ask()[1] == score
