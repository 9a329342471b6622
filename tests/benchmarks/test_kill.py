"""Promise 3: kill -9 of any process at any moment, and the run ends as if nothing had happened."""

from __future__ import annotations

import pytest

from benchmarks.kill import kill_runs


def silent(_):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_synchronous_runs_end_bit_identical_after_a_kill(tmp_path, half):
    runs, _, _ = kill_runs(tmp_path, range(10 * half, 10 * half + 10), 0, silent)
    assert len(runs) == 10
    assert all(each.identical for each in runs), runs
    assert all(each.gate_kept for each in runs)


@pytest.mark.slow
def test_asynchronous_runs_finish_after_a_kill_and_keep_the_gate(tmp_path):
    runs, _, calm = kill_runs(tmp_path, range(100, 105), 4, silent)
    assert all(each.gate_kept for each in runs)
    assert all(abs(each.metric - calm) <= 0.005 for each in runs)
