"""The standing server under parties that come and go: nothing is lost, and what it holds does not grow."""

from __future__ import annotations

import pytest

from benchmarks.ports import reserved_port
from benchmarks.standing import disturb


@pytest.mark.slow
def test_runs_survive_parties_that_are_stopped_and_killed(tmp_path):
    with reserved_port() as port:
        found = disturb(tmp_path / "home", port, 3, 2, lambda _: None)
    assert found.finished == 2
    assert found.identical
    assert sum(found.cycles.values()) == 3
    assert len(found.held) == 3
    assert found.held[-1].files <= found.held[1].files + 4
