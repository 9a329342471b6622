"""Nothing leaves without passing the guard, and the guard counts and stores before it hands out."""

import ast
import inspect
import json
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mypy import api as mypy

import fdml
from fdml.errors import MessageRefused, PrivacyBudgetSpent, Refusal, SettingsError, TrainingDiverged
from fdml.privacy.guard import NO_NOISE, Guard, group_of
from fdml.privacy.ledger import HELD_OUT, GradientMechanism, Ledger, Mechanism, epsilon_of
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.privacy.perturb import Perturbation
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.fixed_point import LARGEST, decode, encode
from fdml.protocol.messages import Gradient, HeldOutTotal, Release, Total
from fdml.protocol.wire import encode_from_party
from simulator.disk import Crashed, VirtualDisk
from tests.examples import examples
from tests.privacy.guards import no_protection
from tests.storage.memory_disk import MemoryDisk, PowerCut

PARTIES = ("store", "browser")
NOISY = Mechanism("gaussian", 1.0, 0.5)
DELTA = 1e-5
PREDICTIONS = np.linspace(-0.4, 0.4, 6).reshape(3, 2)
BLOCKS = 3


def block_of(step):
    return step % BLOCKS


def masks(party="store", mask_id=1):
    return Masks(bytes(range(32)), PARTIES, party, mask_id)


def noisy(disk=None, *, allowed=None, mask_id=1, exact=False, blind=False, gradients=None):
    """A guard whose budget allows so many releases of each row."""
    budget = None if allowed is None else epsilon_of(NOISY, allowed, DELTA)
    return Guard(
        Perturbation(NOISY, NoiseKey(b"k" * 32)),
        Ledger(NOISY, gradients, DELTA, budget),
        held_out=Perturbation(NO_NOISE) if exact else None,
        masks=masks(mask_id=mask_id),
        blind=blind,
        store=ReleaseStore(MemoryDisk() if disk is None else disk),
    )


def exact(party="store", *, mask_id=1, blind=False, masked=True):
    """A guard that only masks."""
    return Guard(
        Perturbation(NO_NOISE),
        Ledger(NO_NOISE, None, DELTA, None),
        masks=masks(party, mask_id) if masked else None,
        blind=blind,
    )


def sent(message):
    """As the bytes that leave."""
    return encode_from_party(message)


def push(guard, step, predictions=PREDICTIONS):
    return guard.push(step, block_of(step), predictions)


# Without protection


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("value", "named"),
    [(np.nan, "nan"), (np.inf, "inf"), (-np.inf, "inf"), (2.0**21, "2.09715e[+]06"), (-(2.0**21), "2.09715e[+]06")],
)
def test_what_is_no_number_in_range_does_not_leave(value, named, dtype):
    predictions = np.zeros((5, 2), dtype)
    predictions[3, 1] = value
    for leave in (lambda: push(no_protection(), 0, predictions), lambda: no_protection().held_out(1, predictions)):
        with pytest.raises(TrainingDiverged, match=f"a local prediction is {named}, past the .* lower learning_rate"):
            leave()


@given(arrays(np.float64, (3, 2), elements=st.floats(-LARGEST, LARGEST)))
def test_a_number_in_range_leaves_as_it_is_but_for_half_a_step_of_the_grid(predictions):
    message, codes = push(no_protection(), 7, predictions)
    assert (message.step, message.release.mask_id, message.release.variance) == (7, 0, 0.0)
    assert message.release.values.dtype == np.int64
    assert np.abs(decode(message.release.values) - predictions).max() <= 2.0**-33
    np.testing.assert_array_equal(message.release.values, codes)
    np.testing.assert_array_equal(no_protection().held_out(1, predictions).release.values, codes)


def test_a_block_without_rows_passes():
    assert push(no_protection(), 0, np.zeros((0, 2), np.float32))[0].release.values.shape == (0, 2)


# Counting


def test_every_release_is_counted_for_its_own_block():
    guard = noisy()
    for step in range(4):
        push(guard, step)
    guard.held_out(1, PREDICTIONS)
    counted = {group: guard.ledger.releases(group) for group in ("block 0", "block 1", "block 2", HELD_OUT)}
    assert counted == {"block 0": 2, "block 1": 1, "block 2": 1, HELD_OUT: 1}


