import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.data.rows import (
    DenseRows,
    SparseRows,
    as_rows,
    columns,
    mean_square_norm,
    row_count,
    side_by_side,
    span,
    take,
    to_dense,
    width,
)
from fdml.errors import DataError

matrices = arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.integers(-2, 2).map(float))


def both_kinds(matrix):
    return [as_rows(matrix), as_rows(sp.csr_array(matrix))]


@given(matrices)
def test_sparse_and_dense_rows_say_the_same(matrix):
    for rows in both_kinds(matrix):
        assert (row_count(rows), width(rows)) == matrix.shape
        np.testing.assert_array_equal(to_dense(rows), matrix)


@given(matrices, st.data())
def test_rows_and_features_are_taken_in_the_order_asked_for(matrix, data):
    order = np.array(data.draw(st.lists(st.integers(0, len(matrix) - 1), min_size=1)))
    chosen = np.array(data.draw(st.permutations(range(matrix.shape[1]))))
    for rows in both_kinds(matrix):
        np.testing.assert_array_equal(to_dense(take(rows, order)), matrix[order])
        np.testing.assert_array_equal(to_dense(columns(rows, chosen)), matrix[:, chosen])


@given(matrices, st.data())
def test_a_span_shares_the_memory_of_its_rows(matrix, data):
    start = data.draw(st.integers(0, len(matrix)))
    stop = data.draw(st.integers(start, len(matrix)))
    for rows in both_kinds(matrix):
        part = span(rows, start, stop)
        assert row_count(part) == stop - start
        assert part.values.base is not None or part.values is rows.values
    dense, sparse = both_kinds(matrix)
    np.testing.assert_array_equal(span(dense, start, stop).values, matrix[start:stop])
    part = span(sparse, start, stop)
    entries = slice(part.indptr[0], part.indptr[-1])
    np.testing.assert_array_equal(part.values[entries], matrix[start:stop][matrix[start:stop] != 0])


@given(matrices)
def test_the_mean_square_norm_is_the_same_for_both_kinds(matrix):
    weights = np.arange(1.0, len(matrix) + 1)
    expected = np.average(np.square(matrix.astype(float)).sum(axis=1), weights=weights)
    for rows in both_kinds(matrix):
        assert mean_square_norm(rows, weights) == pytest.approx(expected)


def test_parts_side_by_side_are_sparse_where_any_part_is():
    matrix = np.eye(3, dtype=np.float32)
    dense, sparse = both_kinds(matrix)
    assert isinstance(side_by_side([dense, dense]), DenseRows)
    mixed = side_by_side([dense, sparse])
    assert isinstance(mixed, SparseRows)
    np.testing.assert_array_equal(to_dense(mixed), np.hstack([matrix, matrix]))


def test_entries_of_one_place_are_added_up():
    twice = sp.coo_array(([1.0, 2.0], ([0, 0], [1, 1])), shape=(1, 2))
    assert as_rows(twice).values.tolist() == [3.0]


def test_features_must_be_a_matrix():
    with pytest.raises(DataError, match="features have 1 dimensions; give a matrix of rows x features"):
        as_rows(np.zeros(3))


def test_too_many_features_are_refused():
    with pytest.raises(DataError, match=r"2147483648 features; .* hash them to fewer"):
        as_rows(sp.csr_array((1, 2**31), dtype=np.float32))
