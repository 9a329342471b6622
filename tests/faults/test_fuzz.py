"""A hundred thousand mutated messages: none crashes the server, changes its state unseen or makes it grow."""

import math
import random
import struct
from pathlib import Path

import pytest
from google.protobuf.message import DecodeError

from fdml.errors import MessageRefused
from fdml.protocol import wire_pb2 as pb
from fdml.protocol.messages import Checkpointed, Gradient, Labels, Push, Release
from fdml.protocol.schedule import schedule_of
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import PrivacySettings
from tests.protocol.codes import LARGEST_CODE
from tests.server.run_states import PARTIES, ROWS, codes, definition_of, hello, new_state, play, script_of
from tests.storage.memory_disk import MemoryDisk

SCRIPT = script_of(staleness=1, seed=11, checkpoints=True)
JOINED, MIDDLE = 3, len(SCRIPT) // 2
STAGES = {"nobody there": 0, "before the labels": JOINED, "in the middle": MIDDLE, "at the end": len(SCRIPT)}
MUTANTS = 30_000
"""Of each stage: 120,000 in all."""
LOOK_EVERY = 500
MOST_GROWTH = 50 * 2**20
KINDS = {type(message): [] for _, message in SCRIPT}
for _, message in SCRIPT:
    KINDS[type(message)].append(encode_from_party(message))
VALID = [raw for kind in KINDS.values() for raw in kind]
EDGES = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFE, 0xFF)
WORDS = tuple(
    number.to_bytes(8, "little", signed=True)
    for number in (0, 1, -1, LARGEST_CODE, LARGEST_CODE + 1, -LARGEST_CODE - 1, 2**63 - 1, -(2**63))
) + tuple(struct.pack("<d", number) for number in (1.0, 2.0, -1.0, 1e300, math.inf, -math.inf, math.nan))
KEYS = tuple(field << 3 | kind for field in range(1, 9) for kind in (0, 1, 2, 5))


def flip_bits(raw, chance):
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        at = chance.randrange(len(raw))
        raw[at] ^= 1 << chance.randrange(8)
    return raw


def cut_short(raw, chance):
    return raw[: chance.randrange(len(raw))]


def cut_out(raw, chance):
    at = chance.randrange(len(raw))
    del raw[at : at + chance.choice((1, 1, 2, 8, 9))]
    return raw


def insert_bytes(raw, chance):
    at = chance.randrange(len(raw) + 1)
    raw[at:at] = chance.randbytes(chance.choice((1, 1, 2, 8, 33)))
    return raw


def splice(raw, chance):
    """The head of one message, the tail of another."""
    other = chance.choice(VALID)
    return raw[: chance.randrange(len(raw) + 1)] + other[chance.randrange(len(other) + 1) :]


def repeat_a_part(raw, chance):
    first, last = sorted(chance.randrange(len(raw) + 1) for _ in range(2))
    raw[last:last] = raw[first:last] * chance.choice((1, 1, 3))
    return raw


def repeat_whole(raw, chance):
    return raw * chance.choice((2, 2, 5)) if chance.random() < 0.5 else raw + chance.choice(VALID)


def set_an_edge(raw, chance):
    raw[chance.randrange(len(raw))] = chance.choice(EDGES)
    return raw


def swap_a_key(raw, chance):
    """Another kind of message, field or wire type: of the envelope, or of the first field inside."""
    raw[chance.choice((0, min(2, len(raw) - 1)))] = chance.choice(KEYS)
    return raw


