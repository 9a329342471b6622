import bz2
import gzip

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from fdml.data.readers import load
from fdml.data.rows import SparseRows, to_dense
from fdml.errors import DataError, LabelError
from fdml.settings.data import DataSettings

FRAME = pa.table(
    {
        "user": ["u1", "u2", "u3"],
        "age": [20, 40, 60],
        "city": ["Paris", "Lima", "Paris"],
        "paid": [1, 0, 1],
        "share": [1.0, 2.0, 3.0],
    }
)
FEATURES = np.array([[0.5, 0, 2], [0, -1, 0], [3, 0, 0]])


@pytest.fixture
def write(tmp_path):
    """Write a text as a file."""

    def writer(content, name):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return writer


def write_frame(frame, path):
    if path.suffix == ".parquet":
        pa.parquet.write_table(frame, path)
    else:
        pa.csv.write_csv(frame, path)
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(path.read_bytes()))
    return path


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.csv.gz", "x.csv.bz2"])
def test_a_table_of_columns_comes_back_from_every_format(tmp_path, name):
    path = write_frame(FRAME, tmp_path / name)
    table = load(DataSettings(path=path, id="user", label="paid", weight="share", scale="none")).train
    assert table.names == ("age", "city=Lima", "city=Paris")
    assert to_dense(table.rows).tolist() == [[20, 0, 1], [40, 1, 0], [60, 0, 1]]
    assert table.ids.tolist() == ["u1", "u2", "u3"]
    assert table.labels.tolist() == [1, 0, 1]
    assert table.weights.tolist() == [1, 2, 3]


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress])
@pytest.mark.parametrize("name", ["x.svm", "x.libsvm", "x.svmlight", "x", "x.t"])
def test_libsvm_comes_back_under_every_name(tmp_path, name, pack):
    path = tmp_path / (name + {gzip.compress: ".gz", bz2.compress: ".bz2"}.get(pack, ""))
    plain = tmp_path / "plain"
    dump_svmlight_file(FEATURES, [1, -1, 1], str(plain), zero_based=False)
    path.write_bytes(pack(plain.read_bytes()))
    table = load(DataSettings(path=path)).train
    assert isinstance(table.rows, SparseRows)
    assert table.names == ("1", "2", "3")
    np.testing.assert_array_equal(to_dense(table.rows), FEATURES)
    assert table.labels.tolist() == [1, -1, 1]


def test_numpy_files_come_back(tmp_path):
    np.save(tmp_path / "x.npy", FEATURES)
    sp.save_npz(tmp_path / "sparse.npz", sp.csr_array(FEATURES))
    np.savez(tmp_path / "more.npz", X=FEATURES, y=np.array([1, 0, 1]), ids=np.array(["a", "b", "c"]))
    tables = [load(DataSettings(path=tmp_path / name)).train for name in ("x.npy", "sparse.npz", "more.npz")]
    for table in tables:
        np.testing.assert_array_equal(to_dense(table.rows), FEATURES)
        assert table.names == ("1", "2", "3")
    assert [isinstance(table.rows, SparseRows) for table in tables] == [False, True, False]
    assert (tables[2].labels.tolist(), tables[2].ids.tolist()) == ([1, 0, 1], ["a", "b", "c"])


def test_the_format_set_goes_before_the_ending(write):
    path = write("a,b\n1,2\n", "x.svm")
    assert load(DataSettings(path=path, format="csv")).train.names == ("a", "b")


def test_a_party_without_a_test_file_has_no_test_table(write):
    assert load(DataSettings(path=write("a\n1\n", "x.csv"))).test is None


def test_test_rows_are_encoded_as_training_was(write):
    train = write("city,age\nParis,0\nLima,4\n", "train.csv")
    test = write("extra,age,city\n1,8,Oslo\n1,2,Lima\n", "test.csv")
    data = load(DataSettings(path=train, test_path=test))
    assert data.test.names == data.train.names == ("city=Lima", "city=Paris", "age")
    assert to_dense(data.test.rows).tolist() == [[0, 0, 3], [1, 0, 0]]


def test_a_text_column_of_training_is_text_in_the_test_file_whatever_it_looks_like(write):
    train, test = write("code,y\n007,a\nx,b\n", "train.csv"), write("code,y\n007,1\n008,2\n", "test.csv")
    data = load(DataSettings(path=train, test_path=test, label="y"))
    assert to_dense(data.test.rows).tolist() == [[1, 0], [0, 0]]
    assert data.test.labels.tolist() == ["1", "2"]


