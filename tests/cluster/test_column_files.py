"""The columns of each group as files: the same rows, whatever their kind and however they are cut."""

import numpy as np
import pytest

from fdml.cluster import column_files
from fdml.cluster.column_files import cut_columns
from fdml.cluster.row_files import describe_rows, open_rows
from fdml.data.rows import PointedRows, SparseRows, columns, drop_unit_values, plain_rows, to_dense
from tests.models.random_updates import stored

X = np.where(np.random.default_rng(1).random((23, 7)) < 0.4, np.random.default_rng(2).normal(size=(23, 7)), 0.0)
GROUPS = [np.array([0, 1, 5]), np.array([2, 3, 4]), np.array([6])]


def kinds_of_rows():
    dense, sparse = stored(X, "dense"), stored(X, "sparse")
    pointers = np.array([3, -1, 3, 22, 0])
    return {
        "dense": dense,
        "sparse": sparse,
        "ones": drop_unit_values(stored(np.where(X, 1.0, 0.0), "sparse")),
        "pointed": PointedRows(sparse, pointers),
        "pointed dense": PointedRows(dense, pointers),
        "none": stored(X[:0], "sparse"),
    }


@pytest.mark.parametrize("kind", kinds_of_rows())
@pytest.mark.parametrize("chunk", [4, 2**16])
def test_every_group_has_its_columns_of_all_rows(kind, chunk, tmp_path, monkeypatch):
    monkeypatch.setattr(column_files, "_CHUNK", chunk)
    rows = kinds_of_rows()[kind]
    for found, features in zip(cut_columns(rows, GROUPS, tmp_path), GROUPS, strict=True):
        expected = columns(rows, features)
        np.testing.assert_array_equal(to_dense(found), to_dense(expected))
        assert isinstance(plain_rows(found), SparseRows) == isinstance(expected, SparseRows)


@pytest.mark.parametrize("kind", ["dense", "sparse", "pointed"])
def test_another_process_maps_the_files_as_they_are(kind, tmp_path):
    rows = kinds_of_rows()[kind]
    for number, found in enumerate(cut_columns(rows, GROUPS, tmp_path / "cut")):
        facts = describe_rows(found, tmp_path / f"more-{number}")
        assert facts["values"]["file"] == str(tmp_path / "cut" / str(number) / "values")
        np.testing.assert_array_equal(to_dense(open_rows(facts)), to_dense(found))


def test_the_files_are_their_owners_only(tmp_path):
    cut_columns(stored(X, "dense"), GROUPS, tmp_path / "cut")
    assert {folder.stat().st_mode & 0o777 for folder in (tmp_path / "cut").iterdir()} == {0o700}
