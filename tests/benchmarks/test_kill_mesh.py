"""Promise 3 without a server: kill -9 of any party, at a host and in a mesh."""

import pytest

from benchmarks.kill_mesh import PARTIES, kill_runs
from benchmarks.topologies import KINDS, sides


@pytest.mark.slow
def test_runs_without_a_server_end_bit_identical_after_a_kill(tmp_path):
    runs, _ = kill_runs(tmp_path, ("mesh", "host"), range(3), lambda _: None)
    assert len(runs) == 6
    assert all(each.identical for each in runs), runs


def test_every_process_is_a_party_unless_there_is_a_server():
    assert [sides(kind, PARTIES) for kind in KINDS] == [("server", *PARTIES), PARTIES, PARTIES]
