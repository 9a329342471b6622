import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.external_sort import ExternalSort
from fdml.data.rows import as_rows, row_count, take, vstack
from fdml.errors import DataError

KINDS = pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])


def spooled(folder, matrix, order, chunk, size, kind):
    places = np.full(len(matrix), -1)
    places[order] = np.arange(len(order))
    spool = ExternalSort(folder, places, len(order), matrix.shape[1], size)
    spool.fill(as_rows(kind(matrix[start : start + chunk])) for start in range(0, len(matrix), chunk))
    return spool


def random_matrix(rows, width, seed=1):
    rng = np.random.default_rng(seed)
    return (rng.integers(-3, 4, (rows, width)) * (rng.random((rows, width)) < rng.random((rows, 1)))).astype(np.float32)


@given(
    st.integers(1, 60),
    st.integers(0, 6),
    st.integers(1, 9),
    st.integers(8, 400),
    st.sampled_from([np.asarray, sp.csr_array]),
    st.randoms(use_true_random=False),
)
def test_runs_and_spans_of_any_size_give_the_rows_in_order(tmp_path_factory, rows, width, chunk, size, kind, random):
    matrix = random_matrix(rows, width)
    order = np.array(random.sample(range(rows), random.randint(1, rows)))
    spool = spooled(tmp_path_factory.mktemp("spool"), matrix, order, chunk, size, kind)
    found = vstack(list(spool.spans()))
    for one, other in zip(found, take(as_rows(kind(matrix)), order), strict=True):
        np.testing.assert_array_equal(one, other)


@KINDS
def test_spans_stay_within_their_size(tmp_path, kind):
    matrix = random_matrix(500, 10)
    order = np.random.default_rng(2).permutation(500)
    spans = list(spooled(tmp_path, matrix, order, 7, 800, kind).spans())
    assert len(spans) > 5
    assert max(span.values.size for span in spans) <= 100
    assert sum(row_count(span) for span in spans) == 500


def test_small_chunks_are_collected_to_runs(tmp_path):
    matrix = random_matrix(400, 10)
    few = spooled(tmp_path, matrix, np.arange(400), 1, 10**6, sp.csr_array)
    assert len(few._runs) == 1
    (tmp_path / "more").mkdir()
    more = spooled(tmp_path / "more", matrix, np.arange(400), 1, 4000, sp.csr_array)
    assert 2 < len(more._runs) < 20


def test_a_row_longer_than_a_span_is_a_span_of_its_own(tmp_path):
    spool = spooled(tmp_path, np.ones((3, 50), np.float32), np.array([2, 0, 1]), 2, 80, sp.csr_array)
    assert [row_count(span) for span in spool.spans()] == [1, 1, 1]


@pytest.mark.parametrize("rows", [3, 5, 6])
def test_a_file_that_has_other_rows_than_before_is_refused(tmp_path, rows):
    spool = ExternalSort(tmp_path, np.arange(4), 4, 1)
    with pytest.raises(DataError, match="leave the file as it is"):
        spool.fill([as_rows(np.ones((1, 1)))] * rows)


@pytest.mark.parametrize("places", [[0, 0, 1], [0, 1, -1], [2, 2, 1]])
def test_every_shared_row_must_have_one_place(tmp_path, places):
    spool = ExternalSort(tmp_path, np.array(places), 3, 1)
    with pytest.raises(DataError, match="not every one of the 3 shared rows is there once; align again"):
        spool.fill([as_rows(np.ones((3, 1)))])
