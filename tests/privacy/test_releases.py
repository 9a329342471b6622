"""What left a party is found again, byte by byte, and counted once, wherever the process died."""

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import StateCorrupt
from fdml.privacy.ledger import Ledger, Mechanism
from fdml.privacy.releases import ReleaseStore, name_of
from fdml.protocol.messages import Checkpointed, HeldOutPredictions, Push, Release
from fdml.protocol.wire import encode_from_party
from fdml.storage.journal import Journal
from simulator.disk import Crashed, VirtualDisk
from tests.examples import examples
from tests.storage.memory_disk import MemoryDisk, PowerCut

NOISY = Mechanism("gaussian", 1.0, 2.0)
BLOCKS = 3


def push(step, mask_id=0):
    return Push(step, Release(np.random.default_rng(step).integers(-(2**50), 2**50, 4), mask_id, 0.25))


def held_out(epoch):
    return HeldOutPredictions(epoch, Release(np.random.default_rng([9, epoch]).integers(-(2**50), 2**50, 2), 0, 0.25))


def group(message):
    return f"block {message.step % BLOCKS}" if isinstance(message, Push) else "held-out"


def new_ledger():
    return Ledger(NOISY, None, 1e-5, None)


class Books:
    """A ledger and a store as a guard keeps them. What it hands out is known to others."""

    def __init__(self, disk):
        self.store, self.ledger = ReleaseStore(disk), new_ledger()
        if self.store.counts is not None:
            self.ledger.restore(self.store.counts)
        for message in self.store.uncounted:
            self.ledger.count_release(group(message))

    def release(self, message):
        """Count, store, hand out; what was stored before is handed out as it was."""
        known = self.store.find(name_of(message))
        if known is None:
            before = self.ledger.state()
            self.ledger.count_release(group(message))
            self.store.add(message, before)
            known = message.release
        return known

    def forget(self, step):
        self.store.forget(step, self.ledger.state())


def same(one, other):
    return (one.values.tobytes(), one.mask_id, one.variance) == (other.values.tobytes(), other.mask_id, other.variance)


def test_what_was_added_is_found_again_after_reopening():
    disk = MemoryDisk()
    store, ledger = ReleaseStore(disk), new_ledger()
    messages = [push(0), push(1, mask_id=2**63 + 7), held_out(1), push(2)]
    for message in messages:
        store.add(message, ledger.state())
    again = ReleaseStore(disk)
    for message in messages:
        assert same(again.find(name_of(message)), message.release)
    assert again.find(("push", 3)) is None
    assert again.find(("held-out", 2)) is None
    assert [name_of(message) for message in again.uncounted] == [name_of(message) for message in messages]


def test_a_push_and_held_out_predictions_of_the_same_number_are_two_releases():
    store = ReleaseStore(MemoryDisk())
    store.add(push(1), {})
    assert store.find(("held-out", 1)) is None
    store.add(held_out(1), {})
    assert same(store.find(("push", 1)), push(1).release)
    assert same(store.find(("held-out", 1)), held_out(1).release)


def test_before_the_first_release_there_is_nothing_to_count():
    disk = MemoryDisk()
    store = ReleaseStore(disk)
    assert (store.counts, store.uncounted) == (None, [])
    store.forget(5, new_ledger().state())
    assert disk.files == {}


def test_forgetting_drops_old_pushes_and_keeps_held_out_predictions_and_counts():
    disk = MemoryDisk()
    books = Books(disk)
    for message in (push(0), held_out(1), push(1), push(2)):
        books.release(message)
    books.forget(1)
    for store in (books.store, ReleaseStore(disk)):
        assert store.find(("push", 0)) is store.find(("push", 1)) is None
        assert same(store.find(("push", 2)), push(2).release)
        assert same(store.find(("held-out", 1)), held_out(1).release)
        assert store.uncounted == []
        assert store.counts == books.ledger.state()
    books.release(push(3))
    again = Books(disk)
    assert [name_of(message) for message in again.store.uncounted] == [("push", 3)]
    assert again.ledger.state() == books.ledger.state()
    assert again.ledger.releases("block 0") == 2


def test_forgetting_what_was_forgotten_writes_nothing():
    disk = MemoryDisk()
    books = Books(disk)
    for step in range(3):
        books.release(push(step))
    books.forget(1)
    writes = disk.writes
    for step in (1, 0, -1):
        books.forget(step)
    assert disk.writes == writes


def test_a_store_does_not_grow_with_the_steps_that_were_forgotten():
    disk = MemoryDisk()
    books = Books(disk)
    sizes = []
    for step in range(40):
        books.release(push(step))
        books.forget(step - 2)
        sizes.append(len(disk.files["releases"]))
    assert max(sizes[20:]) < 1.1 * max(sizes[5:20])