class Counting(Ledger):
    """A real ledger that writes down when it was asked."""

    def __init__(self, calls):
        super().__init__(NOISY, None, DELTA, None)
        self.calls = calls

    def count_release(self, group, releases=1):
        self.calls.append("count")
        super().count_release(group, releases)


class Drawing(Perturbation):
    """A real perturbation that writes down when it was asked."""

    def __init__(self, calls):
        super().__init__(NOISY, NoiseKey(b"k" * 32))
        self.calls = calls

    def protect(self, predictions, purpose, number):
        self.calls.append("make")
        return super().protect(predictions, purpose, number)


class Storing(MemoryDisk):
    """A disk that writes down when it was written to."""

    def __init__(self, calls):
        super().__init__()
        self.calls = calls

    def append(self, name, content, **options):
        self.calls.append("store")
        super().append(name, content, **options)


@pytest.mark.parametrize("leave", [lambda guard: push(guard, 0), lambda guard: guard.held_out(1, PREDICTIONS)])
def test_a_release_is_counted_then_made_then_stored_and_only_then_handed_out(leave):
    calls = []
    guard = Guard(Drawing(calls), Counting(calls), store=ReleaseStore(Storing(calls)))
    leave(guard)
    calls.append("hand out")
    assert calls == ["count", "make", "store", "hand out"]


@pytest.mark.parametrize("blind", [False, True])
def test_a_refused_release_leaves_ledger_and_store_as_they_were(blind):
    disk = MemoryDisk()
    guard = noisy(disk, allowed=1, blind=blind)
    push(guard, 0)
    guard.held_out(1, PREDICTIONS)
    ledger, files = guard.ledger.state(), dict(disk.files)
    for leave in (lambda: push(guard, BLOCKS), lambda: guard.held_out(2, PREDICTIONS)):
        with pytest.raises(PrivacyBudgetSpent, match=r"one more release of .* would spend epsilon"):
            leave()
        assert guard.ledger.state() == ledger
        assert disk.files == files
    push(guard, 1)


def test_what_is_sent_again_is_no_new_release():
    guard = noisy(allowed=1)
    first, codes = push(guard, 0)
    held_out = guard.held_out(1, PREDICTIONS)
    for _ in range(3):
        again, same_codes = push(guard, 0)
        assert sent(again) == sent(first)
        np.testing.assert_array_equal(same_codes, codes)
        assert sent(guard.held_out(1, PREDICTIONS)) == sent(held_out)
    assert guard.ledger.releases("block 0") == guard.ledger.releases(HELD_OUT) == 1


def test_a_prediction_that_diverged_counts_as_released_but_is_not_stored():
    """It counts before it makes, so an error may count too much, never too little."""
    disk = MemoryDisk()
    guard = noisy(disk)
    with pytest.raises(TrainingDiverged):
        push(guard, 0, np.full((3, 2), np.nan))
    assert disk.files == {}
    assert guard.ledger.releases("block 0") == 1


def test_held_out_predictions_that_leave_as_they_are_are_not_counted():
    guard = noisy(exact=True, allowed=1)
    for epoch in (1, 2, 3):
        held_out = guard.held_out(epoch, PREDICTIONS)
        np.testing.assert_array_equal(held_out.release.values, encode(PREDICTIONS))
        assert held_out.release.variance == 0.0
    assert guard.ledger.releases(HELD_OUT) == 0
    assert push(guard, 0)[0].release.variance == NOISY.variance


def test_a_release_says_how_much_noise_is_on_it_and_no_two_have_the_same():
    guard = noisy()
    messages = [push(guard, step)[0] for step in range(20)] + [guard.held_out(1, PREDICTIONS)]
    assert {message.release.variance for message in messages} == {0.25}
    assert len({message.release.values.tobytes() for message in messages}) == 21
    noise = decode(np.stack([message.release.values for message in messages])) - PREDICTIONS
    assert 0.3 < noise.std() < 0.7


