import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.encoding import fit
from fdml.data.table_source import BATCH_CELLS, BATCH_ROWS, even_batches, rows_per_batch
from fdml.settings.data import DataSettings


@given(st.lists(st.integers(0, 9), max_size=12), st.integers(1, 7))
def test_batches_become_even_and_keep_their_rows(lengths, rows):
    starts = np.cumsum([0, *lengths])
    batches = [
        pa.record_batch({"x": list(range(at, at + many))}, pa.schema([("x", pa.int64())]))
        for at, many in zip(starts[:-1], lengths, strict=True)
    ]
    even = list(even_batches(batches, rows))
    assert [value for batch in even for value in batch.column("x").to_pylist()] == list(range(starts[-1]))
    assert all(len(batch) == rows for batch in even[:-1])
    assert not even or 0 < len(even[-1]) <= rows


def test_a_batch_that_is_even_already_is_not_copied():
    batch = pa.record_batch({"x": np.arange(8.0)})
    (same,) = even_batches([batch], 8)
    assert same.column(0).buffers()[1].address == batch.column(0).buffers()[1].address


def test_dictionaries_that_differ_are_put_together():
    batches = [pa.record_batch({"x": pa.array(words).dictionary_encode()}) for words in (["a", "b"], ["b", "c"])]
    (one,) = even_batches(batches, 100)
    assert one.column("x").to_pylist() == ["a", "b", "b", "c"]


@pytest.mark.parametrize("columns", [0, 1, 1024, 1025, 10**5, 10**9])
def test_wide_tables_have_shorter_batches(columns):
    rows = rows_per_batch(columns)
    assert 1 <= rows <= BATCH_ROWS
    assert rows * columns <= BATCH_CELLS or rows == 1
    assert (rows == BATCH_ROWS) is (columns <= 1024)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=9))
def test_what_is_learned_does_not_depend_on_the_cut(cuts):
    values = np.random.default_rng(5).lognormal(3, 4, sum(cuts))
    whole = fit([pa.table({"x": values})], ("x",), DataSettings())
    parts = [pa.table({"x": part}) for part in np.split(values, np.cumsum(cuts)[:-1])]
    assert fit(parts, ("x",), DataSettings()) == whole
