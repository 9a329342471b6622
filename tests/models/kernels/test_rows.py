"""Rows as kernels read them."""

import numba
import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.rows import as_rows, drop_unit_values
from fdml.models.kernels.compiler import kernel
from fdml.models.kernels.rows import BinaryRows, entries, entry, kernel_view, prefetch, square_norm

X = np.array([[0, 2, 0, -1], [0, 0, 0, 0], [3, 0, 0.5, 4]], np.float32)
ONES = (X != 0).astype(np.float32)


@numba.njit
def read_row(rows, row):
    """All entries of a row, as two lists."""
    features, values = [np.int64(0)][:0], [np.float64(0)][:0]
    for place in entries(rows, row):
        feature, value = entry(rows, row, place)
        features.append(np.int64(feature))
        values.append(np.float64(value))
    return features, values


@numba.njit
def prefetch_all(rows, count):
    for row in range(count):
        prefetch(rows, row)
    return count


FORMS = {
    "dense": (lambda: as_rows(X), X),
    "sparse": (lambda: as_rows(sp.csr_array(X)), X),
    "ones": (lambda: drop_unit_values(as_rows(sp.csr_array(ONES))), ONES),
}


@pytest.fixture(params=FORMS)
def case(request):
    make, matrix = FORMS[request.param]
    return kernel_view(make()), matrix, request.param


def test_the_entries_of_a_row_are_its_values_at_their_features(case):
    rows, matrix, form = case
    for row in range(len(matrix)):
        features, values = read_row(rows, row)
        found = np.zeros(matrix.shape[1])
        found[features] = values
        np.testing.assert_array_equal(found, matrix[row])
        assert len(features) == (matrix.shape[1] if form == "dense" else np.count_nonzero(matrix[row]))


def test_the_squared_length_is_that_of_the_row(case):
    rows, matrix, _ = case
    for row in range(len(matrix)):
        assert square_norm(rows, row) == pytest.approx(float(matrix[row] @ matrix[row]))


def test_fetching_rows_ahead_changes_nothing(case):
    rows, matrix, _ = case
    before = [read_row(rows, row) for row in range(len(matrix))]
    assert prefetch_all(rows, len(matrix)) == len(matrix)
    assert [read_row(rows, row) for row in range(len(matrix))] == before


def test_only_rows_of_ones_whose_values_were_dropped_are_read_without_them():
    sparse = as_rows(sp.csr_array(ONES))
    assert kernel_view(sparse) is sparse
    view = kernel_view(drop_unit_values(sparse))
    assert isinstance(view, BinaryRows)
    assert not hasattr(view, "values")
    dense = as_rows(X)
    assert kernel_view(dense) is dense


@pytest.mark.parametrize("function", [entries, entry, prefetch])
def test_what_is_for_kernels_only_says_so(function):
    with pytest.raises(NotImplementedError):
        function(*([None] * function.__code__.co_argcount))


# Compiling


def test_a_kernel_is_compiled_where_it_is_called_and_kept_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @kernel
    def total(values):
        result = 0.0
        for value in values:
            result += value
        return result

    assert str(tmp_path) == numba.config.CACHE_DIR, "numba's own setting is left as it was"
    assert total(np.arange(5.0)) == 10.0
    assert [path.suffix for path in sorted(tmp_path.rglob("*.nb*"))]
    assert all(path.relative_to(tmp_path).parts[0].startswith("kernels-") for path in tmp_path.rglob("*.nb*"))
