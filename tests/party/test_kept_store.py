"""A party's generations on its disk."""

import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.align.kept import Generation, MatchedRows
from fdml.errors import StateCorrupt
from fdml.party.kept_store import KeptStore
from fdml.protocol.alignment_messages import KeyOffer
from fdml.storage.disk import FolderDisk
from tests.storage.memory_disk import MemoryDisk, PowerCut

NONE = np.zeros(0, np.int64)


def generation(number, base=b"", rows=3):
    places = np.arange(rows, dtype=np.int64)
    return Generation(
        id=bytes([number]) * 16,
        base=base,
        number=number,
        key=GroupKey(b"k" * 32),
        offers={"bank": KeyOffer(b"p" * 32, brings_key=True)},
        found=MatchedRows(
            digest=bytes([number]) * 32,
            places=(places, NONE),
            at=(places[::-1].copy(), NONE),
            counts={"bank": rows},
            posted=(np.full((rows, 16), number, np.uint8), np.zeros((0, 16), np.uint8)),
            gone=(NONE, NONE),
            left=(NONE, NONE),
            line=2,
        ),
        tag=b"t" * 16,
        state=b"s" * 32,
    )


def test_before_the_first_generation_nothing_is_kept():
    assert KeptStore(MemoryDisk()).load().newest is None


def test_everything_of_a_generation_comes_back():
    disk = MemoryDisk()
    KeptStore(disk).save(generation(1))
    found = KeptStore(disk).load().newest
    assert (found.id, found.number, found.key.secret) == (b"\1" * 16, 1, b"k" * 32)
    assert found.offers == {"bank": KeyOffer(b"p" * 32, brings_key=True)}
    assert (found.tag, found.state) == (b"t" * 16, b"s" * 32)
    assert found.found.at[0].tolist() == [2, 1, 0]
    assert found.found.posted[0].shape == (3, 16)
    assert (found.found.counts, found.found.line, found.found.whole) == ({"bank": 3}, 2, False)
    assert len(found.date) == len("2026-01-31")


def test_a_chain_is_loaded_from_the_newest_to_the_first():
    disk = MemoryDisk()
    store = KeptStore(disk)
    for each in (generation(1), generation(2, b"\1" * 16), generation(3, b"\2" * 16)):
        store.save(each)
    kept = KeptStore(disk).load()
    assert [each.number for each in kept.chain] == [3, 2, 1]
    assert [each.number for each in kept.upto(b"\2" * 16).chain] == [2, 1]
    assert kept.rows[0].sizes == (3, 3, 3)
    assert len(kept.posted[0].keys) == 9


def test_an_older_generation_that_another_run_stores_late_is_not_the_newest():
    disk = MemoryDisk()
    for each in (generation(1), generation(3, b"\1" * 16), generation(2, b"\1" * 16)):
        KeptStore(disk).save(each)
    assert [each.number for each in KeptStore(disk).load().chain] == [3, 1]


def test_a_generation_never_changes():
    disk = MemoryDisk()
    KeptStore(disk).save(generation(1))
    before = dict(disk.files)
    KeptStore(disk).save(generation(1, rows=5))
    assert disk.files == before


def test_a_power_cut_leaves_what_was_kept():
    disk = MemoryDisk()
    KeptStore(disk).save(generation(1))
    for writes in range(2):
        failing = MemoryDisk(disk.files, writes_left=writes)
        with pytest.raises(PowerCut):
            KeptStore(failing).save(generation(2, b"\1" * 16))
        assert KeptStore(failing.copy()).load().newest.number == 1
        KeptStore(again := failing.copy()).save(generation(2, b"\1" * 16))
        assert KeptStore(again).load().newest.number == 2


def test_what_is_missing_or_damaged_is_named_with_the_way_out():
    disk = MemoryDisk()
    KeptStore(disk).save(generation(1))
    name = next(name for name in disk.files if name.startswith("generation"))
    whole = disk.files[name]
    disk.files[name] = whole[: len(whole) // 2]
    with pytest.raises(StateCorrupt, match=name):
        KeptStore(disk).load()
    del disk.files[name]
    with pytest.raises(
        StateCorrupt,
        match=r"is missing; restore it, or remove the kept alignment with `fdml forget PARTY.toml --alignments`",
    ):
        KeptStore(disk).load()
    disk.files["newest"] = b"\xff\xfe noise"
    with pytest.raises(StateCorrupt, match="is missing; restore it"):
        KeptStore(disk).load()


def test_the_files_are_for_their_owner_only(tmp_path):
    KeptStore(FolderDisk(tmp_path)).save(generation(1))
    assert all(path.stat().st_mode & 0o077 == 0 for path in tmp_path.iterdir())
