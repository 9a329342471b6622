"""Three parties without a server, each with a session of its own, and lines that deliver when a test says so."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

import numpy as np

from fdml.privacy.pairwise_masks import PAIRWISE_ID
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import Checkpointed, Finished, Hello, Labels, Push, Release, Total
from fdml.protocol.wire import encode_from_party
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.replica import Replica
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession, Stream
from fdml.settings import RunSettings, run_hash
from tests.monitor.sample_events import Clock
from tests.server.sessions import answers, closed
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("ann", "bob", "cat")
ROWS, BLOCK, STEPS = 12, 4, 6
SETTINGS = RunSettings(
    server="none",
    addresses={name: f"127.0.0.1:{7443 + number}" for number, name in enumerate(PARTIES)},
    parties=PARTIES,
    label_party="ann",
    align="ecdh",
    training={"epochs": 2, "batch_size": 2, "batches_per_block": 2, "lookahead": 0},
    privacy={"server": "blind"},
)


class Member:
    """One party's session, and a line to it from every party."""

    def __init__(self, name, disk=None):
        own, clock = run_hash(SETTINGS), Clock()
        self.name = name
        definition = RunDefinition(SETTINGS, own)
        state = RunState(definition) if disk is None else RunState.open(definition, disk)
        alignment = AlignmentPhase(BulletinStore(PARTIES, "ecdh", MemoryDisk()), PARTIES, own, clock)
        self.session = ServerSession(state, alignment, SETTINGS, clock, Replica(name, PARTIES, 0))
        self.streams = {party: Stream(party) for party in PARTIES}
        self.lines = {party: deque() for party in PARTIES}
        self.effects = []

    def deliver(self, party):
        """Let the next message of a party come; gives the effects."""
        self.session.receive(self.streams[party], encode_from_party(self.lines[party].popleft()))
        effects = self.session.process()
        self.effects += effects
        return effects

    def deliver_all(self):
        while any(self.lines.values()):
            for party in PARTIES:
                if self.lines[party]:
                    self.deliver(party)

    def may_deliver(self, party):
        """Whether a party can have sent its next message by now: this session's own one is served by it."""
        if not self.lines[party]:
            return False
        message, served = self.lines[party][0], len(self.totals) - 1
        if party != self.name or isinstance(message, Hello | Labels):
            return True
        if self.session.state.coordinator is None:
            return False
        return (
            served
            >= {Push: lambda: message.step - 1, Checkpointed: lambda: message.step}.get(
                type(message), lambda: STEPS - 1
            )()
        )

    @property
    def totals(self):
        """What its own party was served."""
        return answers(self.effects, self.streams[self.name], Total)

    def to_others(self):
        """What other parties were answered."""
        return [each for party in PARTIES if party != self.name for each in answers(self.effects, self.streams[party])]

    @property
    def refusals(self):
        return [str(refused) for _, refused in closed(self.effects) if refused is not None]


def hello(**other):
    return replace(Hello(run_hash(SETTINGS), b"d" * 32, ROWS, 0, 1), **other)


def part(party, step, more=0.0):
    values = np.full(BLOCK, PARTIES.index(party) + 0.25 * step + more)
    return Release(encode(values), PAIRWISE_ID)


def everything(party):
    """All that a party sends, in its order."""
    labels = [Labels(2, bytes(Labels.sealed_size("binary", 2, ROWS)))] if party == "ann" else []
    training = [message for step in range(STEPS) for message in (Push(step, part(party, step)), Checkpointed(step))]
    return [hello(), *labels, *training, Finished(party.encode().ljust(32))]
