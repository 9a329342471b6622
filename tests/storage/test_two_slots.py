import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import StateCorrupt
from fdml.storage.disk import FolderDisk
from fdml.storage.two_slots import TwoSlots
from tests.storage.memory_disk import MemoryDisk, PowerCut


def saved(*contents):
    """A disk on which these values were saved one after the other."""
    disk = MemoryDisk()
    generations = TwoSlots(disk, "state")
    for content in contents:
        generations.save(content)
    return disk


def load(disk):
    return TwoSlots(disk, "state").load()


def newest(disk):
    """The file that `load` reads, found by taking it away."""
    value = load(disk)
    for name in disk.files:
        other = disk.copy()
        del other.files[name]
        if load(other) != value:
            return name
    raise AssertionError("no file matters")


def test_nothing_saved_is_none():
    assert load(MemoryDisk()) is None


def test_the_newest_wins():
    values = [f"value {number}".encode() for number in range(5)]
    for count in range(1, 6):
        assert load(saved(*values[:count])) == values[count - 1]


def test_an_empty_value_is_a_value():
    assert load(saved(b"before", b"")) == b""


def test_only_two_are_kept():
    assert len(saved(*[b"x"] * 7).files) == 2


def test_saving_goes_on_after_opening_again():
    disk = saved(b"one", b"two", b"three")
    TwoSlots(disk, "state").save(b"four")
    assert load(disk) == b"four"
    del disk.files[newest(disk)]
    assert load(disk) == b"three"


def test_names_do_not_mix():
    disk = saved(b"one")
    TwoSlots(disk, "other").save(b"two")
    assert load(disk) == b"one"
    assert TwoSlots(disk, "other").load() == b"two"


def test_if_the_newest_is_damaged_the_older_one_is_there():
    disk = saved(b"one", b"two", b"three")
    disk.files[newest(disk)] = b"rubbish"
    assert load(disk) == b"two"


def test_the_next_value_is_saved_over_the_damaged_one():
    disk = saved(b"one", b"two", b"three")
    damaged = newest(disk)
    disk.files[damaged] = b"rubbish"
    TwoSlots(disk, "state").save(b"four")
    assert load(disk) == b"four"
    assert newest(disk) == damaged
    disk.files[damaged] = b"rubbish"
    assert load(disk) == b"two"


def test_if_both_are_damaged_it_is_said_and_not_taken_for_a_new_start():
    disk = saved(b"one", b"two")
    for name in disk.files:
        disk.files[name] = disk.files[name][:-1]
    with pytest.raises(StateCorrupt, match=r"both copies of 'state' are damaged; give the run a new name"):
        load(disk)


def test_if_the_only_one_is_damaged_it_is_said_too():
    disk = saved(b"one")
    disk.files["state.1"] = b""
    with pytest.raises(StateCorrupt):
        load(disk)


def test_clearing_forgets_everything_even_what_is_damaged():
    disk = saved(b"one", b"two")
    disk.files["state.0"] = b"rubbish"
    generations = TwoSlots(disk, "state")
    generations.clear()
    assert generations.load() is None
    assert disk.files == {}
    generations.save(b"new")
    assert load(disk) == b"new"


@given(st.binary(max_size=40), st.binary(max_size=40), st.data())
def test_a_flipped_bit_anywhere_is_noticed(older, newer, data):
    disk = saved(older, newer)
    name = newest(disk) if older != newer else "state.0"
    content = bytearray(disk.files[name])
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    disk.files[name] = bytes(content)
    assert load(disk) == older


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_file_cut_short_or_grown_is_noticed(newer, data):
    disk = saved(b"", newer)
    name = newest(disk)
    whole = disk.files[name]
    disk.files[name] = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert load(disk) == b""
    disk.files[name] = whole + data.draw(st.binary(min_size=1, max_size=9))
    assert load(disk) == b""


@given(st.lists(st.tuples(st.binary(max_size=9), st.booleans()), max_size=12))
def test_a_save_cut_short_leaves_the_last_whole_one(saves):
    disk, last = MemoryDisk(), None
    for content, cut in saves:
        generations = TwoSlots(disk, "state")
        disk.writes_left = 0 if cut else None
        if cut:
            with pytest.raises(PowerCut):
                generations.save(content)
        else:
            generations.save(content)
            last = content
        assert load(disk) == last


def test_generations_on_a_real_folder(tmp_path):
    for content in (b"one", b"two", b"three"):
        TwoSlots(FolderDisk(tmp_path), "state").save(content)
    assert TwoSlots(FolderDisk(tmp_path), "state").load() == b"three"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["state.0", "state.1"]