# Starting again


@pytest.mark.parametrize("blind", [False, True])
def test_after_a_restart_the_same_step_leaves_as_the_same_bytes_even_if_the_prediction_differs(blind):
    disk = MemoryDisk()
    guard = noisy(disk, blind=blind, mask_id=11)
    first, codes = push(guard, 4)
    held_out = guard.held_out(1, PREDICTIONS)
    again = noisy(disk, blind=blind, mask_id=12)
    again.restore(None, block_of)
    message, same_codes = push(again, 4, PREDICTIONS + 0.3)
    assert sent(message) == sent(first)
    np.testing.assert_array_equal(same_codes, codes)
    assert sent(again.held_out(1, PREDICTIONS + 0.3)) == sent(held_out)
    assert again.ledger.state() == guard.ledger.state()


def pairwise(party="store", disk=None):
    """A guard under masks that depend on no start of the party."""
    other = PARTIES[1 - PARTIES.index(party)]
    return Guard(
        Perturbation(NO_NOISE),
        Ledger(NO_NOISE, None, DELTA, None),
        masks=masks(party),
        blind=True,
        pairwise=PairwiseMasks(PARTIES, party, pair_keys={other: b"p" * 32}, total_key=b"t" * 32),
        store=None if disk is None else ReleaseStore(disk),
    )


def test_under_pairwise_masks_a_recomputed_prediction_that_differs_never_leaves():
    """No two-time pad: the difference of two values under one mask would be known to the server."""
    disk = MemoryDisk()
    first, codes = push(pairwise(disk=disk), 4)
    held_out = pairwise(disk=disk).held_out(1, PREDICTIONS)
    again = pairwise(disk=disk)
    again.restore(None, block_of)
    message, same_codes = push(again, 4, PREDICTIONS + 0.3)
    assert sent(message) == sent(first)
    np.testing.assert_array_equal(same_codes, codes)
    assert sent(again.held_out(1, PREDICTIONS + 0.3)) == sent(held_out)
    different, _ = push(pairwise(disk=MemoryDisk()), 4, PREDICTIONS + 0.3)
    leak = decode(different.release.values - first.release.values)
    np.testing.assert_allclose(leak, 0.3, atol=1e-9, err_msg="this is what storing prevents")


def test_a_release_under_pairwise_masks_is_durable_before_it_is_handed_out():
    with pytest.raises(PowerCut):
        push(pairwise(disk=MemoryDisk(writes_left=0)), 0)


def test_sums_under_pairwise_masks_open_to_the_sum():
    guards = {party: pairwise(party) for party in PARTIES}
    pushes = [push(guard, 5) for guard in guards.values()]
    values = sum(message.release.values for message, _ in pushes)
    total = Total(5, values, (5, 5), tuple(message.release.mask_id for message, _ in pushes))
    held_out = [guard.held_out(2, PREDICTIONS).release for guard in guards.values()]
    held_out_total = HeldOutTotal(2, held_out[0].values + held_out[1].values, tuple(each.mask_id for each in held_out))
    for guard in guards.values():
        np.testing.assert_array_equal(guard.open_total(total), pushes[0][1] + pushes[1][1])
        np.testing.assert_array_equal(guard.open_held_out(held_out_total), 2 * encode(PREDICTIONS))


def test_gradients_stay_under_the_group_key_whatever_masks_predictions():
    """One sender, many receivers: all of them are to read it, and a restart draws another mask."""
    message = pairwise("store").gradient(3, PREDICTIONS)
    assert message.release.mask_id == 1
    np.testing.assert_allclose(pairwise("browser").open_gradient(message, "store"), PREDICTIONS, atol=1e-9)


def test_a_budget_that_was_spent_stays_spent_after_a_restart():
    disk = MemoryDisk()
    guard = noisy(disk, allowed=2)
    for step in (0, 3):
        push(guard, step)
    again = noisy(disk, allowed=2)
    again.restore(None, block_of)
    with pytest.raises(PrivacyBudgetSpent):
        push(again, 6)
    push(again, 1)


