from hashlib import sha256
from importlib.resources import files

import numpy as np
import pytest

from fdml.data.rows import SparseRows
from fdml.data.samples.adult import BOUNDS, CATEGORIES, a9a, adult

HASHES = {
    "train": "395b80c8841b6a36175bce9b9af6d9f35d46cc101ef1152efa61df3cc4c8b97b",
    "test": "7170c20d868dd4af1c5beeee25da994a41cd6aedec11ae2f714654dc88875dc2",
}
FIRST_FEATURES = {
    "age": 1,
    "workclass": 6,
    "fnlwgt": 14,
    "education": 19,
    "education-num": 35,
    "marital-status": 40,
    "occupation": 47,
    "relationship": 61,
    "race": 67,
    "sex": 72,
    "capital-gain": 74,
    "capital-loss": 76,
    "hours-per-week": 78,
    "native-country": 83,
}


@pytest.fixture(scope="module")
def data():
    return a9a()


@pytest.fixture(scope="module")
def raw():
    return adult()


@pytest.mark.parametrize("part", ["train", "test"])
def test_a9a_equals_the_libsvm_file_bit_by_bit(data, part):
    table = getattr(data, part)
    content = (table.rows.indptr.astype("<i4"), table.rows.indices.astype("<i4"), table.labels.astype(np.uint8))
    assert sha256(b"".join(array.tobytes() for array in content)).hexdigest() == HASHES[part]


@pytest.mark.parametrize(("part", "rows", "positives"), [("train", 32_561, 7_841), ("test", 16_281, 3_846)])
def test_a9a_is_sparse_rows_of_ones_with_labels_0_and_1(data, part, rows, positives):
    table = getattr(data, part)
    assert isinstance(table.rows, SparseRows)
    assert (len(table), table.rows.width) == (rows, 123)
    assert table.rows.values.dtype == np.float32
    assert set(table.rows.values.tolist()) == {1.0}
    assert table.labels.dtype == np.int64
    assert np.bincount(table.labels).tolist() == [rows - positives, positives]


def test_every_feature_says_what_it_means(data):
    names = data.train.names
    assert data.test.names == names
    assert len(set(names)) == 123
    assert names[:6] == ("age<=25", "age<=32", "age<=40", "age<=49", "age>49", "workclass=Private")
    for column, first in FIRST_FEATURES.items():
        assert names[first - 1].startswith((f"{column}=", f"{column}<="))


def test_a_feature_is_set_where_its_name_holds(data, raw):
    at = dict(zip(data.test.names, range(123), strict=True))
    for number, row in enumerate(raw.test.slice(0, 50).to_pylist()):
        entries = data.test.rows.indices[data.test.rows.indptr[number] : data.test.rows.indptr[number + 1]]
        for column in CATEGORIES:
            if row[column] is not None:
                assert at[f"{column}={row[column]}"] in entries
        for column, bounds in BOUNDS.items():
            assert (at[f"{column}>{bounds[-1]}"] in entries) == (row[column] > bounds[-1])


def test_adult_has_its_columns_and_clean_labels(raw):
    for part in raw:
        assert part.column_names == [*FIRST_FEATURES, "income"]
        assert set(part.column("income").to_pylist()) == {">50K", "<=50K"}


def test_an_unknown_value_of_adult_is_null(raw):
    assert {
        name: raw.train.column(name).null_count for name in raw.train.column_names if raw.train.column(name).null_count
    } == {
        "workclass": 1_836,
        "occupation": 1_843,
        "native-country": 583,
    }


def test_the_bundled_files_are_small_and_name_their_licence():
    folder = files("fdml.data.samples").joinpath("adult_files")
    assert sum(len(folder.joinpath(f"{part}.csv.xz").read_bytes()) for part in HASHES) < 600_000
    licence = folder.joinpath("LICENSE.txt").read_text(encoding="utf-8")
    for part in ("Becker", "Kohavi", "CC BY 4.0", "archive.ics.uci.edu"):
        assert part in licence
