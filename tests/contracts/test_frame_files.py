"""What every file of named columns must pass."""

from __future__ import annotations

import bz2
import gzip

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data import files
from fdml.data.files import CsvFile, ParquetFile, open_frame
from fdml.errors import DataError

TABLE = pa.table(
    {
        "user": [f"u{number}" for number in range(40)],
        "age": list(range(20, 60)),
        "height": [1.5 + number / 100 for number in range(40)],
        "paid": [number % 2 == 0 for number in range(40)],
        "late": [None] * 30 + [0.5] * 10,
    }
)


def write(table, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(table, path, row_group_size=7)
        return open_frame(path, "parquet", ())
    pa.csv.write_csv(table, path)
    path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)(path.read_bytes()))
    return open_frame(path, "csv", ())


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(files, "CSV_BLOCK", 200)
    monkeypatch.setattr(files, "PARQUET_BATCH", 6)


FILES = pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.csv.gz", "x.csv.bz2"])


@pytest.fixture
def file(tmp_path, name):
    return write(TABLE, tmp_path / name)


def whole(file, columns):
    return pa.Table.from_batches(list(file.batches(columns)))


@FILES
def test_the_format_chooses_the_class(file, name):
    assert type(file) is (ParquetFile if name == "x.parquet" else CsvFile)


@FILES
def test_names_are_those_of_the_file_in_order(file):
    assert file.names == TABLE.column_names


@FILES
@pytest.mark.parametrize("columns", [("age",), ("late", "user"), tuple(TABLE.column_names)])
def test_settling_counts_the_rows_whatever_the_columns(file, columns):
    assert file.settle(columns) == 40
    assert file.settle(columns) == 40


@FILES
def test_columns_come_in_the_order_they_are_asked_for_with_their_values(file):
    columns = ("late", "user", "age", "paid", "height")
    file.settle(columns)
    found = whole(file, columns)
    assert tuple(found.column_names) == columns
    assert found.to_pydict() == TABLE.select(columns).to_pydict()


@FILES
def test_batches_are_many_and_can_be_read_again_and_side_by_side(file):
    file.settle(("age", "user"))
    assert len(list(file.batches(("age",)))) > 3
    ages, users = file.batches(("age",)), file.batches(("user",))
    first_age, first_user = next(ages), next(users)
    assert (first_age.column(0)[0].as_py(), first_user.column(0)[0].as_py()) == (20, "u0")
    assert whole(file, ("age",)).to_pydict() == TABLE.select(["age"]).to_pydict()


@FILES
def test_all_batches_have_one_type_also_where_the_first_rows_say_another(file):
    """In a CSV file `late` looks empty for many blocks."""
    file.settle(("late",))
    kinds = {batch.schema.field("late").type for batch in file.batches(("late",))}
    assert kinds == {pa.float64()}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_what_cannot_be_read_is_a_data_error(tmp_path, kind):
    path = tmp_path / "x"
    path.write_bytes(b"\xff\xfe\x00broken\x00")
    with pytest.raises(DataError, match=r"cannot be read as (CSV|Parquet)"):
        open_frame(path, kind, ()).settle(("a",))


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_file_that_is_not_there_is_a_data_error(tmp_path, kind):
    with pytest.raises(DataError, match="cannot be read as"):
        open_frame(tmp_path / "gone", kind, ())


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@given(
    values=st.lists(
        st.tuples(st.integers(-99, 99), st.sampled_from(["a", "b c", 'd"e', "é,f"])), min_size=1, max_size=9
    )
)
def test_any_values_come_back(tmp_path_factory, suffix, values):
    numbers, words = (list(column) for column in zip(*values, strict=True))
    file = write(pa.table({"n": numbers, "w": words}), tmp_path_factory.mktemp("any") / f"x{suffix}")
    assert file.settle(("n", "w")) == len(values)
    assert whole(file, ("n", "w")).to_pydict() == {"n": numbers, "w": words}