def test_a_spent_budget_survives_that_its_releases_were_forgotten():
    disk = MemoryDisk()
    guard = noisy(disk, allowed=2)
    for step in (0, 3):
        push(guard, step)
    guard.forget(3)
    again = noisy(disk, allowed=2)
    again.restore(None, block_of)
    assert again.ledger.releases("block 0") == 2
    with pytest.raises(PrivacyBudgetSpent):
        push(again, 6)


def test_a_guard_without_a_store_counts_on_from_its_saved_state():
    guard = Guard(Perturbation(NOISY, NoiseKey(b"k" * 32)), Ledger(NOISY, None, DELTA, None))
    push(guard, 0)
    again = Guard(Perturbation(NOISY, NoiseKey(b"k" * 32)), Ledger(NOISY, None, DELTA, None))
    again.restore(guard.state(), block_of)
    assert again.ledger.state() == guard.ledger.state() == json.loads(guard.state())


def test_uses_in_training_are_those_of_the_saved_state_and_releases_those_of_the_store():
    """What was learned since the state was saved is learned again; what left has left."""
    disk, noise = MemoryDisk(), GradientMechanism(1.0, 8.0)
    guard = noisy(disk, gradients=noise)
    push(guard, 0)
    guard.ledger.count_use("block 0", 3)
    saved = guard.state()
    push(guard, 3)
    guard.ledger.count_use("block 0", 2)
    guard.forget(0)
    again = noisy(disk, gradients=noise)
    again.restore(saved, block_of)
    assert (again.ledger.uses("block 0"), again.ledger.releases("block 0")) == (3, 2)
    without = noisy(disk, gradients=noise)
    without.restore(None, block_of)
    assert (without.ledger.uses("block 0"), without.ledger.releases("block 0")) == (0, 2)


def test_counts_made_with_other_noise_are_refused():
    disk = MemoryDisk()
    push(noisy(disk), 0)
    other = Mechanism("gaussian", 1.0, 0.25)
    again = Guard(Perturbation(other, NoiseKey(b"k" * 32)), Ledger(other, None, DELTA, None), store=ReleaseStore(disk))
    with pytest.raises(SettingsError, match="what was released so far had mechanism"):
        again.restore(None, block_of)


@pytest.mark.parametrize("torn", [0, 1, 40])
def test_what_could_not_be_stored_is_not_handed_out(torn):
    disk = MemoryDisk(writes_left=1, torn=torn)
    guard = noisy(disk)
    push(guard, 0)
    with pytest.raises(PowerCut):
        push(guard, 1)
    again = noisy(disk.copy())
    again.restore(None, block_of)
    assert (again.ledger.releases("block 0"), again.ledger.releases("block 1")) == (1, 0)


@examples(150)
@given(st.integers(0, 2**32), st.booleans(), st.data())
def test_wherever_a_party_dies_nobody_sees_two_values_or_more_than_the_budget(seed, blind, data):
    """A server that notes all it ever saw, and a party with 2 releases of each row to spend."""
    disk, allowed = VirtualDisk(Random(seed)), 2
    seen, step, life = {}, 0, 0
    guard = noisy(disk, allowed=allowed, blind=blind)
    for _ in range(data.draw(st.integers(1, 40))):
        action = data.draw(st.sampled_from(["push", "push", "push", "held-out", "forget", "die", "arm"]))
        try:
            match action:
                case "push":
                    at = data.draw(st.integers(max(0, step - 2), step))
                    drift = data.draw(st.floats(-0.1, 0.1))
                    message, codes = push(guard, at, PREDICTIONS + drift)
                    assert seen.setdefault(("push", at), sent(message)) == sent(message)
                    under = masks("browser").remove_one(
                        "push", "store", at, message.release.mask_id, message.release.values
                    )
                    np.testing.assert_array_equal((under if blind else message.release.values).reshape(3, 2), codes)
                    step = max(step, at + 1)
                case "held-out":
                    epoch = data.draw(st.integers(1, 3))
                    message = guard.held_out(epoch, PREDICTIONS)
                    assert seen.setdefault(("held-out", epoch), sent(message)) == sent(message)
                case "forget":
                    guard.forget(step - 4)
                case "arm":
                    disk.arm(data.draw(st.integers(0, 2)))
                case "die":
                    raise Crashed
        except PrivacyBudgetSpent:
            pass
        except Crashed:
            disk.disarm()
            life += 1
            guard = noisy(disk, allowed=allowed, blind=blind, mask_id=1 + life)
            guard.restore(None, block_of)
        released = {group_of(block): 0 for block in range(BLOCKS)} | {HELD_OUT: 0}
        for kind, number in seen:
            released[group_of(block_of(number)) if kind == "push" else HELD_OUT] += 1
        for group, times in released.items():
            assert times <= guard.ledger.releases(group) <= allowed


