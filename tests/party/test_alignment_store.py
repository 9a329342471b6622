import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.data.ids import IdCounts
from fdml.errors import AlignmentError, StateCorrupt
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.alignment_store import AlignmentStore, aligned_train_rows
from fdml.protocol.alignment_messages import KeyGrant, RowsOffer
from fdml.protocol.alignment_wire import encode_alignment
from tests.storage.memory_disk import MemoryDisk, PowerCut

COUNTS = IdCounts(rows=9, missing=1, repeated=2, dropped=3, missing_at=(4,), repeated_at=(5, 6))
REPORT = AlignmentReport("ecdh", {"ann": 9, "bob": 8}, 7, 5, 2, 0.25, 1000, 2000, (COUNTS,), "few rows")
SHARED = SharedRows(np.array([3, 1, 2]), np.array([0]), bytes(range(32)), GroupKey(b"k" * 32), REPORT)


def store_on(disk, run=b"run", data="files"):
    return AlignmentStore(disk, run_hash=run, data=data)


def test_before_an_alignment_there_is_none():
    assert store_on(MemoryDisk()).load() is None


def test_everything_of_an_alignment_comes_back():
    disk = MemoryDisk()
    store_on(disk).save(SHARED)
    found = store_on(disk).load()
    assert (found.train.tolist(), found.held_out.tolist()) == ([3, 1, 2], [0])
    assert found.train.dtype == np.int64
    assert (found.digest, found.key.secret, found.report) == (SHARED.digest, b"k" * 32, REPORT)


def test_an_alignment_without_held_out_rows_comes_back_too():
    disk, none = MemoryDisk(), np.zeros(0, np.int64)
    store_on(disk).save(SharedRows(SHARED.train, none, SHARED.digest, SHARED.key, REPORT))
    assert store_on(disk).load().held_out.shape == (0,)


def test_an_alignment_of_another_run_is_refused():
    disk = MemoryDisk()
    store_on(disk).save(SHARED)
    with pytest.raises(StateCorrupt, match=r"another run\.toml; put it back, or give the run a new name"):
        store_on(disk, run=b"new").load()


def test_an_alignment_of_other_files_is_refused_with_what_may_have_changed():
    disk = MemoryDisk()
    store_on(disk).save(SHARED)
    with pytest.raises(AlignmentError, match=r"data\.path or data\.test_path, or the \[data\] settings.*a new name"):
        store_on(disk, data="other files").load()


def test_a_power_cut_leaves_the_alignment_before_it():
    disk = MemoryDisk()
    store_on(disk).save(SHARED)
    failing = MemoryDisk(disk.files, writes_left=0)
    with pytest.raises(PowerCut):
        store_on(failing).save(SharedRows(SHARED.held_out, SHARED.train, b"x" * 32, SHARED.key, REPORT))
    assert store_on(failing.copy()).load().digest == SHARED.digest


def test_what_was_offered_to_the_run_comes_back():
    disk, offer = MemoryDisk(), RowsOffer(b"t" * 16, (b"g" * 16,), 3, whole=False)
    assert store_on(disk).offered() is None
    store_on(disk).save_offer(b"s" * 32, offer)
    assert store_on(disk).offered() == (b"s" * 32, offer)


def test_an_offer_that_is_none_is_refused():
    disk = MemoryDisk({"rows-offer": b"s" * 32 + encode_alignment(KeyGrant(b"key"))})
    with pytest.raises(StateCorrupt, match="the stored rows-offer is none"):
        store_on(disk).offered()


def test_the_rows_of_the_training_file_are_known_without_the_settings():
    disk = MemoryDisk()
    with pytest.raises(AlignmentError, match="has not aligned its rows; run `fdml align` first"):
        aligned_train_rows(disk)
    store_on(disk).save(SHARED)
    assert aligned_train_rows(disk).tolist() == [3, 1, 2]
