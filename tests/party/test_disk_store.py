"""A party's saved state: starting over, and crashes on the way."""

import numpy as np
import pytest

from fdml.errors import StateCorrupt
from fdml.party.checkpoint import FinishedModel
from fdml.party.disk_store import DiskStore
from fdml.privacy.build_guard import NOISE_KEY, stored_key
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.messages import Push, Release
from tests.party.test_alignment_store import SHARED
from tests.storage.memory_disk import MemoryDisk, PowerCut


def facts(disk):
    return {"noise key": stored_key(disk).fingerprint}


def lived():
    """A disk on which a run has left everything."""
    disk = MemoryDisk()
    store = DiskStore(disk, run_hash=b"r" * 32, data="rows")
    store.load()
    store.save_alignment(SHARED)
    ReleaseStore(disk, facts(disk)).add(Push(0, Release(np.arange(4))), {"releases": {}, "uses": {}})
    store.save_result(FinishedModel({}, b"m" * 32, reported=True))
    return disk


def test_finding_5_nothing_that_a_run_has_left_is_used_again():
    disk = lived()
    before = stored_key(disk)
    DiskStore(disk, run_hash=b"r" * 32, data="rows").forget()
    assert set(disk.files) == {"incarnation"}
    assert stored_key(disk) != before


def test_finding_5_wherever_it_dies_while_it_starts_over_no_release_is_sent_for_another_life():
    """Either all is as it was, with its own key, or what is left of the releases is refused."""
    for removed in range(20):
        disk = lived()
        key, pushed = stored_key(disk), dict(disk.files)
        dying = MemoryDisk(writes_left=removed)
        dying.files.update(disk.files)
        try:
            DiskStore(dying, run_hash=b"r" * 32, data="rows").forget()
        except PowerCut:
            pass
        else:
            assert removed > 4
            return
        left = dying.copy()
        if "releases" not in left.files:
            assert NOISE_KEY not in left.files, "a key without its releases would draw the same noise again"
        elif NOISE_KEY in left.files:
            assert stored_key(left) == key
            assert left.files["releases"] == pushed["releases"]
        else:
            with pytest.raises(StateCorrupt, match="belongs to another noise key"):
                ReleaseStore(left, facts(left))
    raise AssertionError("it never came to an end")
