"""Texts of more rows than memory holds."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.ids import unique_texts
from fdml.data.many_texts import _hashes, duplicates, kept_texts, text_bytes
from fdml.data.sources import open_sources
from fdml.errors import DataError
from fdml.settings.data import DataSettings, IdSettings
from fdml.storage.disk import FolderDisk
from fdml.storage.memory import MemoryDisk

short = st.lists(st.text("abä€", max_size=3), max_size=60)


def texts(values):
    return pa.array(values, pa.large_string())


@given(short, st.integers(1, 20))
def test_texts_compared_in_parts_are_the_duplicates_of_all(values, part_rows):
    again, single = duplicates(texts(values), part_rows)
    assert again.tolist() == [value in values[:row] for row, value in enumerate(values)]
    assert single.tolist() == [values.count(value) == 1 for value in values]


def test_long_texts_that_begin_alike_are_told_apart():
    values = ["x" * 80 + str(number % 5) for number in range(9)]
    assert duplicates(texts(values), 2)[0].sum() == 4


def test_hashes_spread_texts_that_differ_little():
    found = _hashes(texts([f"customer-{number:09}" for number in range(4000)]))
    assert len(np.unique(found)) == 4000
    assert np.bincount((found % np.uint64(8)).astype(int)).max() < 700


@pytest.mark.parametrize("parts", [[], [[]], [["a", "bc"], [], ["", "ä€"]]])
def test_kept_texts_are_those_given_in_a_file_or_in_memory(tmp_path, parts):
    expected = [value for part in parts for value in part]
    for disk in (None, FolderDisk(tmp_path), MemoryDisk()):
        found = kept_texts([texts(part) for part in parts], disk)
        found.validate(full=True)
        assert found.to_pylist() == expected
        assert found.type == pa.large_string()
    assert list(tmp_path.iterdir()) == []


def test_the_bytes_of_a_part_of_an_array_are_its_own():
    bounds, content = text_bytes(texts(["one", "two", "", "three"])[1:3])
    assert (bounds.tolist(), bytes(content)) == ([0, 3, 3], b"two")


def test_ids_in_parts_are_those_of_the_whole(tmp_path):
    values = ["a", None, "b", "a", "c", None, "b", "d"]
    settings = IdSettings(duplicates="first", missing="drop")
    whole = unique_texts([texts(values)], settings)
    for disk in (None, FolderDisk(tmp_path)):
        parts = unique_texts([texts(values[:3]), texts(values[3:3]), texts(values[3:])], settings, disk)
        assert parts.texts.to_pylist() == whole.texts.to_pylist() == ["a", "b", "c", "d"]
        assert parts.rows.tolist() == whole.rows.tolist() == [0, 2, 4, 7]
        assert parts.counts == whole.counts
    assert (whole.counts.missing_at, whole.counts.repeated_at) == ((2, 6), (4, 7))


BATCHES = 40_000
"""Rows of a table that is read in two batches."""


def source_of(tmp_path, ids):
    path = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.table({"id": ids, "x": np.arange(len(ids)) % 7}), path)
    return open_sources(DataSettings(path=path, id="id"))[0]


def test_a_fault_in_a_later_batch_is_named_by_its_row_of_the_file(tmp_path):
    ids = np.arange(BATCHES, dtype=np.float64)
    ids[35_000] += 0.5
    with pytest.raises(DataError, match="with a fraction in 1 rows, among them data rows 35001"):
        source_of(tmp_path, ids).ids()


def test_a_table_in_batches_gives_the_ids_of_all(tmp_path):
    found = source_of(tmp_path, np.arange(BATCHES, dtype=np.float64)).ids()
    assert found.texts.to_pylist() == [str(number) for number in range(BATCHES)]
    assert found.rows.tolist() == list(range(BATCHES))
