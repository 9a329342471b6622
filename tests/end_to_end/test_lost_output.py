"""Real processes whose output goes nowhere, or that were asleep: the run goes on."""

import os
import signal
import sys
import time

import pytest

from fdml.cli.app import main
from tests.end_to_end import cluster as clusters
from tests.end_to_end.cluster import RUN, Started, running, until

pytestmark = pytest.mark.slow


class Silent(Started):
    """A command of which nothing can be read."""

    target = None

    def __init__(self, log, *words):
        self._log = log
        self._process = clusters._FORK.Process(target=self.target, args=([str(word) for word in words],), daemon=True)
        self._process.start()

    @property
    def text(self):
        return ""


def _to(handle, words):
    for output in (1, 2):
        os.dup2(handle, output)
    sys.argv = ["fdml", *words]
    main()


def to_a_full_disk(words):
    _to(os.open("/dev/full", os.O_WRONLY), words)


def to_a_broken_pipe(words):
    reading, writing = os.pipe()
    os.close(reading)
    _to(writing, words)


def to_nowhere(words):
    os.close(1)
    os.close(2)
    sys.argv = ["fdml", *words]
    main()


class OnFullDisk(Silent):
    target = staticmethod(to_a_full_disk)


class OnBrokenPipe(Silent):
    target = staticmethod(to_a_broken_pipe)


class OnClosedOutput(Silent):
    target = staticmethod(to_nowhere)


@pytest.mark.parametrize(
    "kinds",
    [(OnBrokenPipe, OnFullDisk, OnClosedOutput), (OnFullDisk, OnClosedOutput, OnBrokenPipe)],
    ids=["server on a broken pipe", "server on a full disk"],
)
def test_a_run_whose_output_goes_nowhere_ends_well(tmp_path, kinds):
    """Chaos 6: the process ended with exit code 1 and said nothing."""
    with running(tmp_path / "run") as cluster:
        cluster.serve(kind=kinds[0])
        for party, kind in zip(cluster.parties, kinds[1:], strict=True):
            cluster.join(party, kind=kind)
        cluster.finish()
        for party in cluster.parties:
            assert (tmp_path / "run" / party / RUN / "model" / "card.json").is_file()


def test_a_server_that_slept_longer_than_ten_time_outs_goes_on(tmp_path):
    """Chaos 5: it took its own sleep for the parties' silence and ended with exit code 1."""
    with running(tmp_path / "run", epochs=100_000, peer_timeout_seconds=0.4) as cluster:
        cluster.start()
        until(lambda: cluster.status().steps > 0, "the run is under way")
        for party in cluster.parties:
            cluster[party].kill()
        server = cluster["server"]
        server.send(signal.SIGSTOP)
        time.sleep(6.0)
        server.send(signal.SIGCONT)
        time.sleep(1.2)  # it looks every second
        assert server.code is None, server.text
        server.expect(1, "no message from any party")
