"""An earlier run of a scenario's parties, whose alignment they have kept: some rows have come since, and some gone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count

from fdml.align.kept import KeptAlignment
from fdml.errors import InvariantBroken
from fdml.experiments.in_memory import NothingStored
from fdml.party.checkpoint import SavedState
from fdml.party.driver import SessionDriver
from fdml.party.kept_store import KeptStore
from fdml.party.session import PartySession
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings.evaluation import EvaluationSettings
from fdml.storage.memory import MemoryDisk
from fdml.transport.in_process import InProcessServer
from simulator.scenarios import Scenario

_SHARE = 0.6
"""Of the shared rows that were there before."""


@dataclass(frozen=True)
class EarlierRun:
    """What is on the disks; empty where there was no earlier run."""

    parties: Mapping[str, Mapping[str, bytes]]
    server: Mapping[str, bytes]

    def kept(self, party: str) -> KeptAlignment:
        """What a party keeps."""
        return KeptStore(MemoryDisk(self.parties[party])).load()


@lru_cache(maxsize=1)
def earlier_run(scenario: Scenario) -> EarlierRun:
    """Every second scenario in which rows can be added to an alignment had a run before; none draws anything for it."""
    settings = scenario.settings
    if not scenario.has_ids or settings.pointing_party is not None or settings.training.seed % 2:
        return EarlierRun({party: {} for party in settings.parties}, {})
    before, disks, server_disk = _before(scenario), {party: MemoryDisk() for party in settings.parties}, MemoryDisk()
    server = _server(before, server_disk)
    drivers = []
    for party, disk in disks.items():
        session = PartySession(before.member(party, 1), SavedState(), lambda: 0.0)
        store = _Kept(KeptStore(disk))
        drivers.append(SessionDriver(session.align(), session, server.channel(party), store, lambda _: None))
    while left := [driver for driver in drivers if not driver.has_ended]:
        if not any(driver.is_ready for driver in left):
            raise InvariantBroken("without any fault all parties wait for each other in the earlier run")
        for driver in left:
            driver.advance()
    return EarlierRun({party: disk.files for party, disk in disks.items()}, server_disk.files)


def _before(scenario: Scenario) -> Scenario:
    """The scenario as it was: without some of the shared rows, with a row at each party that it no longer has."""
    shared = round(_SHARE * (scenario.rows + scenario.held_out))
    known = {f"row {number}" for number in range(max(2, shared))}
    ids = {
        party: (*(each for each in every if each in known), f"row that {party} had")
        for party, every in scenario.ids.items()
    }
    update = {"name": "earlier", "evaluation": EvaluationSettings(holdout=0.5)}
    return replace(scenario, settings=scenario.settings.model_copy(update=update), ids=ids)


def _server(scenario: Scenario, disk: MemoryDisk) -> InProcessServer:
    settings, ticks = scenario.settings, count()

    def clock() -> float:
        return float(next(ticks))

    rows = RunAlignment(settings, MemoryDisk(), Generations.of(settings, disk, scenario.piece_rows))
    alignment = AlignmentPhase(rows, settings.parties, scenario.run_hash, clock)
    state = RunState(RunDefinition(settings, scenario.run_hash, piece_rows=scenario.sent_rows))
    session = ServerSession(state, alignment, settings, clock)
    return InProcessServer(session, scenario.run_hash, settings.training.peer_timeout_seconds)


class _Kept(NothingStored):
    """Stores the generation alone."""

    def __init__(self, kept: KeptStore) -> None:
        self.save_generation = kept.save  # type: ignore[method-assign]
