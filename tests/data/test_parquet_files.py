import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.data import parquet_files as parquet_module
from fdml.data import table_source
from fdml.errors import DataError
from tests.data.origins import parquet_files

FRAME = pa.table({"user": [1, 2, 3], "city": ["x", None, "y"], "share": [1.0, 2.5, None]})


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(table_source, "BATCH_ROWS", 2)


def read(file, columns=None):
    columns = file.names if columns is None else columns
    file.settle(columns)
    return pa.Table.from_batches(list(file.batches(columns)))


@pytest.mark.usefixtures("small_batches")
def test_a_parquet_file_comes_back_as_it_was_written(tmp_path):
    pq.write_table(FRAME, tmp_path / "x.parquet")
    file = parquet_files(tmp_path / "x.parquet")
    assert file.names == ["user", "city", "share"]
    assert file.settle(["user"]) == 3
    assert read(file).equals(FRAME)
    assert [len(batch) for batch in file.batches(["city"])] == [2, 1]
    assert read(file, ["share", "user"]).to_pydict() == FRAME.select(["share", "user"]).to_pydict()


@pytest.mark.usefixtures("small_batches")
def test_types_of_parquet_columns_stay(tmp_path):
    frame = pa.table(
        {
            "a.b": pa.array(["u", "v", "w"]).dictionary_encode(),
            "day": [datetime.date(2020, 1, day) for day in (1, 2, 3)],
        }
    )
    pq.write_table(frame, tmp_path / "x.parquet")
    table = read(parquet_files(tmp_path / "x.parquet"), ["a.b", "day"])
    assert table.column("a.b").to_pylist() == ["u", "v", "w"]
    assert [str(kind).split("<")[0] for kind in table.schema.types] == ["dictionary", "date32[day]"]


def test_a_broken_parquet_file_is_refused(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        parquet_files(tmp_path / "x.parquet")


def test_a_parquet_file_broken_inside_is_refused(tmp_path):
    path = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": list(range(10_000))}), path, compression="zstd")
    content = bytearray(path.read_bytes())
    content[4:2000] = bytes(1996)
    path.write_bytes(content)
    file = parquet_files(path)
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        list(file.batches(["a"]))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"user": [4], "city": ["x"]}, "'b.parquet' has no column 'share', but 'a.parquet' has"),
        ({**FRAME.slice(0, 1).to_pydict(), "more": [1]}, "'b.parquet' has a column 'more', but 'a.parquet' has none"),
        ({"user": [[4]], "city": ["x"], "share": [1.0]}, "column 'user' holds list"),
    ],
    ids=["one less", "one more", "another type"],
)
def test_files_of_a_folder_that_differ_are_named_with_the_column(tmp_path, columns, words):
    pq.write_table(FRAME, tmp_path / "a.parquet")
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    with pytest.raises(DataError, match=words):
        parquet_files(tmp_path)


def test_types_that_fit_into_one_another_are_widened_and_columns_may_change_places(tmp_path):
    pq.write_table(pa.table({"x": pa.array([1], pa.int16()), "y": [1.5]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"y": pa.array([2.5], pa.float32()), "x": [2**40]}), tmp_path / "b.parquet")
    assert read(parquet_files(tmp_path)).to_pydict() == {"x": [1, 2**40], "y": [1.5, 2.5]}


def test_pieces_have_the_rows_of_the_table_in_its_order_and_none_is_empty(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_module, "PIECE_ROWS", 20)
    for number, rows in enumerate((50, 0, 3)):
        one = pa.table({"x": np.arange(rows) + 100 * number})
        pq.write_table(one, tmp_path / f"{number}.parquet", row_group_size=7)
    table = parquet_files(tmp_path)
    pieces = table.pieces()
    assert [(piece.groups, piece.first, piece.count) for piece in pieces] == [
        ((0, 2), 0, 14),
        ((2, 4), 14, 14),
        ((4, 6), 28, 14),
        ((6, 8), 42, 8),
        (None, 50, 3),
    ]
    for columns in (["x"], []):
        rows = [row for piece in pieces for batch in piece.batches(columns) for row in batch.to_pylist()]
        assert rows == [row for batch in table.batches(columns) for row in batch.to_pylist()]
        assert len(rows) == table.settle([]) == 53
    assert pieces[0].names == table.names == ["x"]
    assert pieces[0].settle(["x"]) == 14
