import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fdml.data.locations import filesystem_of, find_parts
from fdml.errors import DataError, SettingsError
from fdml.settings.data import DataSettings
from tests.data.origins import csv_files, parquet_files
from tests.data.s3 import s3_server


def touch(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": [1]}), path)
    return folder


def names(location, kind=None):
    return [part.name for part in find_parts(location, kind)[1]]


def test_files_of_a_folder_come_in_the_order_of_their_paths(tmp_path):
    touch(tmp_path, "b.parquet", "a/z.parquet", "a.parquet", "c/d/e.pq", "10.parquet", "9.parquet")
    assert names(tmp_path) == ["10.parquet", "9.parquet", "a.parquet", "a/z.parquet", "b.parquet", "c/d/e.pq"]


def test_hidden_files_and_others_are_left_out(tmp_path):
    touch(tmp_path, "a.parquet", "_metadata.parquet", ".x/b.parquet", "_temporary/c.parquet")
    (tmp_path / "_SUCCESS").touch()
    (tmp_path / "README.txt").write_text("hello")
    assert names(tmp_path) == ["a.parquet"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.parquet", ["a.parquet"]),
        ("y/?/*.parquet", ["1/b.parquet", "2/c.parquet"]),
        ("**/*.parquet", ["a.parquet", "y/1/b.parquet", "y/2/c.parquet", "y/2/m/d.parquet"]),
        ("y/[2]", ["2/c.parquet", "2/m/d.parquet"]),
        ("y/2/*/d.*", ["m/d.parquet"]),
    ],
)
def test_a_pattern_chooses_files_or_folders(tmp_path, pattern, found):
    touch(tmp_path, "a.parquet", "y/1/b.parquet", "y/2/c.parquet", "y/2/m/d.parquet")
    assert names(tmp_path / pattern) == found


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(tmp_path):
    touch(tmp_path, "a[1].parquet", "a1.parquet")
    assert names(tmp_path / "a[1].parquet") == ["a[1].parquet"]


def test_folders_give_columns(tmp_path):
    touch(tmp_path, "year=2025/city=Paris/a.parquet", "year=2026/city=S%C3%A3o%20Paulo/b.parquet")
    touch(tmp_path, "year=__HIVE_DEFAULT_PARTITION__/city=Lima/c.parquet")
    table = parquet_files(tmp_path)
    assert table.names == ["a", "year", "city"]
    assert table.settle(table.names) == 3
    read = pa.Table.from_batches(list(table.batches(("city", "a", "year"))))
    assert read.to_pydict() == {"city": ["Paris", "São Paulo", "Lima"], "a": [1, 1, 1], "year": [2025, 2026, None]}
    only = pa.Table.from_batches(list(table.batches(("year",))))
    assert only.to_pydict() == {"year": [2025, 2026, None]}


def test_folders_of_csv_files_give_columns_too(tmp_path):
    for code in ("007", "012"):
        (tmp_path / f"code={code}").mkdir()
        (tmp_path / f"code={code}" / "x.csv").write_text("a\n1\n2\n")
    table = csv_files(tmp_path)
    assert table.settle(("code",)) == 4
    assert [value for batch in table.batches(("code",)) for value in batch.column(0).to_pylist()] == ["007"] * 2 + [
        "012"
    ] * 2


@pytest.mark.parametrize("value", ["07", "1.5", "x", "9" * 20, "--1", "¹"])
def test_what_is_no_plain_whole_number_is_text(tmp_path, value):
    touch(tmp_path, f"k={value}/a.parquet", "k=1/b.parquet")
    table = parquet_files(tmp_path)
    assert sorted(batch.column(0)[0].as_py() for batch in table.batches(("k",))) == sorted(["1", value])


def test_a_column_that_is_to_be_text_is(tmp_path):
    touch(tmp_path, "k=7/a.parquet")
    assert next(iter(parquet_files(tmp_path, ["k"]).batches(("k",)))).column(0)[0].as_py() == "7"


