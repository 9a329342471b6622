import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.key_lists import FoundRows
from fdml.align.split import order_of, shuffled_rows, split_counts, split_rows
from fdml.errors import DataError


def test_a_first_generation_is_split_as_everywhere_else():
    keep, out = split_rows(50, 0.2, 7)
    train, held_out = order_of(FoundRows.of(50), 0.2, 7)
    assert held_out.tolist() == out.tolist()
    assert train.tolist() == keep[shuffled_rows(len(keep), 7)].tolist()


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5), seed=st.integers(0, 5))
def test_what_comes_later_changes_nothing_of_what_was_there(sizes, seed):
    sizes[0] += 10
    found, none = FoundRows.of(sizes[0]), np.zeros(0, np.int64)
    before = order_of(found, 0.25, seed)
    for size in sizes[1:]:
        found = found.after(none, size)
        after = order_of(found, 0.25, seed)
        for old, new in zip(before, after, strict=True):
            assert new[: len(old)].tolist() == old.tolist()
        before = after
    assert sorted([*before[0], *before[1]]) == list(range(sum(sizes)))
    assert split_counts(found, 0.25, seed) == (len(before[0]), len(before[1]))
    assert len(before[1]) == round(0.25 * sum(sizes)), "the share is kept over many small generations"


def test_rows_that_have_left_are_in_neither_part_and_the_others_stay():
    found = FoundRows.of(40)
    train, held_out = order_of(found, 0.25, 3)
    lost = np.sort([*train[:3], *held_out[:2]])
    fewer = found.after(lost, 0)
    assert order_of(fewer, 0.25, 3)[0].tolist() == train[3:].tolist()
    assert order_of(fewer, 0.25, 3)[1].tolist() == held_out[2:].tolist()
    assert split_counts(fewer, 0.25, 3) == (27, 8)


def test_with_test_files_every_row_is_trained_on():
    train, held_out = order_of(FoundRows.of(9).after(np.array([2]), 3), None, 1)
    assert sorted(train) == [0, 1, *range(3, 12)]
    assert held_out.tolist() == []
    assert split_counts(FoundRows.of(9), None, 1) == (9, 0)


def test_too_few_rows_to_split_are_named():
    with pytest.raises(DataError, match=r"holding out 0\.2 of 2 rows leaves 2 to train on and 0 to test on"):
        order_of(FoundRows.of(2), 0.2, 7)
