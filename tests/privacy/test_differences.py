"""Differences of few bits through guards, masks and a server: sums are exact, and nothing else is said."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.privacy.differences import Differences
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger
from fdml.privacy.masks import Masks
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.privacy.perturb import Perturbation
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.bit_packing import in_ring
from fdml.protocol.few_bits import GRID, FewBits
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import Push, Release, Total
from fdml.protocol.schedule import schedule_for
from fdml.protocol.wire import decode_from_party, decode_from_server, encode_from_party, encode_from_server
from fdml.server.coordinator import Coordinator
from tests.examples import examples
from tests.storage.memory_disk import MemoryDisk

NAMES = ("ann", "bob", "cid", "dan")
SCHEDULE = schedule_for(22, 3, 2, 1, 5, 7)
"""Blocks of six rows and a last one of four, five epochs."""


def guard_of(few, party, *, masks="none", disk=None):
    parties = NAMES[: few.parties]
    pairs = {other: bytes(sorted(map(ord, party[0] + other[0]))) * 16 for other in parties if other != party}
    return Guard(
        Perturbation(NO_NOISE, None, GRID, few.parties),
        Ledger(NO_NOISE, None, 1e-5, None),
        masks=Masks(b"g" * 32, parties, party, 5) if masks != "none" else None,
        blind=few.blind,
        pairwise=PairwiseMasks(parties, party, pair_keys=pairs, total_key=b"t" * 32) if masks == "pairwise" else None,
        store=None if disk is None else ReleaseStore(disk),
        differences=Differences(few, GRID.largest_code(few.parties)),
    )


def coordinator_of(few, staleness=0):
    return Coordinator(NAMES[: few.parties], SCHEDULE, 2, staleness, blind=few.blind, grid=GRID, few_bits=few)


def predictions(party, step, size=1.0):
    """As a model's: they move less and less, and one row in many jumps."""
    visit = SCHEDULE.visit(step)
    random = np.random.default_rng([party, visit.block])
    values = random.normal(size=(visit.size, 2))
    for epoch in range(visit.epoch):
        values = values + random.normal(size=values.shape) * size / (1 + epoch)
        values[0] += 3.0 * random.normal()
    return values


def over_the_wire(message):
    if isinstance(message, Push):
        return decode_from_party(encode_from_party(message))
    return decode_from_server(encode_from_server(message))


def exchange(few, *, masks="none", lookahead=0, size=1.0):
    """All steps of all parties, in step; gives by step what each party says the server has, and the totals it opens."""
    guards = [guard_of(few, party, masks=masks) for party in NAMES[: few.parties]]
    server = coordinator_of(few)
    pushed, opened, sent = {}, {}, {}
    for turn in range(SCHEDULE.steps + lookahead + 1):
        replies = []
        for number, guard in enumerate(guards if turn < SCHEDULE.steps else ()):
            push, pushed[number, turn] = guard.push(turn, SCHEDULE.visit(turn).block, predictions(number, turn, size))
            sent[number, turn] = push
            replies += server.handle(NAMES[number], over_the_wire(push))
        for reply in replies:
            opened.setdefault("waiting", []).append((NAMES.index(reply.to), over_the_wire(reply.message)))
        ready = [each for each in opened.get("waiting", []) if each[1].step <= turn - lookahead]
        for number, total in ready:
            opened["waiting"].remove((number, total))
            whole = guards[number].open_total(total)
            opened[number, total.step] = whole.reshape(pushed[number, total.step].shape)
    return pushed, opened, sent, server


@pytest.mark.parametrize("masks", ["none", "group", "pairwise"])
@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("parties", [2, 3])
def test_every_total_is_the_exact_sum_of_what_the_server_has(bits, parties, masks):
    few = FewBits(bits, parties, blind=masks != "none")
    pushed, opened, sent, _ = exchange(few, masks=masks, lookahead=1)
    for step in range(SCHEDULE.steps):
        expected = sum(pushed[number, step].astype(np.int64) for number in range(parties))
        for number in range(parties):
            np.testing.assert_array_equal(opened[number, step], expected, err_msg=f"step {step}")
    first = [message.release.bits for (_, step), message in sent.items() if step < SCHEDULE.blocks]
    later = [message.release.bits for (_, step), message in sent.items() if step >= SCHEDULE.blocks]
    assert set(first) == {0}
    assert set(later) == {few.push_bits}


