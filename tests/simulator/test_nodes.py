"""The processes of a run in virtual time: they end, die, come back, and use nothing of an older line."""

from random import Random

import pytest

from fdml.protocol.messages import Waiting
from fdml.protocol.waited_for import WaitedFor
from fdml.storage.arrays import hash_arrays
from simulator.channel import Connection, LineEnd, Simulation, short_name
from simulator.clock import EventQueue
from simulator.invariants import InvariantChecker
from simulator.party_node import PartyNode
from simulator.reference import fault_free_run
from simulator.scenarios import Scenario
from simulator.server_node import ServerNode


def in_step():
    """The first scenario that must end as a run without faults, and has a few steps."""
    for seed in range(1000):
        scenario = Scenario.draw(Random(seed))
        if scenario.settings.training.staleness == 0 and scenario.schedule.steps > 4 and not scenario.allowed:
            return scenario
    raise AssertionError("no seed draws such a scenario")


SCENARIO = in_step()


class Run:
    """A simulation whose faults a test chooses."""

    def __init__(self, seed=1):
        self.queue = EventQueue(seed)
        self.simulation = Simulation(self.queue, SCENARIO, InvariantChecker(SCENARIO))
        self.server = ServerNode(self.simulation)
        self.parties = [PartyNode(self.simulation, self.server, name) for name in SCENARIO.settings.parties]
        self.server.start()
        for party in self.parties:
            party.start()

    def until(self, reached):
        while not reached():
            assert self.queue.next(), "nothing moves any more"

    def finish(self):
        """To the end; the models must be those of a run without faults."""
        self.until(lambda: self.server.state is not None and all(party.result is not None for party in self.parties))
        models = {party.name: party.result for party in self.parties}
        self.simulation.checker.ended(self.server.state, models)
        assert models == {name: hash_arrays(each) for name, each in fault_free_run(SCENARIO).models.items()}

    def steps(self):
        return self.simulation.counts["steps"]


def test_a_run_that_is_left_alone_ends_as_the_reference_does():
    run = Run()
    run.finish()
    assert run.simulation.counts["party crashes"] == 0
    assert run.steps() == fault_free_run(SCENARIO).end * len(run.parties)


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_party_that_dies_is_started_again_and_goes_on(steps):
    run = Run()
    run.until(lambda: run.steps() >= steps)
    victim = run.parties[0]
    victim.kill()
    assert not victim.is_alive
    assert victim.connection is None
    run.finish()
    assert run.simulation.counts["party crashes"] == 1


@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_server_that_dies_is_started_again_from_its_disk(steps):
    run = Run()
    run.until(lambda: run.steps() >= steps)
    run.server.kill()
    assert run.server.state is None
    run.finish()
    assert run.server.starts == 2


def test_a_disk_that_fails_in_a_write_ends_the_process_it_belongs_to():
    run = Run()
    run.until(lambda: run.steps() >= 2)
    run.server.disk.arm(0)
    run.parties[0].virtual_disk.arm(0)
    run.finish()
    assert run.simulation.counts["server crashes"] == 1
    assert run.simulation.counts["party crashes"] == 1


def test_a_broken_line_is_made_anew():
    run = Run()
    run.until(lambda: run.steps() >= 2)
    party = run.parties[0]
    before = party.connection
    before.disconnect()
    run.until(lambda: party.connection not in (None, before))
    run.finish()


def test_what_an_older_line_brings_is_not_used():
    run = Run()
    run.until(lambda: run.steps() >= 2)
    party = run.parties[0]
    older = Connection(run.queue, party, run.server)
    party.receive(older, LineEnd())
    assert party.connection is not None, "the end of another line is not the end of this one"
    run.finish()


def test_a_message_in_the_trace_has_its_type_and_number():
    assert short_name(Waiting((WaitedFor("a"),))).strip() == "Waiting"
    run = Run()
    run.finish()
    assert any("Push 3" in line for line in run.queue.trace)
    assert any("server to" in line for line in run.queue.trace)


def test_alignment_is_kept_over_a_crash_and_not_made_again():
    run = Run()
    run.until(lambda: run.steps() >= 1)
    party = run.parties[0]
    stored = party.virtual_disk.read("alignment")
    assert stored is not None
    party.kill()
    run.finish()
    assert party.virtual_disk.read("alignment") == stored