# Masks


def test_a_plain_release_has_no_mask_id_and_a_blind_one_is_under_the_mask_of_its_id():
    plain, codes = push(exact(), 0)
    assert plain.release.mask_id == 0
    np.testing.assert_array_equal(plain.release.values, encode(PREDICTIONS))
    blind, same_codes = push(exact(blind=True, mask_id=9), 0)
    assert blind.release.mask_id == 9
    np.testing.assert_array_equal(same_codes, codes)
    assert not (blind.release.values == codes).any()
    np.testing.assert_array_equal(masks("browser").remove_one("push", "store", 0, 9, blind.release.values), codes)


def test_a_blind_sum_opens_to_the_sum_and_a_plain_one_is_open():
    mine, theirs = (push(exact(party, mask_id=at, blind=True), 5) for party, at in (("store", 3), ("browser", 4)))
    summed = mine[0].release.values + theirs[0].release.values
    total = Total(5, summed, (5, 5), (3, 4))
    np.testing.assert_array_equal(exact(blind=True).open_total(total), mine[1] + theirs[1])
    assert not (summed == mine[1] + theirs[1]).any()
    plain = Total(5, mine[1] + theirs[1], (5, 5))
    np.testing.assert_array_equal(exact().open_total(plain), mine[1] + theirs[1])


def test_a_blind_held_out_total_opens_to_the_sum():
    guards = [exact(party, mask_id=at, blind=True) for party, at in (("store", 3), ("browser", 4))]
    predictions = [guard.held_out(2, PREDICTIONS) for guard in guards]
    total = HeldOutTotal(2, predictions[0].release.values + predictions[1].release.values, (3, 4))
    np.testing.assert_array_equal(guards[0].open_held_out(total), 2 * encode(PREDICTIONS))


@pytest.mark.parametrize("blind", [False, True])
def test_a_gradient_is_always_under_a_mask_and_only_the_parties_take_it_off(blind):
    values = np.array([[0.25], [-0.75]])
    message = exact("store", mask_id=6, blind=blind).gradient(3, values)
    assert (message.step, message.release.mask_id) == (3, 6)
    assert not (message.release.values == encode(values)).any()
    opened = exact("browser", mask_id=8, blind=blind).open_gradient(message, "store")
    np.testing.assert_array_equal(opened, values)
    for wrong in (Gradient(4, message.release), Gradient(3, Release(message.release.values, 7))):
        assert not (exact("browser").open_gradient(wrong, "store") == values).any()


def test_without_masks_no_gradient_leaves_or_comes_and_no_blind_sum_opens():
    guard = exact(masked=False, blind=True)
    total = Total(0, np.zeros((3, 2), np.int64), (0, 0), (1, 1))
    for broken in (
        lambda: guard.gradient(0, np.zeros((1, 1))),
        lambda: guard.open_gradient(Gradient(0, Release(np.zeros(1, np.int64), 5)), "store"),
        lambda: guard.open_total(total),
    ):
        with pytest.raises(MessageRefused, match="masks of a run of processes") as refused:
            broken()
        assert refused.value.refusal is Refusal.MISMATCH


# No way round


@cache
def text_of(path):
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path):
    return ast.parse(text_of(path))


@cache
def calls_in(path):
    """Every call in a file by the name that is called, each with what that name hangs on."""
    found = defaultdict(list)
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Name):
                found[node.func.id].append((node, None))
            elif isinstance(node.func, ast.Attribute):
                found[node.func.attr].append((node, node.func.value))
    return found


