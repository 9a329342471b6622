import os
import subprocess
import sys
from collections import Counter
from itertools import count, islice

import pytest

from benchmarks import protocol
from benchmarks.protocol import run
from benchmarks.registry import run_benchmark
from fdml.errors import FdmlError, InvariantBroken
from fdml.party.outbox import Outbox
from simulator.clock import EventQueue
from simulator.run import SeedOutcome, run_seed
from simulator.scenarios import Scenario
from tests.simulator.planted import found


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 1000, 125))  # in parts, so that no worker has them all
def test_a_thousand_seeds_break_no_promise(first):
    report = run_benchmark("protocol", str, first=first, seeds=125)
    totals = {row["contender"]: row.get("total") for row in report.results}
    assert totals["server crashes"] > 70
    assert totals["full disks"] > 40
    assert totals["party crashes"] > 70
    assert totals["broken lines"] > 40
    assert totals["late messages of given up lines"] > 15
    assert totals["damaged checkpoints"] > 4
    assert report.results[0]["median"] == 125


@pytest.mark.slow
def test_rows_that_point_to_others_are_aligned_and_trained_on_through_crashes():
    """Seed 141 found that a party with its pointers was refused while the label party still told the others theirs."""
    keyed = (seed for seed in count(141) if Scenario.draw(EventQueue(seed).random).settings.keys)
    counts = Counter()
    for seed in islice(keyed, 12):
        counts += run_seed(seed).counts
    assert counts["steps"] > 100
    assert min(counts["server crashes"], counts["party crashes"]) > 5


def test_a_party_that_died_after_it_had_stopped_the_run_says_so_again():
    """Seed 1085 found that the label party's stop was lost with its process, and its best epoch was refused."""
    assert run_seed(1085).counts["party crashes"] > 0


@pytest.mark.slow
def test_under_pairwise_masks_every_total_is_exact_through_crashes():
    """The checker opens every total that is served and compares it with the sum of what was pushed."""
    blind = (seed for seed in count() if Scenario.draw(EventQueue(seed).random).settings.has_pairwise_masks)
    counts = Counter()
    for seed in islice(blind, 12):
        counts += run_seed(seed).counts
    assert counts["steps"] > 100
    assert min(counts["server crashes"], counts["party crashes"]) > 5


@pytest.mark.slow
def test_a_seed_goes_the_same_way_in_every_process():
    code = "from simulator.run import run_seed\nprint(*(run_seed(seed).trace_hash for seed in range(15)))"
    printed = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        ).stdout.split()
        for hash_seed in ("1", "2")
    ]
    assert printed[0] == printed[1]
    assert len(set(printed[0])) == 15


def test_a_run_reports_what_it_went_through():
    report = run(str, first=500, seeds=2)
    assert report.results[0]["contender"] == "seeds"
    assert {"messages", "steps", "lines"} <= {row["contender"] for row in report.results}
    assert all({"median", "min", "max", "unit"} <= row.keys() for row in report.results)
    assert report.ratios == {}


def test_progress_is_reported(monkeypatch):
    monkeypatch.setattr(protocol, "_PROGRESS_EVERY", 1)
    lines = []
    run(lines.append, first=3, seeds=2)
    assert lines == ["1 of 2 seeds, no promise broken", "2 of 2 seeds, no promise broken"]


def test_a_run_that_is_not_drawn_from_the_seed_alone_is_found(monkeypatch):
    outcomes = iter([SeedOutcome("one", {}), SeedOutcome("another", {})])
    monkeypatch.setattr(protocol, "run_seed", lambda seed: next(outcomes))
    with pytest.raises(InvariantBroken, match="seed 7 went two different ways"):
        run(str, first=7, seeds=1)


def test_a_failure_shows_what_happened_and_how_to_see_it_again(monkeypatch):
    monkeypatch.setattr(Outbox, "pending", property(lambda self: {}))
    lines = found(range(200)).splitlines()
    seed = lines[-2].partition(":")[0].removeprefix("seed ")
    assert lines[-1] == f"to see it again: python -m benchmarks protocol --first {seed} --seeds 1"
    assert any("dies" in line for line in lines)
    with pytest.raises(FdmlError, match=f"seed {seed}: "):
        run(str, first=int(seed), seeds=1)
