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
    check_width,
    columns,
    drop_unit_values,
    hstack,
    mean_entries,
    mean_square_norm,
    row_count,
    span,
    take,
    to_dense,
    to_scipy,
    vstack,
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
    assert isinstance(hstack([dense, dense]), DenseRows)
    mixed = hstack([dense, sparse])
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


@given(matrices, st.data())
def test_a_span_can_be_used_as_any_rows_can(matrix, data):
    start = data.draw(st.integers(0, len(matrix) - 1))
    stop = data.draw(st.integers(start + 1, len(matrix)))
    weights = np.arange(1.0, stop - start + 1)
    for rows in both_kinds(matrix):
        part = span(rows, start, stop)
        np.testing.assert_array_equal(to_dense(part), matrix[start:stop])
        np.testing.assert_array_equal(to_dense(take(part, np.array([0, 0]))), matrix[[start, start]])
        np.testing.assert_array_equal(to_dense(columns(part, np.array([0]))), matrix[start:stop, :1])
        expected = np.average(np.square(matrix[start:stop].astype(float)).sum(axis=1), weights=weights)
        assert mean_square_norm(part, weights) == pytest.approx(expected)


@given(matrices, st.data())
def test_rows_taken_are_as_the_kernels_read_them(matrix, data):
    order = np.array(data.draw(st.lists(st.integers(0, len(matrix) - 1))), np.int64)
    dense, sparse = (take(rows, order) for rows in both_kinds(matrix))
    assert dense.values.flags.c_contiguous
    assert [array.dtype for array in sparse[:3]] == [np.int64, np.int32, np.float32]
    assert sparse.width == matrix.shape[1]
    assert sparse.indptr.tolist() == [0, *np.cumsum((matrix[order] != 0).sum(axis=1))]


@given(matrices, matrices)
def test_parts_side_by_side_equal_numpys_hstack(one, other):
    rows = min(len(one), len(other))
    one, other = one[:rows], other[:rows]
    for left in both_kinds(one):
        for right in both_kinds(other):
            np.testing.assert_array_equal(to_dense(hstack([left, right])), np.hstack([one, other]))


def test_the_callers_matrix_stays_as_it_is():
    """Its entries are neither in order nor unique, so they must be sorted in a copy."""
    entries = np.array([1.0, 2.0, 3.0], np.float32), np.array([2, 0, 0], np.int32), np.array([0, 3], np.int32)
    matrix = sp.csr_array(entries, shape=(1, 3))
    rows = as_rows(matrix)
    np.testing.assert_array_equal(to_dense(rows), [[5.0, 0.0, 1.0]])
    assert matrix.indices.tolist() == [2, 0, 0]
    assert matrix.data.tolist() == [1.0, 2.0, 3.0]
    assert matrix.indptr.tolist() == [0, 3]


def test_a_matrix_of_the_right_type_is_not_copied():
    dense = np.eye(3, dtype=np.float32)
    assert as_rows(dense).values is dense
    sparse = sp.csr_array(dense)
    assert np.shares_memory(as_rows(sparse).values, sparse.data)


@pytest.mark.parametrize("matrix", [np.zeros((4, 0)), sp.csr_array((4, 0))])
def test_rows_without_features_are_rows(matrix):
    rows = as_rows(matrix)
    assert (row_count(rows), width(rows)) == (4, 0)
    assert to_dense(take(rows, np.array([1, 3]))).shape == (2, 0)
    assert mean_square_norm(rows, np.ones(4)) == 0.0


@given(matrices, st.integers(1, 6))
def test_stacked_parts_are_the_whole_again(matrix, size):
    for rows in both_kinds(matrix):
        parts = [span(rows, start, min(start + size, len(matrix))) for start in range(0, len(matrix), size)]
        whole = vstack(parts)
        assert type(whole) is type(rows)
        np.testing.assert_array_equal(to_dense(whole), matrix)


def test_a_single_part_is_not_copied():
    rows = as_rows(np.eye(2))
    assert vstack([rows]) is rows


def test_stacked_spans_hold_only_their_own_entries():
    rows = as_rows(sp.csr_array(np.eye(6)))
    whole = vstack([span(rows, 1, 3), span(rows, 5, 6)])
    assert (whole.indptr.tolist(), whole.indices.tolist()) == ([0, 1, 2, 3], [1, 2, 5])


@given(arrays(np.float32, st.tuples(st.integers(1, 6), st.integers(1, 5)), elements=st.sampled_from([0.0, 1.0])))
def test_rows_of_ones_are_the_same_rows_without_memory_for_their_values(matrix):
    rows = drop_unit_values(as_rows(sp.csr_array(matrix)))
    assert rows.values.strides == (0,)
    np.testing.assert_array_equal(to_dense(rows), matrix)
    np.testing.assert_array_equal(to_dense(take(rows, np.arange(len(matrix))[::-1])), matrix[::-1])
    assert mean_square_norm(rows, np.ones(len(matrix))) == pytest.approx(matrix.sum() / len(matrix))
    assert to_scipy(rows).dot(np.arange(matrix.shape[1])).tolist() == (matrix @ np.arange(matrix.shape[1])).tolist()


@given(matrices)
def test_features_other_than_zero_are_counted_alike_in_both_kinds_of_rows(matrix):
    expected = np.count_nonzero(matrix) / len(matrix) if len(matrix) else 0.0
    assert [mean_entries(rows) for rows in both_kinds(matrix)] == [expected, expected]


def test_entries_of_many_rows_are_counted_in_pieces():
    rows = as_rows(np.tile(np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 3.0]]), (40_000, 1)))
    assert mean_entries(rows) == mean_entries(take(rows, np.arange(80_000)[::-1])) == 1.5
    assert mean_entries(drop_unit_values(as_rows(sp.csr_array(np.eye(70_000, 3))))) == 3 / 70_000


def test_other_rows_stay_as_they_are():
    matrix = np.ones((70_000, 2), np.float32)
    matrix[-1, 1] = 2.0
    for rows in (*both_kinds(matrix), as_rows(np.ones((2, 2)))):
        assert drop_unit_values(rows) is rows


def test_only_the_rows_themselves_are_looked_at():
    """A span shares the entries of rows that are not its own."""
    rows = as_rows(sp.csr_array(np.array([[2.0, 0.0], [1.0, 1.0], [3.0, 0.0]])))
    assert drop_unit_values(span(rows, 1, 2)).values.strides == (0,)
    assert drop_unit_values(span(rows, 0, 2)).values.strides == (4,)


@given(matrices)
def test_rows_of_another_width_than_a_models_are_refused_with_both(matrix):
    for rows in both_kinds(matrix):
        check_width(rows, matrix.shape[1])
        with pytest.raises(DataError, match=f"rows have {matrix.shape[1]} features, the model was made for 9"):
            check_width(rows, 9)
