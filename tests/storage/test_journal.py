import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import StateCorrupt
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal
from tests.storage.memory_disk import MemoryDisk

GROUPS = [[b"first", b"second"], [b"", b"third"], [b"x" * 300], [b"last", b"but", b"one"]]
groups_of_records = st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=4), max_size=6)


def written(groups):
    """A disk with a log of these groups, and where each group ends."""
    disk, ends = MemoryDisk(), [0]
    journal = Journal(disk, "log")
    for group in groups:
        journal.append(group)
        ends.append(journal.size)
    return disk, ends


def replay(disk):
    return list(Journal(disk, "log").replay())


def flat(groups):
    return [record for group in groups for record in group]


def test_an_empty_log_has_no_records():
    disk = MemoryDisk()
    assert replay(disk) == []
    assert disk.files == {}


@given(groups_of_records)
def test_all_records_come_back_in_order(groups):
    disk, _ = written(groups)
    assert replay(disk) == flat(groups)


@given(groups_of_records, groups_of_records)
def test_the_log_goes_on_after_it_was_opened_again(first, second):
    disk, _ = written(first)
    journal = Journal(disk, "log")
    assert list(journal.replay()) == flat(first)
    assert journal.size == len(disk.files.get("log", b""))
    for group in second:
        journal.append(group)
    assert journal.size == len(disk.files.get("log", b""))
    assert replay(disk) == flat(first) + flat(second)


def test_a_log_cut_at_any_byte_gives_the_groups_before_the_cut_whole():
    disk, ends = written(GROUPS)
    whole = disk.files["log"]
    for cut in range(len(whole) + 1):
        torn = MemoryDisk({"log": whole[:cut]})
        there = sum(end <= cut for end in ends) - 1
        assert replay(torn) == flat(GROUPS[:there]), cut
        assert torn.files["log"] == whole[: ends[there]], "the torn rest is taken off"


def test_after_a_torn_end_the_log_goes_on_as_if_it_had_never_been():
    disk, ends = written(GROUPS)
    whole = disk.files["log"]
    for cut in range(ends[-2], len(whole)):
        torn = MemoryDisk({"log": whole[:cut]})
        journal = Journal(torn, "log")
        assert list(journal.replay()) == flat(GROUPS[:-1])
        journal.append([b"new"])
        assert replay(torn) == [*flat(GROUPS[:-1]), b"new"]


@pytest.mark.parametrize("rest", [b"\0" * 100, b"\xff" * 100, b"fdml" * 100, bytes(range(256))])
def test_any_rubbish_behind_the_last_group_is_torn_off(rest):
    """File systems may lengthen a file before its content is there."""
    disk, _ = written(GROUPS)
    disk.files["log"] += rest
    assert replay(disk) == flat(GROUPS)


def test_a_last_group_whose_content_did_not_arrive_is_torn_off():
    disk, ends = written(GROUPS)
    whole = disk.files["log"]
    for hole in range(ends[-2], len(whole)):
        torn = MemoryDisk({"log": whole[:hole] + b"\0" * (len(whole) - hole)})
        if torn.files["log"] != whole:
            assert replay(torn) == flat(GROUPS[:-1])


def test_a_flipped_bit_before_the_last_group_is_damage_and_never_a_torn_end():
    disk, ends = written(GROUPS)
    whole = disk.files["log"]
    for at in range(ends[-2]):
        for bit in range(8):
            content = bytearray(whole)
            content[at] ^= 1 << bit
            damaged = MemoryDisk({"log": bytes(content)})
            with pytest.raises(StateCorrupt, match=r"the log 'log' is damaged at byte \d+; .* a new name"):
                replay(damaged)
            assert damaged.files["log"] == bytes(content), "nothing was cut off"


def test_a_flipped_bit_in_the_last_group_never_gives_a_wrong_record():
    disk, ends = written(GROUPS)
    whole = disk.files["log"]
    for at in range(ends[-2], len(whole)):
        for bit in range(8):
            content = bytearray(whole)
            content[at] ^= 1 << bit
            assert replay(MemoryDisk({"log": bytes(content)})) == flat(GROUPS[:-1])


def test_a_hole_in_the_middle_is_damage():
    disk, ends = written(GROUPS)
    whole = disk.files["log"]
    holed = whole[: ends[1]] + b"\0" * (ends[2] - ends[1]) + whole[ends[2] :]
    with pytest.raises(StateCorrupt, match=f"damaged at byte {ends[1]};"):
        replay(MemoryDisk({"log": holed}))


def test_a_log_inside_a_record_does_not_look_like_one():
    """Whoever sends a log as a message cannot make a torn end look like damage."""
    inner, _ = written(GROUPS)
    disk, ends = written([[b"one"], [inner.files["log"] * 3]])
    for cut in range(ends[1] + 1, ends[2]):
        assert replay(MemoryDisk({"log": disk.files["log"][:cut]})) == [b"one"]


def test_a_log_can_be_begun_anew():
    disk, _ = written(GROUPS)
    journal = Journal(disk, "log")
    list(journal.replay())
    journal.restart([b"marker"])
    journal.append([b"next"])
    assert replay(disk) == [b"marker", b"next"]
    assert journal.size == len(disk.files["log"])


def test_a_log_on_a_real_folder(tmp_path):
    journal = Journal(FolderDisk(tmp_path), "log")
    for group in GROUPS:
        journal.append(group)
    with (tmp_path / "log").open("ab") as file:
        file.write(b"torn")
    journal = Journal(FolderDisk(tmp_path), "log")
    assert list(journal.replay()) == flat(GROUPS)
    journal.append([b"more"])
    journal.restart([b"marker"])
    journal.append([b"next"])
    assert list(Journal(FolderDisk(tmp_path), "log").replay()) == [b"marker", b"next"]
