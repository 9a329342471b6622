from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.distinct import KEPT, DistinctCount


def counted(*columns):
    count = DistinctCount()
    for column in columns:
        count.add(pa.array(column) if not isinstance(column, pa.Array) else column)
    return count


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ([[1, 2, 2, None], [2, 3]], 3),
        ([[1.5, float("nan"), 1.5], [2.5]], 2),
        ([["a", "", None, "b"], ["b", "c"]], 3),
        ([[True, False, None]], 2),
        ([[None, None]], 0),
        ([np.array(["2026-01-01", "2026-01-02", "2026-01-01"], "datetime64[D]")], 2),
        ([pa.array(["a", "b", "a"]).dictionary_encode()], 2),
        ([pa.array([2**63 + 1, 2**63 + 2], pa.uint64())], 2),
    ],
)
def test_values_are_counted_once_over_all_batches_and_missing_ones_are_not(columns, expected):
    found = counted(*columns)
    assert (found.count, found.is_exact) == (expected, True)


def test_many_are_estimated_in_bounded_memory():
    found = counted(*(np.arange(start, start + 50_000) for start in range(0, 500_000, 25_000)))
    assert not found.is_exact
    assert found.count == pytest.approx(525_000, rel=0.05)
    assert len(found._smallest) == KEPT


def test_as_many_as_are_kept_are_exact():
    assert counted(np.arange(KEPT)).count == KEPT
    assert counted(np.arange(KEPT)).is_exact


def test_zero_and_minus_zero_are_one_number_in_whatever_batch_they_come():
    assert counted([0.0, -0.0]).count == 1
    assert counted([0.0], [-0.0], [1.5]).count == 2


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2, 2], pa.duration("us")), 2),
        (pa.array([7, 7, None], pa.time32("s")), 1),
        (pa.array([0, 1, 1], pa.timestamp("ns", "UTC")), 2),
        (pa.array([Decimal("1.50"), Decimal("1.5"), Decimal(2)], pa.decimal128(9, 2)), 2),
        (pa.array([b"a", b"\xff", b"a"]), 2),
        (pa.array(["a", "b", "a"]).cast(pa.string_view()), 2),
        (pa.array([float("inf"), float("-inf"), float("nan")]), 2),
        (pa.array([-1, 2**63 - 1, -1], pa.int64()), 2),
        (pa.array([], pa.string()), 0),
    ],
    ids=lambda value: str(getattr(value, "type", value)),
)
def test_columns_of_every_type_are_counted(column, expected):
    assert counted(column).count == expected


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1, 2])), st.integers(0, 9))
def test_a_count_is_the_same_however_the_rows_are_cut(values, cut):
    column = pa.array(values, pa.int64())
    assert counted(column[:cut], column[cut:]).count == len({*values} - {None}) == counted(column).count


@given(st.lists(st.none() | st.text(max_size=4)))
def test_texts_are_counted_as_a_set_counts_them(values):
    assert counted(pa.array(values, pa.string())).count == len({*values} - {None, ""})


def test_rows_that_come_again_change_no_estimate():
    many = np.arange(2 * KEPT)
    once, twice = counted(many), counted(many, many)
    assert not once.is_exact
    assert once.count == twice.count
