"""Rows that point to stored ones are, to every function of rows, the same rows copied."""

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.row_set import RowSet
from fdml.data.rows import (
    DenseRows,
    PointedRows,
    as_rows,
    choose,
    columns,
    drop_unit_values,
    has_unit_values,
    hstack,
    mean_entries,
    mean_square_norm,
    plain_rows,
    row_count,
    span,
    take,
    to_dense,
    vstack,
    width,
    with_zero_row,
)

FEATURES = np.array([[1, 0, 2], [0, 3, 0], [5, 0, 0], [0, 0, 0]], np.float32)
POINTERS = np.array([2, 0, -1, 2, 1, 2])
COPIED = FEATURES[POINTERS]


@pytest.fixture(params=["dense", "sparse"])
def rows(request):
    return PointedRows(as_rows(FEATURES if request.param == "dense" else sp.csr_array(FEATURES)), POINTERS)


def same(found, expected):
    np.testing.assert_array_equal(to_dense(found), expected)


def test_they_have_the_size_and_the_features_of_the_rows_they_point_to(rows):
    assert (row_count(rows), width(rows)) == (6, 3)
    same(rows, COPIED)
    same(plain_rows(rows), COPIED)
    same(take(rows, np.array([5, 2, 0])), COPIED[[5, 2, 0]])
    same(columns(rows, np.array([2, 0])), COPIED[:, [2, 0]])
    same(vstack([rows, rows]), np.vstack([COPIED, COPIED]))
    same(hstack([rows, as_rows(np.ones((6, 1)))]), np.hstack([COPIED, np.ones((6, 1), np.float32)]))


def test_a_span_and_a_choice_of_them_still_point(rows):
    for found, expected in (
        (span(rows, 1, 4), COPIED[1:4]),
        (choose(rows, np.array([4, 4])), COPIED[[4, 4]]),
        (RowSet({"a": rows}, np.zeros(6), np.ones(6)).take(np.array([3, 2])).parts["a"], COPIED[[3, 2]]),
    ):
        assert isinstance(found, PointedRows)
        assert found.stored is rows.stored
        same(found, expected)


def test_others_are_copied_by_a_choice():
    plain = as_rows(FEATURES)
    chosen = choose(plain, np.array([1, 0]))
    assert isinstance(chosen, DenseRows)
    assert not np.shares_memory(chosen.values, plain.values)


def test_their_mean_squared_length_counts_each_row(rows):
    weights = np.array([0.5, 1.0, 2.0, 1.0, 1.0, 0.5])
    expected = mean_square_norm(as_rows(COPIED), weights)
    assert mean_square_norm(rows, weights) == pytest.approx(expected, rel=1e-15)
    assert mean_entries(rows) == mean_entries(as_rows(COPIED))


def test_values_are_dropped_where_all_rows_that_are_pointed_to_have_ones():
    stored = as_rows(sp.csr_array(np.array([[1, 0], [0, 1], [0, 7], [0, 0]], np.float32)))
    assert has_unit_values(drop_unit_values(PointedRows(stored, np.array([0, 1, -1]))))
    assert not has_unit_values(drop_unit_values(PointedRows(stored, np.array([0, 2]))))
    assert not has_unit_values(drop_unit_values(PointedRows(as_rows(FEATURES), np.array([0]))))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_row_without_features_comes_after_the_last_chunk(form):
    chunks = [as_rows(FEATURES[:2] if form == "dense" else sp.csr_array(FEATURES[:2]))] * 2
    found = vstack(list(with_zero_row(chunks)))
    assert row_count(found) == 5
    assert not to_dense(found)[-1].any()
    assert list(with_zero_row([])) == []
