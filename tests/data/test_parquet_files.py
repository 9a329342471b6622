import datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

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
