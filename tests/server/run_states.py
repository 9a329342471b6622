"""Whole runs at a server's state, message by message, for tests."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from fdml.protocol.messages import (
    SEALED_METRICS_BYTES,
    Checkpointed,
    Finished,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    Release,
    SealedMetrics,
    Total,
)
from fdml.protocol.wire import decode_from_party, encode_from_party, encode_from_server
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import RunSettings, TrainingSettings
from tests.protocol.codes import LARGEST_CODE
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("store", "browser", "guard")
ROWS, HELD_OUT, EPOCHS = 11, 3, 3
BLOCKS = 3
STEPS = BLOCKS * EPOCHS
RUN_HASH = bytes(range(32))
ALIGNMENT = bytes(range(32, 64))


def definition_of(staleness=0, task="binary"):
    """Blocks of two batches of two rows; the last block is short."""
    training = TrainingSettings(epochs=EPOCHS, batch_size=2, batches_per_block=2, staleness=staleness)
    settings = RunSettings(parties=PARTIES, label_party="store", task=task, training=training)
    return RunDefinition(settings, RUN_HASH)


def new_state(disk=None, *, staleness=0, task="binary", **options):
    return RunState.open(definition_of(staleness, task), MemoryDisk() if disk is None else disk, **options)


def hello(incarnation=1, done=-1, **other):
    return replace(Hello(RUN_HASH, ALIGNMENT, ROWS, HELD_OUT, incarnation, done), **other)


def labels(classes=2, *, task="binary", weighted=False, **other):
    size = Labels.sealed_size(task, classes, ROWS + HELD_OUT, weighted=weighted)
    return replace(Labels(classes, bytes(at % 251 for at in range(size))), **other)


def codes(size, *key):
    """Values that no other message has, large enough that an overflow or a rounding would show."""
    return np.random.default_rng(list(key)).integers(-LARGEST_CODE, LARGEST_CODE, size, endpoint=True)


def push(state, party, step):
    """What a party pushes at a step."""
    return Push(step, Release(codes(state.coordinator.schedule.visit(step).size, PARTIES.index(party), step)))


def held_out(party, epoch):
    return HeldOutPredictions(epoch, Release(codes(HELD_OUT, PARTIES.index(party), epoch, 99)))


def metrics(epoch):
    return SealedMetrics(epoch, bytes([epoch]) * SEALED_METRICS_BYTES)


def deliver(state, sender, message):
    """Bring a message to the server as it would come off the wire; gives the answers as bytes."""
    replies = state.take(sender, decode_from_party(encode_from_party(message)))
    state.commit()
    return [(reply.to, encode_from_server(reply.message)) for reply in replies]


def play(state, script):
    """Bring all messages of a script; gives for each its answers."""
    return [deliver(state, sender, message) for sender, message in script]


class Parties:
    """Parties that send what the loop sends, in an order drawn from a seed."""

    def __init__(self, staleness, seed, lookahead, checkpoints):
        self._random = random.Random(seed)
        self._state = new_state(staleness=staleness)
        self._lookahead = lookahead
        self._checkpoints = checkpoints
        self._script = []
        self._received = dict.fromkeys(PARTIES, 0)
        self._waiting = {party: [] for party in PARTIES}

    def script(self):
        """All messages of a run from the first hello to the end."""
        for party in self._random.sample(PARTIES, len(PARTIES)):
            self._deliver(party, hello())
        self._deliver("store", labels())
        for party in PARTIES:
            for step in range(1 + self._lookahead):
                self._waiting[party].append(push(self._state, party, step))
        while ready := [party for party in PARTIES if self._waiting[party]]:
            party = self._random.choice(ready)
            self._deliver(party, self._waiting[party].pop(0))
        return self._script

    def _deliver(self, party, message):
        self._script.append((party, message))
        for reply in self._state.take(party, message):
            match reply.message:
                case Total(step):
                    self._received[reply.to] += 1
                    self._waiting[reply.to] += self._after(reply.to, step)
                case HeldOutTotal(epoch):
                    self._waiting[reply.to].append(metrics(epoch))

    def _after(self, party, step):
        """What a party sends when it has learned from a total."""
        ahead = step + 1 + self._lookahead
        if ahead < STEPS:
            yield push(self._state, party, ahead)
        if (step + 1) % BLOCKS == 0:
            yield held_out(party, (step + 1) // BLOCKS)
        if self._checkpoints and step >= 2:
            yield Checkpointed(step - 2)
        if step + 1 == STEPS:
            yield Finished(bytes([PARTIES.index(party)]) * 32)


def script_of(staleness=0, seed=0, lookahead=1, checkpoints=False):
    """All messages of a run, in an order in which they can come."""
    return Parties(staleness, seed, lookahead, checkpoints).script()