def change_a_length(raw, chance):
    """Lengths and numbers stand near the front."""
    at = chance.randrange(min(len(raw), 6))
    raw[at : at + 1] = chance.choice((b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\x80\x80\x00", b"\0", b"\x7f"))
    return raw


def grow(raw, chance):
    """A frame that is whole but far too long."""
    body = (bytes(raw[2:]) * chance.choice((8, 64)))[: 2**20]
    return bytearray([raw[0], 0x80 | len(body) & 0x7F, 0x80 | len(body) >> 7 & 0x7F, len(body) >> 14]) + body


def random_bytes(raw, chance):
    return bytearray(chance.randbytes(chance.choice((0, 1, 2, 3, 10, 40, 300))))


def random_inside(raw, chance):
    """A valid envelope around anything."""
    body = chance.randbytes(chance.randrange(100))
    return bytearray([chance.choice((10, 18, 26, 34, 42, 50, 58)), len(body)]) + body


def change_a_field(raw, chance):
    """A message of perfect form that says something else."""
    envelope = pb.FromParty()
    try:
        envelope.ParseFromString(bytes(raw))
    except DecodeError:
        return raw
    kind = envelope.WhichOneof("content")
    if kind is None:
        return raw
    content = getattr(envelope, kind)
    field = chance.choice(content.DESCRIPTOR.fields)
    if field.message_type is not None:  # the piece of a set
        content, field = getattr(content, field.name), chance.choice(field.message_type.fields)
    value = getattr(content, field.name)
    if isinstance(value, bytes):
        changed = chance.choice((other_bytes, other_codes))(value, chance)
    elif isinstance(value, float):
        changed = chance.choice((0.0, -1.0, 1e308, 5e-324, math.inf, math.nan))
    else:
        largest = 2**32 - 1 if field.cpp_type == field.CPPTYPE_UINT32 else 2**63 - 1
        wanted = chance.choice((0, 1, 2, 3, 4, 9, value + 1, value - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**63))
        changed = min(max(wanted, 0), largest)
    setattr(content, field.name, changed)
    return bytearray(envelope.SerializeToString())


def other_bytes(value, chance):
    return chance.choice((b"", value[8:], value + value, value[:-1], value + b"\0" * 8, chance.randbytes(len(value))))


def other_codes(value, chance):
    """The same number of values, one of them another: at the edge of a range, not a number, or a neighbour's."""
    words = [value[at : at + 8] for at in range(0, len(value), 8)]
    if words:
        words[chance.randrange(len(words))] = chance.choice((*WORDS, chance.choice(words)))
    return b"".join(words)


MUTATIONS = (
    flip_bits,
    cut_short,
    cut_out,
    insert_bytes,
    splice,
    repeat_a_part,
    repeat_whole,
    set_an_edge,
    swap_a_key,
    change_a_length,
    grow,
    random_bytes,
    random_inside,
)


def mutant(chance):
    """A valid message, each kind as often as any other, with one to three things done to it."""
    raw = bytearray(chance.choice(chance.choice(list(KINDS.values()))))
    if chance.random() < 0.4:
        raw = change_a_field(raw, chance)
        return bytes(change_a_field(raw, chance) if chance.random() < 0.3 else raw)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        raw = chance.choice(MUTATIONS)(raw, chance) if raw else bytearray(chance.choice(VALID))
    return bytes(raw)


def resident():
    """Bytes of memory this process holds now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


class Target:
    """A server's state at some stage of a run, put back whenever a mutant happens to be a message that is in order."""

    def __init__(self, stop):
        self._disk = MemoryDisk()
        state = new_state(self._disk, staleness=1)
        self.answers = play(state, SCRIPT[:stop])
        self.put_back()
        self.clean = self.state.fingerprint()

    def put_back(self):
        self.state = new_state(self._disk.copy(), staleness=1)

    def take(self, sender, raw):
        """Whether the message was taken; any error but a refusal ends the test."""
        try:
            self.state.take(sender, decode_from_party(raw))
        except MessageRefused:
            return False
        self.state.commit()
        self.put_back()
        return True


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads its own memory from /proc")
@pytest.mark.parametrize("stage", STAGES)
def test_mutated_messages_are_refused_or_harmless(stage):
    stop = STAGES[stage]
    target, chance = Target(stop), random.Random(f"fuzz {stage}")
    senders = [*PARTIES, *PARTIES, "spy"]
    taken, first, most = 0, 0, 0
    for number in range(MUTANTS):
        taken += target.take(chance.choice(senders), mutant(chance))
        if number % LOOK_EVERY == LOOK_EVERY - 1:
            assert target.state.fingerprint() == target.clean
            most = max(most, resident())
            first = first or most
    assert most - first < MOST_GROWTH
    assert taken < MUTANTS / 4, "too many mutants are messages in order: they show little"

    whole = new_state(staleness=1)
    answers = play(whole, SCRIPT)
    assert target.answers == answers[:stop]
    assert play(target.state, SCRIPT[stop:]) == answers[stop:]
    assert target.state.finished


# The log. Mutants that are in order stay: what the server took, it must be able to read again.


def private_definition():
    """The same run with private labels: two parties learn from the first one's gradients."""
    definition = definition_of()
    settings = definition.settings.model_copy(update={"privacy": PrivacySettings(labels="private")})
    return RunDefinition(settings, definition.run_hash)


def private_script(chance):
    """A whole run with private labels; the label party has checkpoints and sends some gradients again."""
    steps = schedule_of(ROWS, private_definition().settings.training)
    yield from ((party, hello()) for party in PARTIES)
    yield PARTIES[0], Labels(2)
    for step in range(steps.steps):
        size = steps.visit(step).size
        yield from ((party, Push(step, Release(codes(size, step, at)))) for at, party in enumerate(PARTIES))
        yield PARTIES[0], Gradient(step, Release(codes(size, step, 9), 7))
        if chance.random() < 0.5:
            yield PARTIES[0], Checkpointed(step)


def disturbed(script, chance):
    """The bytes of a script, with mutants of what was sent before among them, from any party."""
    sent = []
    for sender, message in script:
        raw = encode_from_party(message)
        sent.append((sender, raw))
        yield sender, raw
        for _ in range(chance.choice((0, 0, 1, 3, 8))):
            whose, again = chance.choice(sent)
            changed = change_a_field(bytearray(again), chance) if chance.random() < 0.7 else mutant(chance)
            yield whose if chance.random() < 0.8 else chance.choice(PARTIES), bytes(changed)


def known(state):
    """What a server has to know again after a restart."""
    at = state.coordinator
    positions = () if at is None else tuple((at.pushed(party), at.served(party)) for party in PARTIES)
    finished = tuple(state.has_finished(party) for party in PARTIES)
    return positions, at and (at.last_gradient, at.stopped), tuple(state.history.items()), finished


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["shared labels", "private labels"])
def test_after_any_messages_the_log_is_read_again(kind):
    """Finding 14: a gradient that was taken after a checkpoint made the log unreadable for good."""
    private, taken = kind == "private labels", 0
    definition = private_definition() if private else definition_of(staleness=1)
    for seed in range(120):
        chance, disk = random.Random(f"{kind} {seed}"), MemoryDisk()
        state = RunState.open(definition, disk, rotate_bytes=chance.choice((2000, 10**9)))
        for sender, raw in disturbed(private_script(chance) if private else SCRIPT, chance):
            try:
                state.take(sender, decode_from_party(raw))
            except MessageRefused:
                continue
            taken += 1
            state.commit()
        assert known(RunState.open(definition, disk.copy())) == known(state), seed
    assert taken > 120 * 10


def test_mutants_are_of_every_kind():
    """Refused for their form, refused for what they deliver, and by chance in order: all of it occurs."""
    target, chance = Target(MIDDLE), random.Random("kinds")
    reasons = set()
    for _ in range(3000):
        raw = mutant(chance)
        try:
            target.state.take(chance.choice(PARTIES), decode_from_party(raw))
        except MessageRefused as refused:
            reasons.add(refused.refusal.name)
        else:
            reasons.add("taken")
            target.put_back()
    assert reasons >= {"INVALID", "GAP", "CONFLICT", "MISMATCH", "NOT_PERMITTED", "FENCED", "taken"}


def test_a_party_refuses_mutated_messages_of_the_server_too():
    answers = play(new_state(staleness=1), SCRIPT)
    valid = [raw for answer in answers for _, raw in answer]
    chance = random.Random("server")
    refused = 0
    for _ in range(10_000):
        raw = bytearray(chance.choice(valid))
        raw = chance.choice(MUTATIONS)(raw, chance)
        try:
            decode_from_server(bytes(raw))
        except MessageRefused:
            refused += 1
    assert 1000 < refused < 10_000
