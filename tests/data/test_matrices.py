import bz2
import gzip

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.matrices import number_from_one, read_libsvm, read_numpy
from fdml.errors import DataError, LabelError


@pytest.fixture
def save(tmp_path):
    def write(content, name="file.svm"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def archive(tmp_path):
    def write(**arrays):
        path = tmp_path / "file.npz"
        np.savez(path, **arrays)
        return path

    return write


@pytest.mark.parametrize(
    ("pack", "name"),
    [(bytes, "file"), (gzip.compress, "file.gz"), (bz2.compress, "file.bz2")],
    ids=["plain", "gz", "bz2"],
)
def test_libsvm_is_read_plain_and_compressed(save, pack, name):
    path = save(pack(b"+1 1:0.5 3:2 # note\n-1 2:1\n"), name)
    (matrix,) = number_from_one([read_libsvm(path)])
    assert matrix.features.toarray().tolist() == [[0.5, 0, 2], [0, 1, 0]]
    assert matrix.features.dtype == np.float32
    assert matrix.labels.tolist() == [1, -1]


def test_files_of_one_party_get_the_width_of_the_widest(save):
    narrow, wide = save(b"1 1:1\n", "narrow"), save(b"1 4:1\n", "wide")
    for first, second in ((narrow, wide), (wide, narrow)):
        read = number_from_one([read_libsvm(first), read_libsvm(second)])
        assert [matrix.features.shape for matrix in read] == [(1, 4), (1, 4)]


def test_a_feature_0_in_one_file_moves_the_numbers_of_all(save):
    plain, from_zero = save(b"1 1:1\n", "plain"), save(b"1 0:1 2:1\n", "zero")
    read = number_from_one([read_libsvm(plain), read_libsvm(from_zero)])
    assert [matrix.features.toarray().tolist() for matrix in read] == [[[0, 1, 0]], [[1, 0, 1]]]


def test_libsvm_without_features_has_width_0(save):
    (matrix,) = number_from_one([read_libsvm(save(b"1\n0\n"))])
    assert matrix.features.shape == (2, 0)
    assert matrix.labels.tolist() == [1, 0]


@pytest.mark.parametrize("content", [b"age,income\n1,2\n", b"1 2:x\n", b"1 3:1 2:1\n", b"1,2 1:1\n", b"\xff\xfe"])
def test_what_is_not_libsvm_names_the_way_out(save, content):
    with pytest.raises(DataError, match=r"cannot be read as LIBSVM: .*; if it is something else, set data.format"):
        read_libsvm(save(content))


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "file.gz"), (bz2.compress, "file.bz2")])
def test_a_compressed_file_cut_short_is_refused(save, pack, name):
    with pytest.raises(DataError, match="cannot be read as LIBSVM"):
        read_libsvm(save(pack(b"1 1:1\n" * 1000)[:-20], name))


def test_a_libsvm_label_that_is_no_number_is_refused(save):
    with pytest.raises(LabelError, match="label column 'y' has no value in data row 2"):
        read_libsvm(save(b"1 1:1\nnan 1:1\n"))


def test_a_npy_file_is_a_matrix(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3))
    matrix = read_numpy(tmp_path / "x.npy")
    assert matrix.features.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert matrix.features.dtype == np.float32
    assert (matrix.ids, matrix.labels, matrix.weights) == (None, None, None)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_sparse_npz_of_any_form_is_a_matrix(tmp_path, form):
    given = sp.random_array((6, 4), density=0.4, rng=np.random.default_rng(1)).asformat(form)
    sp.save_npz(tmp_path / "x.npz", given)
    features = read_numpy(tmp_path / "x.npz").features
    assert (features.format, features.dtype) == ("csr", np.float32)
    np.testing.assert_allclose(features.toarray(), given.toarray(), rtol=1e-6)


def test_an_archive_brings_ids_labels_and_weights(archive):
    matrix = read_numpy(
        archive(X=np.eye(2), y=np.array(["no", "yes"]), ids=np.array([4, 2]), weights=np.array([1.0, 2.0]))
    )
    assert matrix.features.tolist() == [[1, 0], [0, 1]]
    assert matrix.labels.tolist() == ["no", "yes"]
    assert (matrix.ids.tolist(), matrix.weights.tolist()) == ([4, 2], [1, 2])


def test_ids_of_two_columns_are_tuples(archive):
    assert read_numpy(archive(X=np.eye(2), ids=np.array([[1, 2], [1, 3]]))).ids.tolist() == [(1, 2), (1, 3)]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.eye(2), "weight": np.ones(2)}, "no use for the array 'weight'; did you mean 'weights'"),
        ({"y": np.ones(2)}, "there is no array 'X'; there are: y"),
        ({"X": np.zeros(3)}, r"the features have shape \(3,\); give a matrix of rows x features"),
        ({"X": np.zeros((2, 2, 2))}, r"the features have shape \(2, 2, 2\)"),
        ({"X": np.eye(2, dtype=complex)}, "the features are of type complex128; convert them to float32"),
        ({"X": np.array([["a"]])}, "the features are of type <U1; convert them to float32"),
        ({"X": np.eye(2), "y": np.eye(2)}, r"array 'y' has shape \(2, 2\); give one value per row"),
        ({"X": np.eye(2), "y": np.ones(2, complex)}, "array 'y' is of type complex128; give numbers or text"),
        ({"X": np.eye(2), "y": np.array([1, np.nan])}, "label column 'y' has no value in data row 2"),
        ({"X": np.eye(2), "ids": np.array([1.5, 2])}, "id column 'ids' holds double"),
        ({"X": np.eye(2), "weights": np.array([1, -1])}, "weight column 'weights' is -1.0 in data row 2"),
    ],
)
def test_an_archive_that_cannot_be_used_says_why(archive, arrays, message):
    with pytest.raises(DataError, match=message):
        read_numpy(archive(**arrays))


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(DataError, match=r"cannot be read as a numpy file: Object arrays .*numpy.save"):
        read_numpy(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken", b"\x93NUMPY\x01\x00broken"])
def test_a_broken_numpy_file_is_refused(save, content):
    with pytest.raises(DataError, match="cannot be read as a numpy file"):
        read_numpy(save(content, "x.npz"))


@pytest.mark.parametrize("form", [b"csr", b"csc"])
def test_a_sparse_matrix_with_an_index_out_of_range_is_refused(archive, form):
    broken = archive(
        format=np.array(form),
        shape=np.array([2, 2]),
        data=np.ones(1),
        indices=np.array([7]),
        indptr=np.array([0, 1, 1]),
    )
    with pytest.raises(DataError, match=r"cannot be read as a sparse matrix: .*; save it again"):
        read_numpy(broken)


def test_a_number_too_large_for_float32_becomes_infinite(archive):
    assert np.isinf(read_numpy(archive(X=np.array([[1e300]]))).features).all()