@cache
def sources():
    """All files of the package by name."""
    home = Path(fdml.__file__).parent
    return {
        path.relative_to(home).as_posix(): path
        for path in sorted(home.rglob("*.py"))
        if not path.name.endswith("_pb2.py")
    }


def calls_of(name, *, of=None):
    """The calls of a name in the package: file, what it hangs on, and the call."""
    return [
        (file, owner, call)
        for file, path in sources().items()
        if of in (None, file) and name in text_of(path)
        for call, value in calls_in(path)[name]
        if (owner := "" if value is None else ast.unparse(value)) not in ("pb", "wire_pb2", "events")
    ]


def makers_of(kind):
    """The files in which a message is made; patterns of `match`, events and the wire's own classes are no making."""
    return {file for file, _, _ in calls_of(kind)}


def arguments_of(name, file):
    """The first argument of every call of a name in a file, as it is written."""
    return {ast.unparse(call.args[0]) for _, _, call in calls_of(name, of=file)}


def lines_of(file, name):
    """Where a function or class of a file begins and ends."""
    found = next(node for node in ast.walk(tree_of(sources()[file])) if getattr(node, "name", None) == name)
    return range(found.lineno, found.end_lineno + 1)


OF_THE_SERVER = {
    "server/coordinator.py",
    "server/differences.py",
    "server/matrix.py",
    "server/snapshot_arrays.py",
    "server/evaluation.py",
}
"""The server keeps what came, and makes it again from what it kept."""


@pytest.mark.slow
def test_only_a_guard_makes_a_release_of_something_new():
    """A party's checkpoint only brings back what had left."""
    assert makers_of("Release") == {
        "privacy/guard.py", "party/worker_state.py", "protocol/wire.py", *OF_THE_SERVER
    }  # fmt: skip
    restoring = lines_of("party/worker_state.py", "_push_of")
    assert all(call.lineno in restoring for _, _, call in calls_of("Release", of="party/worker_state.py"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "makers"),
    [
        ("Push", {"privacy/guard.py", "party/outbox.py", "protocol/wire.py"}),
        (
            "HeldOutPredictions",  # cut into pieces once the guard has made it; put together again where a run is audited
            {"privacy/guard.py", "protocol/wire.py", "protocol/row_pieces.py", "audit/message_log.py"},
        ),
        ("Gradient", {"privacy/guard.py", "protocol/wire.py", "server/coordinator.py", "server/snapshot_arrays.py"}),
    ],
)
def test_only_guard_outbox_and_wire_make_what_carries_predictions(kind, makers):
    assert makers_of(kind) == makers


@pytest.mark.slow
def test_the_outbox_pushes_only_what_the_guard_had_released():
    """It is filled by the loop, from the guard's push, and from a checkpoint."""
    assert {ast.unparse(call) for _, _, call in calls_of("Push", of="party/outbox.py")} == {
        "Push(step, pending.release)"
    }
    assert {ast.unparse(call) for _, _, call in calls_of("PendingPush", of="party/loop.py")} == {
        "PendingPush(own, codes, push.release)"
    }
    assert makers_of("PendingPush") == {"party/loop.py", "party/worker_state.py"}
    restoring = lines_of("party/worker_state.py", "_push_of")
    assert all(call.lineno in restoring for _, _, call in calls_of("PendingPush", of="party/worker_state.py"))


@pytest.mark.slow
def test_only_the_driver_sends_and_only_what_the_session_asks_it_to():
    senders = {(file, owner) for file, owner, _ in calls_of("send") if owner != "conversation"}
    senders -= {("party/evaluating.py", "self"), ("privacy/guard.py", "self.differences")}  # the next test; codes only
    senders -= {("federation/run_children.py", "run.child")}  # a signal to a process
    senders -= {("transport/grpc_relay.py", "stream")}  # answers, which passed the guard when they were published
    senders -= {("transport/mesh_channel.py", "self._lines[name]")}  # what the driver sends, to every party
    assert senders == {("party/driver.py", "self._channel"), ("transport/in_process.py", "self._server")}
    assert arguments_of("send", "party/driver.py") == {"effect.message"}
    (sending,) = [call.lineno for _, _, call in calls_of("send", of="party/driver.py")]
    case = sources()["party/driver.py"].read_text(encoding="utf-8").splitlines()[sending - 2]
    assert case.strip() == "elif type(effect) is Send:"
    assert {file for file, _, _ in calls_of("enqueue")} == {"transport/grpc_channel.py"}
    assert arguments_of("enqueue", "transport/grpc_channel.py") == {"message"}