def test_ids_and_codes_of_a_csv_file_are_read_as_they_are_written(write):
    path = write("user,zip,shop\n001,01234,09\n", "x.csv")
    table = load(DataSettings(path=path, id="user", categorical="zip", hashed="shop", hash_size=1)).train
    assert table.ids.tolist() == ["001"]
    assert table.names == ("zip=01234", "shop#0")


def test_ids_of_several_columns_are_joined(write):
    path = write("user,app,x\n1,a,5\n2,b,6\n", "x.csv")
    assert load(DataSettings(path=path, id=["user", "app"])).train.ids.tolist() == ["1|a", "2|b"]


def test_libsvm_pairs_get_one_width(write):
    data = load(DataSettings(path=write("1 3:1\n", "x"), test_path=write("0 1:1\n", "x.t")))
    assert data.train.names == data.test.names == ("1", "2", "3")
    data = load(DataSettings(path=write("1 1:1\n", "x"), test_path=write("0 3:1\n", "x.t")))
    assert data.train.names == data.test.names == ("1", "2", "3")


def test_numpy_pairs_of_different_width_are_refused(tmp_path):
    np.save(tmp_path / "train.npy", np.eye(3))
    np.save(tmp_path / "test.npy", np.eye(2))
    with pytest.raises(DataError, match=r"test.npy: 2 features, but training has 3; give both the same features"):
        load(DataSettings(path=tmp_path / "train.npy", test_path=tmp_path / "test.npy"))


def test_missing_numbers_of_a_matrix_are_filled_from_training(tmp_path):
    np.save(tmp_path / "train.npy", np.array([[2.0], [4.0], [np.nan]]))
    np.save(tmp_path / "test.npy", np.array([[np.nan]]))
    paths = {"path": tmp_path / "train.npy", "test_path": tmp_path / "test.npy"}
    data = load(DataSettings(**paths, missing="mean"))
    assert (to_dense(data.train.rows).tolist(), to_dense(data.test.rows).tolist()) == ([[2], [4], [3]], [[3]])
    with pytest.raises(DataError, match=r"train.npy: feature 1 of data row 3 is NaN .* set data.missing"):
        load(DataSettings(**paths, missing="error"))
    data = load(DataSettings(**paths))
    assert (data.train.names, to_dense(data.train.rows).tolist()) == (("1", "1 is missing"), [[2, 0], [4, 0], [0, 1]])
    assert to_dense(data.test.rows).tolist() == [[0, 1]]


def test_a_missing_number_of_the_test_file_names_that_file(write):
    train, test = write("a,b\n1,2\n", "train.csv"), write("a,b\n1,2\n,3\n", "test.csv")
    with pytest.raises(DataError, match=r"test.csv: column 'a' has no value in data row 2 .*set data.missing"):
        load(DataSettings(path=train, test_path=test, missing="error"))


def test_a_column_that_the_test_file_lacks_is_named(write):
    train, test = write("age,y\n1,2\n", "train.csv"), write("aged,y\n1,2\n", "test.csv")
    with pytest.raises(DataError, match=r"test.csv: there is no column 'age'; did you mean 'aged'"):
        load(DataSettings(path=train, test_path=test))
    with pytest.raises(DataError, match=r"test.csv: there is no label column 'age'"):
        load(DataSettings(path=train, test_path=test, label="age"))


def test_a_label_party_may_have_no_features(write):
    table = load(DataSettings(path=write("user,y\n1,0\n2,1\n", "x.csv"), id="user", label="y")).train
    assert (table.names, len(table), table.labels.tolist()) == ((), 2, [0, 1])


def test_a_party_without_features_and_labels_is_refused(write):
    with pytest.raises(DataError, match=r"it has neither features nor labels; name some in data.columns"):
        load(DataSettings(path=write("user\n1\n", "x.csv"), id="user"))


@pytest.mark.parametrize(("content", "name"), [("a,y\n", "x.csv"), ("", "x.svm")])
def test_a_file_without_rows_is_refused(write, content, name):
    label = {"label": "y"} if name.endswith(".csv") else {}
    with pytest.raises(DataError, match=rf"{name}: it has no rows; give a file with at least one"):
        load(DataSettings(path=write(content, name), **label))