@examples(25)
@given(st.sampled_from([8, 4, 2]), st.integers(2, 4), st.integers(0, 6), st.floats(0.0, 20.0), st.booleans())
def test_sums_are_exact_whatever_moves_and_however_far_ahead(bits, parties, lookahead, size, blind):
    """The lookahead may be longer than an epoch: a block is then pushed again before its total has come."""
    few = FewBits(bits, parties, blind=blind)
    pushed, opened, _, _ = exchange(few, masks="pairwise" if blind else "none", lookahead=lookahead, size=size)
    for step in range(SCHEDULE.steps):
        expected = sum(pushed[number, step].astype(np.int64) for number in range(parties))
        np.testing.assert_array_equal(opened[0, step], expected)


def test_what_the_server_has_follows_the_predictions():
    """Rounding errors do not add up: at the end 8 bits are within a step of the prediction, 2 bits are near."""
    near = {}
    for bits in (8, 2):
        pushed, _, _, _ = exchange(FewBits(bits, 2))
        last = range(SCHEDULE.steps - SCHEDULE.blocks, SCHEDULE.steps)
        away = [pushed[0, step] - encode(predictions(0, step), GRID).astype(np.int64) for step in last]
        near[bits] = np.median(np.abs(np.concatenate(away))) * GRID.step
    assert near[8] < 0.06
    assert near[2] < 0.9, "one of its steps is about two of what a row moves by"


def test_a_plain_server_adds_up_what_each_party_has_sent():
    pushed, _, _, server = exchange(FewBits(4, 3))
    for step in range(SCHEDULE.steps - SCHEDULE.blocks, SCHEDULE.steps):
        for number in range(3):
            held = server.matrix.read(number, SCHEDULE.visit(step))
            assert held.pushed_at == step
            np.testing.assert_array_equal(held.release.values, pushed[number, step])


def test_under_masks_a_difference_tells_the_server_neither_its_value_nor_its_scale():
    few = FewBits(4, 3, blind=True)
    _, _, sent, _ = exchange(few, masks="pairwise", size=0.0)
    values = np.concatenate([push.release.values.ravel() for (_, step), push in sent.items() if push.release.bits])
    assert {push.release.scale for push in sent.values()} == {0}
    counts = np.bincount(values + 16, minlength=32)
    assert len(counts) == 32, "five bits"
    assert counts.min() > 0.4 * counts.mean(), "a mask has all values alike, whatever is under it"


def test_a_party_that_chooses_its_own_scale_tells_it_and_gets_whole_totals():
    few = FewBits(4, 2, in_step=False)
    guards, server = [guard_of(few, party) for party in NAMES[:2]], coordinator_of(few, staleness=2)
    scales = set()
    for step in range(SCHEDULE.steps):
        whole = []
        for number, guard in enumerate(guards):
            values = predictions(number, step, size=10.0 if number else 0.1)
            push, codes = guard.push(step, SCHEDULE.visit(step).block, values)
            whole.append(codes)
            replies = server.handle(NAMES[number], over_the_wire(push))
            if step >= SCHEDULE.blocks:
                scales.add((number, push.release.scale))
        totals = [over_the_wire(reply.message) for reply in replies]
        last = next(total for total in totals if total.step == step)
        assert last.bits == 0
        np.testing.assert_array_equal(guards[1].open_total(last).reshape(-1, 2), whole[0] + whole[1])
    assert max(scale for number, scale in scales if number == 1) > max(scale for number, scale in scales if number == 0)


