"""Every golden run ends as it did at the commit that golden.json names: to the bit, on the machine it was made on.

After a change that is meant to change results, make golden.json anew (run_golden.py says how) and say why.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.golden.layout import CURRENT
from tests.golden.run_golden import GOLDEN, Workshop, machine
from tests.golden.runs import COMPARE_RUNS, ESTIMATOR_RUNS, PROCESS_RUNS, RUNS, DemoRun

_KNOWN = json.loads(GOLDEN.read_text(encoding="utf-8"))
_SLOW = {run.name for run in (*PROCESS_RUNS, *COMPARE_RUNS, ESTIMATOR_RUNS[1], DemoRun())}
"""Runs of processes or with kernels that `make quick` has no other use for; tests/end_to_end has its smoke run."""
_ROUNDING = 1e-12
"""Held-out predictions of a comparison are summed in fixed point; golden.json has sums of floats."""
_ELSEWHERE = 1e-3
"""Other processors and libraries round otherwise; figures stay this near."""


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    return Workshop(tmp_path_factory.mktemp("golden"), CURRENT)


@pytest.mark.usefixtures("warm_starts")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of estimators with few epochs
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in _SLOW)) for name in RUNS])
def test_a_run_ends_with_its_golden_results(name: str, workshop: Workshop) -> None:
    found, known = workshop.result(RUNS[name]), _KNOWN["runs"][name]
    same_machine = machine() == _KNOWN["machine"]
    if same_machine:
        assert found.get("hashes") == known.get("hashes")
    _assert_near(found.get("figures", {}), known.get("figures", {}), _ROUNDING if same_machine else _ELSEWHERE)
    _assert_near(found.get("about", {}), known.get("about", {}), known.get("within", 0.0))


def test_every_golden_run_has_results_and_no_result_is_without_a_run() -> None:
    assert set(_KNOWN["runs"]) == set(RUNS)


def test_no_two_runs_of_processes_end_with_the_same_models() -> None:
    """Else a setting that tells them apart would not be heard."""
    ends = [json.dumps(_KNOWN["runs"][run.name]["hashes"]) for run in PROCESS_RUNS if not run.within]
    assert len(set(ends)) == len(ends)


def _assert_near(found: dict[str, Any], known: dict[str, Any], within: float) -> None:
    """Compare figures, or tables of figures; within 0 they are equal."""
    assert set(found) == set(known)
    for name, value in known.items():
        if isinstance(value, dict):
            _assert_near(found[name], value, within)
        else:
            assert found[name] == pytest.approx(value, rel=within, abs=within), name