FAULTS = {
    "no file or folder": (lambda home: home / "nowhere", "there is no file"),
    "no rows in it": (lambda home: touch(home, "x.txt") and home, "no CSV or Parquet file is there"),
    "no match": (lambda home: touch(home, "x.parquet") and home / "*.csv", "no CSV or Parquet file is there"),
    "two formats": (lambda home: (touch(home, "x.parquet", "y.csv"), home)[1], "holds CSV and Parquet files"),
    "other folders": (lambda home: touch(home, "a=1/x.parquet", "b=1/y.parquet"), "name other columns than"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_no_set_of_files_is_named(tmp_path, fault):
    make, message = FAULTS[fault]
    with pytest.raises(DataError, match=message):
        find_parts(make(tmp_path), None)


def test_a_folder_with_a_format_takes_files_of_any_ending(tmp_path):
    touch(tmp_path, "part-0", "part-1")
    assert names(tmp_path, "parquet") == ["part-0", "part-1"]
    with pytest.raises(DataError, match="not libsvm; name one file"):
        find_parts(tmp_path, "libsvm")


def test_a_column_in_file_and_folder_is_refused(tmp_path):
    touch(tmp_path, "a=1/x.parquet")
    with pytest.raises(DataError, match=r"column 'a' is in 'a=1/x.parquet' and in the names of its folders"):
        parquet_files(tmp_path)


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:hidden-one@bucket/rows",
        "s3://key@bucket/rows",
        "s3://bucket/rows?secret_key=hidden-one",
        "gs://someone@bucket/x.parquet",
        "hdfs://me:hidden-one@host/rows",
    ],
)
def test_a_secret_in_an_address_is_refused_and_not_repeated(address):
    with pytest.raises(SettingsError, match="set it in the environment") as raised:
        DataSettings(path=address)
    assert "hidden-one" not in str(raised.value)


def test_an_address_that_pyarrow_does_not_know_is_named():
    with pytest.raises(DataError, match="carrier-pigeon://x: cannot be reached"):
        find_parts("carrier-pigeon://x", None)


def test_a_file_address_is_read_like_a_path(tmp_path):
    touch(tmp_path, "rows/a.parquet", "rows/b.parquet")
    assert names(f"file://{tmp_path}/rows") == ["a.parquet", "b.parquet"]
    assert names(f"file://{tmp_path}/rows/b*.parquet") == ["b.parquet"]


def test_a_bucket_is_read_with_the_keys_of_the_environment(tmp_path, monkeypatch):
    touch(tmp_path, "bucket/rows/y=1/a.parquet", "bucket/rows/y=2/b.parquet", "bucket/other/c.parquet")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "something")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with s3_server(tmp_path) as (endpoint, asked):
        address = f"s3://bucket/rows?endpoint_override={endpoint}&scheme=http&region=eu-west-1"
        kind, parts = find_parts(address, None)
        assert (kind, [part.name for part in parts]) == ("parquet", ["y=1/a.parquet", "y=2/b.parquet"])
        table = parquet_files(address)
        assert table.settle(("a",)) == 2
        assert [batch.to_pydict() for batch in table.batches(("a", "y"))] == [
            {"a": [1], "y": [1]},
            {"a": [1], "y": [2]},
        ]
        assert parts[0].digest() == parts[1].digest()  # by size and time of change alone
        (tmp_path / "bucket/rows/y=2/b.parquet").write_bytes(b"longer" * 1000)
        assert parts[0].digest() != parts[1].digest()
    assert all("Credential=someone/" in authorization for authorization in asked)


def test_a_file_tells_its_size_and_time_and_another_content_has_others(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\n1\n")
    (part,) = find_parts(path, None)[1]
    assert part.size_and_time() == (4, path.stat().st_mtime_ns)
    path.write_text("a\n12\n")
    assert part.size_and_time()[0] == 5


def test_the_file_system_of_a_place_opens_its_files(tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n")
    for place in (tmp_path, tmp_path / "*.csv", f"file://{tmp_path}"):
        with filesystem_of(place).open_input_file(str(tmp_path / "x.csv")) as file:
            assert file.read() == b"a\n1\n"
