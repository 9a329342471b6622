import bz2
import gzip

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data import csv_files as module
from fdml.errors import DataError
from tests.data.origins import csv_files
from tests.examples import examples


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "CSV_BLOCK", 40)


@pytest.fixture
def csv(tmp_path):
    def write(content, name="x.csv"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return tmp_path / name

    return write


def read(file, columns=None):
    columns = file.names if columns is None else columns
    file.settle(columns)
    return pa.Table.from_batches(list(file.batches(columns)))


def test_csv_columns_are_what_they_look_like_unless_read_as_text(csv):
    path = csv("code,size\n007,1\n012,\n")
    assert read(csv_files(path, ["code", "elsewhere"])).to_pydict() == {"code": ["007", "012"], "size": [1, None]}
    assert read(csv_files(path, [])).to_pydict()["code"] == [7, 12]


@pytest.mark.usefixtures("small_blocks")
def test_a_number_far_down_in_a_csv_file_can_still_be_a_fraction(csv):
    table = read(csv_files(csv("a,b\n" + "1,2\n" * 400 + "1.5,2\n"), []))
    assert [str(field.type) for field in table.schema] == ["double", "int64"]
    assert table.column("a")[-1].as_py() == 1.5


CELLS = {
    "null": "",
    "number": "12",
    "fraction": "1.5",
    "truth": "true",
    "zero": "0",
    "day": "2020-01-31",
    "time": "10:20:30",
    "moment": "2020-01-31 10:20:30",
    "fine": "2020-01-31 10:20:30.123456",
    "word": "abc",
    "na": "NA",
    "zoned": "2020-01-31 10:20:30Z",
    "fine zoned": "2020-01-31 10:20:30.5+02:00",
    "nan": "nan",
    "huge": "99999999999999999999",
    "quoted": '"1"',
    "empty text": '""',
}


@examples(200)
@given(st.lists(st.sampled_from(list(CELLS.values())), min_size=1, max_size=12))
def test_a_csv_column_in_blocks_is_taken_for_what_pyarrow_takes_the_whole_for(tmp_path_factory, cells):
    path = tmp_path_factory.mktemp("csv") / "x.csv"
    path.write_text("a,b\n" + "".join(f"{cell},{'x' * 30}\n" for cell in cells), encoding="utf-8")
    whole = pa.csv.read_csv(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "CSV_BLOCK", 70)
        table = read(csv_files(path, []))
    assert table.schema == whole.schema
    assert table.equals(whole)


@pytest.mark.usefixtures("small_blocks")
def test_a_column_may_be_loosened_more_than_once_and_beside_others(csv):
    rows = ["1,1"] * 20 + ["1.5,1"] * 20 + ["x,2020-01-01"] * 20 + ["y,z"] * 20
    table = read(csv_files(csv("a,b\n" + "\n".join(rows) + "\n"), []))
    assert table.column("a").to_pylist() == [row.split(",")[0] for row in rows]
    assert table.column("b").to_pylist() == [row.split(",")[1] for row in rows]


@pytest.mark.usefixtures("small_blocks")
def test_only_the_columns_asked_for_are_read_and_settled(csv):
    file = csv_files(csv("a,b,c\n" + "1,2,3\n" * 50 + "x,2,3.5\n"), [])
    assert file.settle(["c", "b"]) == 51
    (batch, *_) = file.batches(["c", "b"])
    assert [(field.name, str(field.type)) for field in batch.schema] == [("c", "double"), ("b", "int64")]
    assert len(list(file.batches(["b"]))) > 3


def test_text_columns_are_known_once_they_are_settled(csv):
    file = csv_files(csv("a,b,c\n1,x,y\n"), ["a"])
    file.settle(["b"])
    assert file.text_columns == ["a", "b"]


@pytest.mark.parametrize(("pack", "ending"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2")])
def test_a_compressed_csv_file_is_read(csv, pack, ending):
    assert read(csv_files(csv(pack(b"a\n1\n"), f"x.csv{ending}"), [])).to_pydict() == {"a": [1]}


def test_a_csv_file_of_a_header_alone_has_no_rows(csv):
    file = csv_files(csv("a,b\n"), [])
    assert file.names == ["a", "b"]
    assert file.settle(["a"]) == 0


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2,3\n", b"a\n\xff\n"])
def test_a_broken_csv_file_is_refused(csv, content):
    with pytest.raises(DataError, match="cannot be read as CSV in UTF-8 with commas"):
        csv_files(csv(content), ["a"]).settle(["a"])


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("broken", [b"1,2,3\n", b"1,\xff\n"])
def test_a_csv_file_broken_far_down_is_refused(csv, broken):
    file = csv_files(csv(b"a,b\n" + b"1,2\n" * 50 + broken), ["b"])
    with pytest.raises(DataError, match="cannot be read as CSV in UTF-8 with commas"):
        file.settle(["a", "b"])


def test_text_that_is_not_utf8_in_a_column_of_any_kind_is_bytes(csv):
    assert read(csv_files(csv(b"a,b\n1,\xff\n"), [])).column("b").to_pylist() == [b"\xff"]
