"""A server's session without a network, for tests: streams of parties, and what comes back on each."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import HeldOutPredictions, Hello, Labels, Push, Release
from fdml.protocol.wire import encode_from_party
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import Answer, Close, Commit, Emit, ServerSession, Stream
from fdml.settings import PrivacySettings, RunSettings, TrainingSettings, run_hash
from tests.monitor.sample_events import Clock
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("ann", "bob")
ROWS, HELD_OUT, BLOCK, EPOCHS = 12, 2, 4, 3
STEPS = EPOCHS * ROWS // BLOCK
DIGEST = b"d" * 32


def settings_of(*, private=False, **training):
    """A run of ann, who has the labels, and bob: blocks of four rows, three epochs."""
    chosen = {"epochs": EPOCHS, "batch_size": 2, "batches_per_block": 2, "peer_timeout_seconds": 30.0, **training}
    return RunSettings(
        name="shop",
        federation="shop",
        parties=PARTIES,
        label_party="ann",
        training=TrainingSettings(**chosen),
        privacy=PrivacySettings(labels="private" if private else "shared"),
    )


def session_of(settings, clock, *, disk=None, digest=DIGEST):
    """A session as a server that is started has it; rows with this digest are aligned already."""
    own = run_hash(settings)
    definition = RunDefinition(settings, own)
    state = RunState(definition) if disk is None else RunState.open(definition, disk)
    bulletin = BulletinStore(settings.parties, settings.align, MemoryDisk())
    return ServerSession(state, AlignmentPhase(bulletin, settings.parties, own, clock, digest=digest), settings, clock)


class Server:
    """A session whose effects are carried out at once and kept, in order."""

    def __init__(self, *, disk=None, digest=DIGEST, **options):
        self.settings = settings_of(**options)
        self.clock = Clock()
        self.session = session_of(self.settings, self.clock, disk=disk, digest=digest)
        self.effects = []

    def hello(self, incarnation=1, done=-1, **other):
        return hello(self.settings, incarnation=incarnation, done=done, **other)

    def labels(self):
        return labels(private=self.settings.privacy.labels == "private")

    def send(self, stream, *messages):
        """Let messages come on a stream, all at once; gives the effects."""
        for message in messages:
            raw = message if isinstance(message, bytes) else encode_from_party(message)
            self.session.receive(stream, raw)
        return self.carry_out(self.session.process())

    def carry_out(self, effects):
        for effect in effects:
            if isinstance(effect, Commit):
                self.session.state.commit()
        self.effects += effects
        return effects

    def join(self, party, **hello):
        """A new stream on which the party was welcomed."""
        stream = Stream(party)
        self.send(stream, self.hello(**hello))
        return stream

    def training(self):
        """Both parties' streams, after labels."""
        ann, bob = self.join("ann"), self.join("bob")
        self.send(ann, self.labels())
        return ann, bob

    def to_the_end(self, ann, bob, steps=STEPS):
        for step in range(steps):
            self.send(ann, push(step))
            self.send(bob, push(step))


def hello(settings=None, **other):
    """What a party of the run begins with."""
    return replace(Hello(run_hash(settings or settings_of()), DIGEST, ROWS, HELD_OUT, 1), **other)


def labels(*, private=False):
    return Labels(2, b"" if private else bytes(Labels.sealed_size("binary", 2, ROWS + HELD_OUT)))


def push(step, value=0.5, rows=BLOCK, mask_id=0):
    return Push(step, Release(encode(np.full(rows, value * (step + 1))), mask_id))


def held_out(epoch, value=0.25):
    return HeldOutPredictions(epoch, Release(encode(np.full(HELD_OUT, value * epoch))))


def answers(effects, stream, *kinds):
    """The messages to a stream, of some kinds or of all."""
    found = [effect.message for effect in effects if isinstance(effect, Answer) and effect.stream is stream]
    return [message for message in found if isinstance(message, kinds)] if kinds else found


def emitted(effects):
    return [effect.event for effect in effects if isinstance(effect, Emit)]


def closed(effects):
    """Streams that are ended, each with its refusal or None."""
    return [(effect.stream, effect.refused) for effect in effects if isinstance(effect, Close)]
