"""The live page beside a run, in one command: it is there, has metrics, and ends with the run, however that ends."""

import re
import socket
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.end_to_end.cluster import Terminal, running, until

pytestmark = pytest.mark.slow


def page_of(process):
    """The address that a command has said."""
    until(lambda: "page: http" in process.text, "the page", 120.0)
    return re.search(r"page: (\S+)", process.text)[1]


def is_there(address):
    port = int(address.rstrip("/").rpartition(":")[2])
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def families(address):
    with urllib.request.urlopen(f"{address}metrics", timeout=20) as answer:
        return {each.name: each for each in text_string_to_metric_families(answer.read().decode())}


def test_a_server_and_a_party_have_their_pages_and_metrics_and_end_with_them(tmp_path):
    with running(tmp_path / "run", epochs=20000) as cluster:
        cluster.serve("--web-listen", "127.0.0.1:0", kind=Terminal)
        server_page = page_of(cluster["server"])
        cluster.join("ann", "--web-listen", server_page[len("http://") : -1], kind=Terminal)
        until(lambda: "no page: cannot listen" in cluster["ann"].text, "word of the port that is taken", 120.0)
        cluster.join("bob")
        until(lambda: "fdml_party_steps" in families(server_page), "metrics of the parties", 120.0)
        until(lambda: families(server_page)["fdml_run_steps_done"].samples[0].value > 0, "steps", 120.0)
        assert cluster["ann"].code is None, "its run goes on without a page"
        cluster["server"].kill()
        until(lambda: not is_there(server_page), "the end of the page", 60.0)
