"""What every table source must pass: a file, a folder of files, a query, a frame."""

from __future__ import annotations

import bz2
import gzip

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data import csv_files, table_source
from fdml.data.table_digest import table_digest
from fdml.errors import DataError
from tests.data import origins
from tests.data.origins import ORIGINS, origin

TABLE = pa.table(
    {
        "user": [f"u{number:02}" for number in range(40)],
        "age": list(range(20, 60)),
        "height": [1.5 + number / 100 for number in range(40)],
        "paid": [number % 2 == 0 for number in range(40)],
        "late": [None] * 30 + [0.5] * 10,
    }
)


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BLOCK", 200)
    monkeypatch.setattr(table_source, "BATCH_ROWS", 6)


FILES = pytest.mark.parametrize("name", [*ORIGINS, "x.csv.gz", "x.csv.bz2"])


@pytest.fixture
def file(tmp_path, name):
    if name in ORIGINS:
        return origin(name, TABLE, tmp_path).table(())
    pa.csv.write_csv(TABLE, tmp_path / name)
    packed = {"gz": gzip.compress, "bz2": bz2.compress}[name.rpartition(".")[2]]
    (tmp_path / name).write_bytes(packed((tmp_path / name).read_bytes()))
    return origins.csv_files(tmp_path / name)


def whole(file, columns):
    return pa.Table.from_batches(list(file.batches(columns)))


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
    assert (first_age.column(0)[0].as_py(), first_user.column(0)[0].as_py()) == (20, "u00")
    assert whole(file, ("age",)).to_pydict() == TABLE.select(["age"]).to_pydict()


@FILES
def test_all_batches_have_one_type_also_where_the_first_rows_say_another(file):
    """In a CSV file `late` looks empty for many blocks."""
    file.settle(("late",))
    kinds = {batch.schema.field("late").type for batch in file.batches(("late",))}
    assert kinds == {pa.float64()}


@FILES
def test_rows_have_one_hash_whatever_the_cut(file, name, monkeypatch):
    """Types count too: a CSV file's are its own, and SQLite has no truth values."""
    monkeypatch.setattr(table_source, "BATCH_ROWS", 2**15)
    whole_rows = table_digest(origin("an Arrow table", TABLE, None).table(()))
    assert (table_digest(file) == whole_rows) is (name != "a query of SQLite")
    monkeypatch.setattr(table_source, "BATCH_ROWS", 6)
    assert table_digest(file) == table_digest(file)


@pytest.mark.parametrize("kind", [origins.csv_files, origins.parquet_files])
def test_what_cannot_be_read_is_a_data_error(tmp_path, kind):
    path = tmp_path / "x"
    path.write_bytes(b"a,\x00broken\x00\n1,2,3\n")
    with pytest.raises(DataError, match=r"cannot be read as (CSV|Parquet)"):
        kind(path).settle(("a",))


@pytest.mark.parametrize("name", ["a CSV file", "a Parquet file"])
@given(
    values=st.lists(
        st.tuples(st.integers(-99, 99), st.sampled_from(["a", "b c", 'd"e', "é,f"])), min_size=1, max_size=9
    )
)
def test_any_values_come_back(tmp_path_factory, name, values):
    numbers, words = (list(column) for column in zip(*values, strict=True))
    table = pa.table({"n": numbers, "w": words})
    file = origin(name, table, tmp_path_factory.mktemp("any")).table(())
    assert file.settle(("n", "w")) == len(values)
    assert whole(file, ("n", "w")).to_pydict() == {"n": numbers, "w": words}