def test_a_removed_store_begins_anew():
    disk = MemoryDisk()
    Books(disk).release(push(0))
    disk.remove("releases")
    again = ReleaseStore(disk)
    assert (again.counts, again.uncounted, again.find(("push", 0))) == (None, [], None)


def sizes_of_writes():
    """How many bytes each of three releases takes."""
    disk = MemoryDisk()
    books, sizes = Books(disk), [0]
    for message in (push(0), held_out(1), push(1)):
        books.release(message)
        sizes.append(len(disk.files["releases"]))
    return np.diff(sizes).tolist()


@pytest.mark.parametrize("cut", [0, 1, 2])
def test_a_write_torn_anywhere_loses_only_what_was_never_handed_out(cut):
    messages = [push(0), held_out(1), push(1)]
    for torn in range(sizes_of_writes()[cut]):
        disk = MemoryDisk(writes_left=cut, torn=torn)
        books, handed_out = Books(disk), []
        for message in messages[:cut]:
            handed_out.append((name_of(message), books.release(message)))
        with pytest.raises(PowerCut):
            books.release(messages[cut])
        again = Books(disk.copy())
        for name, release in handed_out:
            assert same(again.store.find(name), release)
        assert again.store.find(name_of(messages[cut])) is None
        assert sum(again.ledger.state()["releases"].values()) == cut
        for message in messages:
            again.release(message)
        assert again.ledger.state()["releases"] == {"block 0": 1, "held-out": 1, "block 1": 1}


def test_a_store_damaged_in_its_middle_is_not_taken_for_a_shorter_one():
    """Or what left would be drawn and counted anew."""
    disk = MemoryDisk()
    books = Books(disk)
    for step in range(4):
        books.release(push(step))
    content = bytearray(disk.files["releases"])
    content[len(content) // 3] ^= 0xFF
    disk.files["releases"] = bytes(content)
    with pytest.raises(StateCorrupt, match="the log 'releases' is damaged at byte"):
        ReleaseStore(disk)


def test_a_store_of_something_else_is_refused():
    disk = MemoryDisk()
    Books(disk).release(push(0))
    journal = Journal(disk, "releases")
    list(journal.replay())
    journal.append([encode_from_party(Checkpointed(3))])
    with pytest.raises(StateCorrupt, match="the stored releases hold a Checkpointed; give the run a new name"):
        ReleaseStore(disk)


actions = st.lists(
    st.one_of(
        st.just(("release",)),
        st.just(("held-out",)),
        st.just(("again",)),
        st.tuples(st.just("forget"), st.integers(0, 4)),
        st.just(("reopen",)),
        st.tuples(st.just("crash"), st.integers(0, 3)),
    ),
    max_size=40,
)


class Life:
    """A party that is started again and again, and a ledger that never is."""

    def __init__(self, seed):
        self.disk = VirtualDisk(Random(seed))
        self.books, self.truth = Books(self.disk), new_ledger()
        self.out, self.next, self.forgotten = {}, {"push": 0, "held-out": 1}, -1
        self.pending = None

    def release(self, message):
        """Hand out; others remember, and may see the same name only with the same bytes."""
        name = name_of(message)
        self.pending = message
        found = self.books.release(message)
        self.pending = None
        if name not in self.out:
            self.truth.count_release(group(message))
            self.next[name[0]] += 1
        assert same(self.out.setdefault(name, found), found)

    def reopen(self):
        """What was being stored in a crash and is there counts, handed out or not."""
        self.disk.disarm()
        self.books = Books(self.disk)
        if self.pending is not None and self.books.store.find(name_of(self.pending)) is not None:
            self.release(self.pending)
        self.pending = None
        self.check()

    def act(self, what, *how):
        match what:
            case "release":
                self.release(push(self.next["push"]))
            case "held-out":
                self.release(held_out(self.next["held-out"]))
            case "again":
                for name in list(self.out):
                    if name[0] == "held-out" or name[1] > self.forgotten:
                        self.release({"push": push, "held-out": held_out}[name[0]](name[1]))
            case "forget":
                self.forgotten = max(self.forgotten, self.next["push"] - 1 - how[0])
                self.books.forget(self.next["push"] - 1 - how[0])
            case "reopen":
                self.reopen()
            case "crash":
                self.disk.arm(how[0])

    def check(self):
        assert self.books.ledger.state() == self.truth.state()
        for name, release in self.out.items():
            if name[0] == "held-out" or name[1] > self.forgotten:
                assert same(self.books.store.find(name), release)


@examples(200)
@given(st.integers(0, 2**32), actions)
def test_wherever_a_party_dies_the_ledger_is_that_of_one_that_never_did(seed, script):
    life = Life(seed)
    for action in script:
        try:
            life.act(*action)
        except Crashed:
            life.reopen()
    life.reopen()
    assert life.books.ledger.state() == life.truth.state()
