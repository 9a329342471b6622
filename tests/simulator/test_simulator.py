import os
import subprocess
import sys
from time import process_time

import pytest

from benchmarks.protocol import run
from benchmarks.registry import run_benchmark
from fdml.errors import FdmlError, InvariantBroken
from fdml.party.checkpoint import CheckpointStore
from fdml.party.delivery import Delivery
from fdml.party.loop import Worker
from fdml.party.outbox import Outbox
from fdml.server.clocks import Clocks
from fdml.server.coordinator import Coordinator
from fdml.storage.journal import Journal
from simulator import run as protocol
from simulator.nodes import Front
from simulator.run import run_seed


@pytest.mark.slow
def test_a_thousand_seeds_break_no_promise():
    began = process_time()
    report = run_benchmark("protocol", str, first=0, seeds=1000)
    assert process_time() - began < 120.0
    totals = {row["contender"]: row.get("total") for row in report.results}
    assert totals["server crashes"] > 500
    assert totals["party crashes"] > 500
    assert totals["broken lines"] > 300
    assert totals["late messages of given up lines"] > 100
    assert totals["damaged checkpoints"] > 10
    assert report.results[0]["median"] == 1000


def test_a_seed_goes_the_same_way_in_every_process():
    code = "from simulator.run import run_seed\nprint(*(run_seed(seed).trace_hash for seed in range(15)))"
    said = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout.split()
        for hash_seed in ("1", "2")
    ]
    assert said[0] == said[1]
    assert len(set(said[0])) == 15


def test_a_run_reports_what_it_went_through():
    told = []
    report = run(told.append, first=500, seeds=2)
    assert report.results[0]["contender"] == "seeds"
    assert {"messages", "steps", "lines"} <= {row["contender"] for row in report.results}
    assert all({"median", "min", "max", "unit"} <= row.keys() for row in report.results)
    assert report.ratios == {}


def test_progress_is_told(monkeypatch):
    monkeypatch.setattr(protocol, "_TELL_EVERY", 1)
    told = []
    run(told.append, first=3, seeds=2)
    assert told == ["1 of 2 seeds, no promise broken", "2 of 2 seeds, no promise broken"]


def test_a_course_that_is_not_drawn_from_the_seed_is_noticed(monkeypatch):
    outcomes = iter([protocol.SeedOutcome("one", {}), protocol.SeedOutcome("another", {})])
    monkeypatch.setattr(protocol, "run_seed", lambda seed: next(outcomes))
    with pytest.raises(InvariantBroken, match="seed 7 went two different ways"):
        run(str, first=7, seeds=1)


def found(seeds):
    """What the first failing seed says."""
    for seed in seeds:
        try:
            run_seed(seed)
        except InvariantBroken as error:
            return str(error)
    pytest.fail(f"{len(seeds)} seeds did not find the bug")


# Bugs put in on purpose. Each must be found, and by the check that is meant for it.


def test_a_gate_that_is_off_by_one_is_found(monkeypatch):
    def may_serve(self, party):
        step = self.served[party] + 1
        return step <= self.pushed[party] and step - self.slowest <= self._staleness + 1

    monkeypatch.setattr(Clocks, "may_serve", may_serve)
    assert "the gate let" in found(range(100))


def test_an_acknowledgement_before_the_log_is_found(monkeypatch):
    def answer_first(act):
        def acted(self):
            self._host.commit = lambda: None
            act(self)
            del self._host.commit
            self._host.commit()

        return acted

    monkeypatch.setattr(Front, "turn", answer_first(Front.turn))
    monkeypatch.setattr(Front, "tell", answer_first(Front.tell))
    assert "the server forgot" in found(range(100))


def test_an_acknowledgement_without_a_log_is_found(monkeypatch):
    monkeypatch.setattr(Journal, "append", lambda self, records: None)
    assert "the server forgot" in found(range(100))


def test_releases_drawn_again_after_a_restart_are_found(monkeypatch):
    restore = Worker.restore

    def forgetful(self, arrays):
        restore(self, arrays)
        self._outbox = Outbox()
        self.pushed = self.step - 1

    monkeypatch.setattr(Worker, "restore", forgetful)
    assert "let go of two different values" in found(range(200))


def test_totals_dropped_before_the_state_was_saved_are_found(monkeypatch):
    after_step = CheckpointStore.after_step

    def hasty(self, worker, diary):
        after_step(self, worker, diary)
        return worker.step - 1

    monkeypatch.setattr(CheckpointStore, "after_step", hasty)
    found(range(200))


def test_one_total_too_many_dropped_by_the_server_is_found(monkeypatch):
    keep = Coordinator._keep

    def greedy(self, sender, party, step):
        keep(self, sender, party, step)
        self._answers[party].pop(step + 1, None)

    monkeypatch.setattr(Coordinator, "_keep", greedy)
    assert "the server forgot the totals" in found(range(200))


def test_an_outbox_left_out_of_the_checkpoint_is_found(monkeypatch):
    monkeypatch.setattr(Outbox, "pending", property(lambda self: {}))
    assert "KeyError" in found(range(200))


def test_an_outbox_not_sent_again_is_found(monkeypatch):
    monkeypatch.setattr(Worker, "first_messages", Worker._push_ahead)
    found(range(300))


def test_messages_not_sent_again_on_a_new_line_are_found(monkeypatch):
    connect = Delivery.connect
    monkeypatch.setattr(Delivery, "connect", lambda self: connect(self)[:1])
    found(range(100))


def test_pushes_sent_again_after_their_total_are_found(monkeypatch):
    monkeypatch.setattr(Delivery, "_was_answered", lambda self, message: False)
    assert "was refused on its own line" in found(range(400, 1600))  # one seed in 250 comes to it


def test_a_torn_end_of_the_log_left_in_place_is_found(monkeypatch):
    monkeypatch.setattr("simulator.world.VirtualDisk.truncate", lambda self, name, size: None)
    found(range(300))


def test_held_out_predictions_left_out_of_the_checkpoint_are_found(monkeypatch):
    monkeypatch.setattr(Delivery, "unacknowledged", property(lambda self: []))
    found(range(300))


def test_a_wrong_sum_is_found(monkeypatch):
    make = Coordinator._total

    def wrong(self, step):
        total = make(self, step)
        total.values[0] += step == 3
        return total

    monkeypatch.setattr(Coordinator, "_total", wrong)
    assert "is not its parts' sum" in found(range(100))


def test_a_failure_shows_its_course_and_how_to_see_it_again(monkeypatch):
    monkeypatch.setattr(Outbox, "pending", property(lambda self: {}))
    said = found(range(200)).splitlines()
    seed = said[-2].partition(":")[0].removeprefix("seed ")
    assert said[-1] == f"to see it again: python -m benchmarks protocol --first {seed} --seeds 1"
    assert any("dies" in line for line in said)
    with pytest.raises(FdmlError, match=f"seed {seed}: "):
        run(str, first=int(seed), seeds=1)
