import numpy as np
import pyarrow as pa
import pytest

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