def test_a_matrix_without_rows_is_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((0, 2)))
    with pytest.raises(DataError, match=r"x.npy: it has no rows"):
        load(DataSettings(path=tmp_path / "x.npy"))


def test_a_file_that_is_not_there_is_named(tmp_path, write):
    with pytest.raises(DataError, match=r"there is no file '.*gone.csv'; correct data.path or data.test_path"):
        load(DataSettings(path=tmp_path / "gone.csv"))
    with pytest.raises(DataError, match=r"there is no file '.*gone.csv'"):
        load(DataSettings(path=write("a\n1\n", "x.csv"), test_path=tmp_path / "gone.csv"))


def test_an_unknown_ending_names_the_way_out(write):
    with pytest.raises(DataError, match=r"unknown ending '.xlsx'; set data.format = csv, parquet, libsvm or numpy"):
        load(DataSettings(path=write("", "x.xlsx")))


def test_training_and_test_file_have_the_same_format(write):
    with pytest.raises(DataError, match=r"x.csv is csv but .*x.svm is libsvm; give both in the same format"):
        load(DataSettings(path=write("a\n1\n", "x.csv"), test_path=write("1 1:1\n", "x.svm")))


@pytest.mark.parametrize("name", ["id", "label", "weight", "columns", "categorical", "hashed"])
def test_a_setting_that_names_a_column_is_refused_where_there_are_none(write, name):
    with pytest.raises(
        DataError, match=f"data.{name} names a column, but a libsvm file has no named columns; leave it"
    ):
        load(DataSettings(path=write("1 1:1\n", "x.svm"), **{name: "y"}))


def test_a_label_error_stays_a_label_error_with_the_name_of_the_file(write):
    with pytest.raises(LabelError, match=r"x.csv: label column 'y' has no value in data row 2"):
        load(DataSettings(path=write("a,y\n1,2\n1,\n", "x.csv"), label="y"))


def test_labels_that_do_not_fit_the_rows_name_the_file(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.eye(3), y=np.ones(2))
    with pytest.raises(DataError, match=r"x.npz: 2 labels for 3 rows"):
        load(DataSettings(path=tmp_path / "x.npz"))


DROPPING = {"missing": "drop", "duplicates": "first"}


@pytest.mark.parametrize("city", ["Lima", "city"])
def test_rows_that_are_dropped_by_their_ids_are_dropped_everywhere(write, city):
    """Once sparse, once dense."""
    path = write("user,x,city,y,w\nu1,1,Oslo,0,1\n,2,Rome,1,2\nu3,3,Lima,0,3\nu1,4,Kyiv,1,4\n", "x.csv")
    more = {"hashed": "city", "hash_size": 64} if city == "city" else {}
    table = load(DataSettings(path=path, id="user", label="y", weight="w", scale="none", ids=DROPPING, **more)).train
    assert isinstance(table.rows, SparseRows) == bool(more)
    assert to_dense(table.rows)[:, 0].tolist() == [1, 3]
    assert (table.ids.tolist(), table.labels.tolist(), table.weights.tolist()) == (["u1", "u3"], [0, 0], [1, 3])


def test_bad_ids_name_the_file_and_the_way_out(write):
    path = write("user,x\nu1,1\nu1,2\n", "x.csv")
    with pytest.raises(DataError, match=r"x.csv: it has 1 rows with a duplicate id .*set data.ids.duplicates"):
        load(DataSettings(path=path, id="user"))


def test_ids_of_an_archive_are_spelled_as_those_of_a_table(tmp_path):
    np.savez(tmp_path / "x.npz", X=np.eye(3), ids=np.array([4, 2, 4]))
    table = load(DataSettings(path=tmp_path / "x.npz", ids={"duplicates": "drop"})).train
    assert (table.ids.tolist(), to_dense(table.rows).tolist()) == (["2"], [[0, 1, 0]])


def test_a_file_with_no_row_left_is_refused(write):
    path = write("user,x\nu1,1\nu1,2\n", "x.csv")
    with pytest.raises(DataError, match=r"x.csv: no row is left that has an id of its own; check data.id and data.ids"):
        load(DataSettings(path=path, id="user", ids={"duplicates": "drop"}))