def test_only_the_session_and_its_alignment_ask_to_send_and_every_such_line_is_known():
    """Whoever adds a line here says what it lets out, and which guard it has passed."""
    makers = {"session", "aligning", "effects", "baseline", "labelling"}
    assert makers_of("Send") == {f"party/{name}.py" for name in makers}
    assert arguments_of("Send", "party/labelling.py") == {
        "labels_to_send(member, shared, labels)",
        "labels_to_send(member, shared, labels, piece)",
    }
    assert arguments_of("Send", "party/baseline.py") == {"still_here"}
    assert arguments_of("Send", "party/effects.py") == {"message"}
    assert arguments_of("send", "party/evaluating.py") == {
        "cut(self.guard.held_out(epoch, self.worker.predict_held_out()), pieces)",
        "self.worker.stop_pushing()",
        "(yield from self._score(sorted(self.evaluation.pending)))",  # sealed metrics alone
        "(yield from self._score_all(due))",
        "[seal_outcome(self.key, epoch, promoted=promoted)]",
        "cut(self.guard.held_out(EARLIER, predictions), self.evaluation.pieces)",
    }
    assert arguments_of("Send", "party/aligning.py") == {"request"}
    assert arguments_of("Send", "party/session.py") == {
        "self._hello(shared)",
        "Checkpointed(safe)",
        "Finished(self._member.model_mac(result.model_hash, self._alignment_hash))",
    }
    assert arguments_of("_send", "party/session.py") == {
        "first_messages(self._checkpoint, worker.first_messages())",  # what has passed it before, and new pushes
        "worker.learn(answer)",
        "told",  # sealed metrics
    }


def test_metrics_are_made_from_held_out_totals_and_the_loss_of_released_totals_alone():
    """What the session sends of an evaluation is what `score` sealed; only its own terminal and files have more."""
    of_files = {"federation/status.py", "models/bundle_card.py"}
    assert makers_of("Metrics") - of_files == {"party/evaluation.py", "align/sealed_metrics.py"}
    assert makers_of("SealedMetrics") - {"protocol/wire.py", "server/run_state.py", "transport/status_wire.py"} == {
        "party/evaluation.py", "align/sealed_metrics.py"
    }  # fmt: skip
    assert {ast.unparse(call) for _, _, call in calls_of("seal_metrics")} == {
        "seal_metrics(self._key, Metrics(epoch, seconds, train_loss, told.test_loss, told.test_metric))"
    }
    scoring = lines_of("party/evaluation.py", "score")
    assert all(call.lineno in scoring for _, _, call in calls_of("Metrics", of="party/evaluation.py"))