@pytest.mark.parametrize("bits", [4, 2])
def test_a_state_brings_back_all_of_it(bits):
    """A guard restored in the middle sends and opens what the first one would have."""
    few = FewBits(bits, 2)
    guard, other, server = guard_of(few, "ann"), guard_of(few, "bob"), coordinator_of(few)
    for step in range(SCHEDULE.steps):
        block = SCHEDULE.visit(step).block
        again = guard_of(few, "ann")
        again.differences.restore({key: array.copy() for key, array in guard.differences.state().items()})
        push, codes = guard.push(step, block, predictions(0, step))
        same, same_codes = again.push(step, block, predictions(0, step))
        assert encode_from_party(same) == encode_from_party(push)
        np.testing.assert_array_equal(same_codes, codes)
        server.handle("ann", push)
        replies = server.handle("bob", other.push(step, block, predictions(1, step))[0])
        third = guard_of(few, "ann")
        third.differences.restore(again.differences.state())
        total = next(reply.message for reply in replies if reply.to == "ann")
        opened = guard.open_total(total)
        other.open_total(total)
        for each in (again, third):
            np.testing.assert_array_equal(each.open_total(total), opened)


def test_a_stored_difference_leaves_again_as_it_was_and_counts_once():
    """Under pairwise masks a second value of the same step would undo the first one's mask."""
    few, disk = FewBits(4, 2, blind=True), MemoryDisk()
    guard = guard_of(few, "ann", masks="pairwise", disk=disk)
    sent = [guard.push(step, SCHEDULE.visit(step).block, predictions(0, step)) for step in range(2 * SCHEDULE.blocks)]
    again = guard_of(few, "ann", masks="pairwise", disk=disk)
    again.restore(None, lambda step: SCHEDULE.visit(step).block)
    for step, (push, codes) in enumerate(sent):
        same, same_codes = again.push(step, SCHEDULE.visit(step).block, predictions(0, step) + 0.5)
        assert encode_from_party(same) == encode_from_party(push)
        np.testing.assert_array_equal(same_codes, codes)
    assert again.ledger.state() == guard.ledger.state()


@pytest.mark.parametrize(("bits", "step"), [(4, 0), (0, SCHEDULE.blocks), (5, SCHEDULE.blocks)])
def test_a_total_of_other_bits_than_agreed_is_refused(bits, step):
    guard = guard_of(FewBits(4, 2), "ann")
    for at in range(step + 1):
        guard.push(at, SCHEDULE.visit(at).block, predictions(0, at))
    values = np.zeros((SCHEDULE.visit(step).size, 2), np.int16)
    with pytest.raises(MessageRefused, match=f"the total of step {step} has .* bits instead of") as refused:
        guard.open_total(Total(step, values, (step, step), bits=bits))
    assert refused.value.refusal is Refusal.INVALID


def test_a_run_of_whole_predictions_refuses_a_difference():
    guard = Guard(Perturbation(NO_NOISE), Ledger(NO_NOISE, None, 1e-5, None))
    with pytest.raises(MessageRefused, match="is a difference of 4 bits"):
        guard.open_total(Total(3, np.zeros((2, 1), np.int16), (3,), bits=4))


def test_a_party_that_lies_makes_the_others_part_no_larger_than_is_noticed():
    """The sum of 16 bits never begins again from the other end."""
    few = FewBits(4, 2)
    guard, most = guard_of(few, "ann"), GRID.largest_code(2)
    block = SCHEDULE.visit(0).block
    own = guard.push(0, block, np.zeros((SCHEDULE.visit(0).size, 2)))[1]
    guard.open_total(Total(0, own + np.int16(most), (0, 0)))
    largest = 0
    for epoch in range(1, 5):
        step = next(at for at in range(epoch * SCHEDULE.blocks, SCHEDULE.steps) if SCHEDULE.visit(at).block == block)
        push, codes = guard.push(step, block, np.zeros(own.shape))
        lie = in_ring(push.release.values + np.int16(few.limit), few.ring_bits)
        total = guard.open_total(Total(step, lie, (step, step), bits=few.ring_bits))
        largest = max(largest, int((total.astype(np.int64) - codes).max()))
    assert largest == most + 1


def test_release_bits_are_part_of_a_push():
    push = Push(3, Release(np.array([[1], [-2]], np.int16), 0, 0.0, 4, 7))
    again = over_the_wire(push)
    assert (again.release.bits, again.release.scale) == (4, 7)
