"""A party that comes back on a new stream while its answers are being made."""

from itertools import count

import numpy as np
import pytest

from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import Ack, Hello, Labels, Push, Release, Total, Welcome
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import Answer, Close, Commit, ServerSession, Stream
from fdml.settings import RunSettings, TrainingSettings, run_hash
from fdml.storage.memory import MemoryDisk

SETTINGS = RunSettings(
    parties=("ann", "bob"),
    label_party="ann",
    task="regression",
    training=TrainingSettings(epochs=4, batch_size=2, batches_per_block=1, lookahead=1, staleness=1),
)
ROWS = 4
DIGEST = bytes(32)


@pytest.fixture
def session():
    ticks = count()
    bulletin = BulletinStore(SETTINGS.parties, SETTINGS.align, MemoryDisk())

    def clock():
        return float(next(ticks))

    alignment = AlignmentPhase(bulletin, SETTINGS.parties, run_hash(SETTINGS), clock, digest=DIGEST)
    return ServerSession(RunState(RunDefinition(SETTINGS, run_hash(SETTINGS))), alignment, SETTINGS, clock)


def hello(done=-1):
    return Hello(run_hash(SETTINGS), DIGEST, ROWS, 0, 1, done)


def push(step):
    return Push(step, Release(encode(np.full(2, 0.5))))


def answers(effects, stream):
    """What a stream is sent, without acknowledgements."""
    sent = [effect.message for effect in effects if isinstance(effect, Answer) and effect.stream is stream]
    return [message for message in sent if not isinstance(message, Ack)]


@pytest.fixture
def streams(session):
    """Ann has pushed two steps; bob has joined and pushed nothing."""
    ann, bob = Stream("ann"), Stream("bob")
    labels = Labels(0, bytes(Labels.sealed_size("regression", 0, ROWS)))
    for message in (hello(), labels, push(0), push(1)):
        session.receive(ann, message)
    session.receive(bob, hello())
    session.process()
    return ann, bob


def test_a_new_stream_brings_its_welcome_before_any_total(session, streams):
    older, bob = streams
    newer = Stream("ann")
    session.receive(bob, push(0))
    session.receive(bob, push(1))
    session.receive(newer, hello())
    effects = session.process()
    sent = answers(effects, newer)
    assert isinstance(sent[0], Welcome)
    assert [message.step for message in sent if isinstance(message, Total)] == [0, 1]
    assert Close(older) in effects


def test_what_was_answered_before_the_new_stream_came_goes_to_the_older_one(session, streams):
    older, bob = streams
    newer = Stream("ann")
    session.receive(bob, push(0))
    session.receive(newer, hello())
    effects = session.process()
    assert [message.step for message in answers(effects, older)] == [1]
    assert [message.step for message in answers(effects, bob)] == [0]


def test_nothing_is_answered_before_it_is_stored(session, streams):
    session.receive(streams[1], push(0))
    effects = session.process()
    assert effects.index(Commit()) < min(at for at, effect in enumerate(effects) if isinstance(effect, Answer))