def test_no_file_changes_a_message_that_carries_predictions():
    """`replace` would be a way to make one from another."""
    changed = {
        (file, ast.unparse(call.args[0]))
        for file, owner, call in calls_of("replace")
        if not owner and file.split("/")[0] in ("party", "privacy", "transport")
    }
    digest = [call.keywords for file, _, call in calls_of("replace") if file == "transport/mesh_channel.py"]
    assert [[word.arg for word in words] for words in digest] == [["seen"]], "of a push in a mesh its digest alone"
    changed.discard(("transport/mesh_channel.py", "message"))
    cut = [call for file, _, call in calls_of("replace") if file == "protocol/row_pieces.py"]
    assert [ast.unparse(call.args[0]) for call in cut] == ["message.release"]
    assert [word.arg for call in cut for word in call.keywords] == ["values"], "of a release a part of its values alone"
    assert {file for file, _, _ in calls_of("cut") if file.startswith("party")} == {"party/evaluating.py"}
    assert changed == {
        ("party/aligning.py", "offer_of(run, keys.kept, kept, own.ids, change)"),
        ("party/delivery.py", "self._hello"),
        ("party/driver.py", "_to_the_end(driver, channel)"),
        ("party/driver.py", "checkpoint"),
        ("party/driver.py", "shared"),
        ("party/driver.py", "shared.report"),
        ("party/class_weights.py", "labels"),
        ("party/labelling.py", "labels"),
        ("party/loop.py", "task.rate"),
        ("party/plan.py", "objective"),
        ("party/plan.py", "rows"),
        ("party/plan.py", "self"),
        ("party/aligning.py", "inputs"),
        ("party/aligning.py", "keys.secrets.offer"),
        ("party/baseline.py", "found"),
        ("party/evaluation.py", "found"),
        ("party/evaluation.py", "self._objective"),
        ("party/kept_store.py", "generation"),
        ("party/ledger.py", "planned"),
        ("party/planned_spending.py", "book"),
        ("party/planned_spending.py", "each"),
        ("party/session.py", "evaluation.progress"),
        ("privacy/accounts.py", "before"),
        ("privacy/accounts.py", "book"),
        ("transport/grpc_known_server.py", "ours"),
        ("transport/grpc_known_server.py", "self._endpoint"),
        ("transport/grpc_server.py", "found"),
    }


RIGHT = """
import numpy as np
from fdml.party.channel import Channel
from fdml.privacy.guard import Guard


def leave(channel: Channel, guard: Guard, predictions: np.ndarray[tuple[int, int], np.dtype[np.float32]]) -> None:
    push, _ = guard.push(0, 0, predictions)
    channel.send(push)
"""
WRONG = {
    "predictions": (
        "channel.send(push)",
        "channel.send(predictions)",
        '"ndarray[.*]"; expected "Post | Fetch | Hello | Labels | Push | ',
    ),
    "what is under the mask": (
        "push, _ =",
        "_, push =",
        '"ndarray[.*]"; expected "Post | Fetch | Hello | Labels | Push | ',
    ),
    "a push of predictions": (
        "channel.send(push)",
        "channel.send(type(push)(0, predictions))",
        'Argument 2 to "Push" has incompatible type "ndarray[.*]"; expected "Release"',
    ),
    "a release of predictions": (
        "channel.send(push)",
        "channel.send(type(push)(0, type(push.release)(predictions)))",
        'Argument 1 to "Release" has incompatible type "ndarray[.*]"',
    ),
}


@pytest.mark.slow
def test_types_let_nothing_but_what_passed_the_guard_onto_a_channel(tmp_path, monkeypatch):
    root = Path(fdml.__file__).parents[1]
    monkeypatch.chdir(root)
    texts = {"right": RIGHT}
    for number, (before, after, _) in enumerate(WRONG.values()):
        assert before in RIGHT
        texts[f"wrong{number}"] = RIGHT.replace(before, after)
    for name, text in texts.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    said, _, _ = mypy.run(
        [
            "--config-file", str(root / "pyproject.toml"),
            "--cache-dir", str(root / ".mypy_cache"),
            "--python-executable", sys.executable,
            "--follow-imports", "silent",
            *(str(tmp_path / f"{name}.py") for name in texts),
        ]
    )  # fmt: skip
    assert f"Found {len(WRONG)} errors in {len(WRONG)} files" in said
    for number, (what, (_, _, message)) in enumerate(WRONG.items()):
        begin, _, end = message.partition("[.*]")
        lines = [line for line in said.splitlines() if f"wrong{number}.py" in line]
        assert any(begin in line and end in line for line in lines), (what, said)


def test_a_guard_has_no_other_way_out():
    """Whoever adds a method here adds it to this list, and to what the tests above ask of it."""
    public = {name for name, _ in inspect.getmembers(Guard, inspect.isfunction) if not name.startswith("_")}
    assert public == {
        "push", "push_nothing", "held_out", "gradient", "open_total", "open_held_out", "open_gradient", "forget",
        "state", "restore",
    }  # fmt: skip
