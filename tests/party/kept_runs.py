"""A federation for tests: parties with ids that align for one run after the other, and keep what they find."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from fdml.align.consent import consent_to_all
from fdml.align.party_ids import PartyIds
from fdml.align.party_secrets import Secrets
from fdml.party.alignment import RowIds
from fdml.party.checkpoint import SavedState
from fdml.party.disk_store import DiskStore
from fdml.party.driver import SessionDriver
from fdml.party.kept_store import KeptStore
from fdml.party.member import AlignmentKeys, Member
from fdml.party.session import PartySession
from fdml.privacy.noise import NoiseKey
from fdml.protocol.alignment_messages import BlindedIds, Post, RowCounts, Tokens
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import RunSettings, TrainingSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from fdml.transport.in_process import InProcessServer
from tests.party.sessions import Clock, RecordedChannel
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("bank", "shop", "clinic")


@dataclass(frozen=True, eq=False)
class IdData:
    """Rows of which only the ids matter; without ids they are matched by position."""

    ids: list | None
    test: list | None = None
    count: int = 0

    def row_ids(self):
        if self.ids is None:
            rows = np.arange(self.count)
            return RowIds(PartyIds(by_position=RowCounts(self.count)), rows, rows)
        texts = [None if each is None else pa.array(each, pa.large_string()) for each in (self.ids, self.test)]
        rows = [np.arange(len(self.ids)), np.arange(len(self.ids if self.test is None else self.test))]
        return RowIds(PartyIds(*texts), *rows)


@dataclass(eq=False)
class Outcome:
    """What one party has aligned to in a run."""

    data: IdData
    shared: object
    sent: list
    events: list

    @property
    def train(self):
        """The ids to train on, in the run's order."""
        return [self.data.ids[row] for row in self.shared.train]

    @property
    def held_out(self):
        held = self.data.ids if self.data.test is None else self.data.test
        return [held[row] for row in self.shared.held_out]

    @property
    def posted(self):
        """All messages that it posted."""
        return [each.message for each in self.sent if isinstance(each, Post)]

    @property
    def keys_posted(self):
        """How many keys of its own ids it sent."""
        own = [each.message for each in self.sent if isinstance(each, Post) and each.about in ("", self.party)]
        return sum(
            len(each.train) + (0 if each.test is None else len(each.test))
            for each in own
            if isinstance(each, Tokens | BlindedIds)
        )

    @property
    def remarks(self):
        return [event.text for event in self.events if type(event).__name__ == "Remark"]

    party: str = ""


@dataclass(eq=False)
class Federation:
    """Parties and a server with their disks, which outlive every run."""

    align: str = "tokens"
    parties: tuple = PARTIES
    name: str = "credit"
    kept: dict = field(default_factory=dict)
    """By party, the disk of its alignment."""
    runs: dict = field(default_factory=dict)
    """By run and party, or "server", the disk of that run's state."""
    server: MemoryDisk = field(default_factory=MemoryDisk)

    def settings(self, run, seed=7, **changes):
        return RunSettings(
            name=run,
            federation=self.name,
            parties=self.parties,
            label_party=self.parties[0],
            align=self.align,
            training=TrainingSettings(seed=seed),
            evaluation=EvaluationSettings(holdout=0.25),
            **changes,
        )

    def run_disk(self, run, side):
        return self.runs.setdefault((run, side), MemoryDisk())

    def sides(self, run, data, *, decide=consent_to_all, key_file=None, **changes):
        """A driver for each party, and the server that they talk to."""
        settings, clock = self.settings(run, **changes), Clock()
        generations = Generations.of(settings, self.server)
        rows = RunAlignment(settings, self.run_disk(run, "server"), generations)
        alignment = AlignmentPhase(rows, settings.parties, run_hash(settings), clock)
        state = RunState(RunDefinition(settings, run_hash(settings)))
        session = ServerSession(state, alignment, settings, clock)
        server = InProcessServer(session, run_hash(settings), settings.training.peer_timeout_seconds)
        return {
            party: self._side(settings, party, data[party], server, _decision(decide, party), key_file)
            for party in settings.parties
        }

    def _side(self, settings, party, data, server, decide, key_file):
        kept = self.kept.setdefault(party, MemoryDisk())
        disk, store = self.run_disk(settings.name, party), KeptStore(kept)
        home = PartyStore(disk, run_hash=run_hash(settings), data="files", kept=store)
        member = Member(
            run=settings,
            name=party,
            data=data,
            noise=NoiseKey(bytes(32)),
            shared=home.shared_rows(),
            alignment=lambda: AlignmentKeys(
                Secrets.load_or_make(kept, settings, party, None),
                decide,
                group_key_file=key_file,
                kept=store.load(),
                offered=home.offered(),
            ),
            disk=disk,
        )
        session, events = PartySession(member, SavedState(), Clock()), []
        channel = RecordedChannel(server.channel(party))
        return SessionDriver(session.align(), session, channel, home, events.append), channel, events

    def align_run(self, run, data, **options):
        """All parties align for a run, in turns."""
        sides = self.sides(run, data, **options)
        drivers = [driver for driver, _, _ in sides.values()]
        while left := [driver for driver in drivers if not driver.has_ended]:
            assert any(driver.is_ready for driver in left), "all parties wait for each other"
            for driver in left:
                driver.advance()
        return {
            party: Outcome(data[party], driver.result, channel.sent, events, party)
            for party, (driver, channel, events) in sides.items()
        }


def _decision(decide, party):
    """The same for all parties, or by party."""
    return decide.get(party, consent_to_all) if isinstance(decide, dict) else decide


class PartyStore(DiskStore):
    """A party's store; nothing is trained here, so nothing else is written."""

    def write_statement(self, statement):
        raise NotImplementedError

    def write_bundle(self, bundle):
        raise NotImplementedError


def people(*ranges):
    """Ids by number."""
    return [f"person {number}" for each in ranges for number in each]


def data_of(ids, tests=None):
    return {party: IdData(list(each), (tests or {}).get(party)) for party, each in ids.items()}
