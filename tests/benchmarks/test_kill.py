"""Promise 3: kill -9 of any process at any moment, and the run ends as if nothing had happened."""

from __future__ import annotations

import pytest

from benchmarks.kill import kill_trials


def silent(_):
    pass


@pytest.mark.slow
@pytest.mark.parametrize("half", [0, 1])
def test_synchronous_runs_end_bit_identical_after_a_kill(tmp_path, half):
    trials, _, _ = kill_trials(tmp_path, range(10 * half, 10 * half + 10), 0, silent)
    assert len(trials) == 10
    assert all(trial.identical for trial in trials), trials
    assert all(trial.gate_kept for trial in trials)


@pytest.mark.slow
def test_asynchronous_runs_finish_after_a_kill_and_keep_the_gate(tmp_path):
    trials, _, calm = kill_trials(tmp_path, range(100, 105), 4, silent)
    assert all(trial.gate_kept for trial in trials)
    assert all(abs(trial.metric - calm) <= 0.005 for trial in trials)
