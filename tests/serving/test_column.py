"""A column: rows found by token, mapped from disk, and values that stay as they were where nothing changed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import StateCorrupt
from fdml.serving.column import Column
from tests.serving.published import PARTIES, codes_of, keys_of, texts

KEYS = keys_of(PARTIES, "ann")


def column_of(values, noise=0):
    """By id, a value; what leaves is so much more."""
    exact = codes_of(list(values.values()))
    return Column.of(KEYS.tokens_of(texts(list(values))), exact + noise, exact)


def found(column, ids):
    rows = column.find(KEYS.tokens_of(texts(ids)))
    return [None if row < 0 else int(column.codes[row, 0]) for row in rows]


@given(
    st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.integers(-5, 5), min_size=1),
    st.lists(st.text("abcdef", min_size=1, max_size=3)),
)
def test_rows_are_found_as_in_a_dictionary(values, asked):
    column = column_of(values)
    expected = [int(codes_of([values[each]])[0, 0]) if each in values else None for each in asked]
    assert found(column, asked) == expected
    assert len(column) == len(values)


def test_of_two_rows_with_the_same_id_the_first_counts():
    tokens = KEYS.tokens_of(texts(["a", "b", "a"]))
    column = Column.of(tokens, codes_of([1, 2, 3]), codes_of([1, 2, 3]))
    assert found(column, ["a", "b"]) == [codes_of([1])[0, 0], codes_of([2])[0, 0]]
    assert len(column) == 2


def test_tokens_that_begin_alike_are_told_apart():
    tokens = np.zeros((3, 16), np.uint8)
    tokens[:, 15] = [3, 1, 2]
    column = Column.of(tokens, codes_of([3, 1, 2]), codes_of([3, 1, 2]))
    wanted = np.zeros((4, 16), np.uint8)
    wanted[:, 15] = [1, 2, 3, 4]
    rows = column.find(wanted)
    assert column.codes[rows[:3], 0].tolist() == codes_of([1, 2, 3])[:, 0].tolist()
    assert rows[3] == -1


def test_a_column_comes_back_from_disk_mapped(tmp_path):
    column = column_of({"a": 1, "b": 2})
    column.save(tmp_path)
    again = Column.load(tmp_path)
    assert isinstance(again.codes, np.memmap)
    assert found(again, ["b", "a", "c"]) == found(column, ["b", "a", "c"])
    assert again.width == 1


def test_a_damaged_column_says_so(tmp_path):
    column_of({"a": 1}).save(tmp_path)
    (tmp_path / "codes.npy").write_bytes(b"no array")
    with pytest.raises(StateCorrupt, match="damaged"):
        Column.load(tmp_path)


def test_arrays_that_do_not_fit_are_refused(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, values in ((one, {"a": 1}), (two, {"a": 1, "b": 2})):
        folder.mkdir()
        column_of(values).save(folder)
    (one / "codes.npy").write_bytes((two / "codes.npy").read_bytes())
    with pytest.raises(StateCorrupt, match="do not fit"):
        Column.load(one)


def test_a_row_that_did_not_change_keeps_its_bits_and_its_noise():
    before = column_of({"a": 1, "b": 2, "c": 3}, noise=1000)
    after, difference = column_of({"b": 2, "c": 3, "new": 9}, noise=7).after(before)
    assert difference == (False, True, True), "none changed, one came, one left"
    assert found(after, ["b", "c", "new", "a"]) == [
        codes_of([2])[0, 0] + 1000,
        codes_of([3])[0, 0] + 1000,
        codes_of([9])[0, 0] + 7,
        None,
    ]


def test_a_row_that_has_gone_is_noted_as_it_has_new_noise_when_it_comes_back():
    before = column_of({"a": 1, "b": 2}, noise=1000)
    without, gone = column_of({"b": 2}, noise=7).after(before)
    again, changed = column_of({"a": 1, "b": 2}, noise=70).after(without)
    assert (gone.left, changed.changed) == (True, False)
    assert found(again, ["a", "b"]) == [codes_of([1])[0, 0] + 70, codes_of([2])[0, 0] + 1000]


def test_a_row_that_changed_has_new_bits_and_is_noted():
    before = column_of({"a": 1, "b": 2}, noise=1000)
    after, difference = column_of({"a": 1, "b": 5}, noise=7).after(before)
    assert difference == (True, False, False)
    assert found(after, ["a", "b"]) == [codes_of([1])[0, 0] + 1000, codes_of([5])[0, 0] + 7]
