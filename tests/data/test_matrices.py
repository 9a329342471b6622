import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.matrices import Matrix, open_numpy
from fdml.errors import DataError


@pytest.fixture
def save(tmp_path):
    def write(content, name="file.svm"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def features(matrix, size=10**6):
    pieces = list(matrix.pieces(size))
    return sp.vstack(pieces).toarray() if sp.issparse(pieces[0]) else np.concatenate(pieces)


@pytest.fixture
def archive(tmp_path):
    def write(**arrays):
        path = tmp_path / "file.npz"
        np.savez(path, **arrays)
        return path

    return write


def test_a_npy_file_is_a_matrix(tmp_path):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3))
    matrix = open_numpy(tmp_path / "x.npy")
    assert (matrix.count, matrix.width) == (2, 3)
    assert features(matrix).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert features(matrix).dtype == np.float32
    assert (matrix.id_columns, matrix.labels, matrix.weights) == (None, None, None)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_a_sparse_npz_of_any_form_is_a_matrix(tmp_path, form, compressed):
    given = sp.random_array((6, 4), density=0.4, rng=np.random.default_rng(1)).asformat(form)
    sp.save_npz(tmp_path / "x.npz", given, compressed=compressed)
    matrix = open_numpy(tmp_path / "x.npz")
    for size in (1, 30, 10**6):
        pieces = list(matrix.pieces(size))
        assert {(piece.format, piece.dtype) for piece in pieces} == {("csr", np.dtype(np.float32))}
        np.testing.assert_allclose(features(matrix, size), given.toarray(), rtol=1e-6)


def test_an_archive_brings_ids_labels_and_weights(archive):
    matrix = open_numpy(
        archive(X=np.eye(2), y=np.array(["no", "yes"]), ids=np.array([4, 2]), weights=np.array([1.0, 2.0]))
    )
    assert features(matrix).tolist() == [[1, 0], [0, 1]]
    assert matrix.labels.tolist() == ["no", "yes"]
    assert {name: column.to_pylist() for name, column in matrix.id_columns.items()} == {"ids": [4, 2]}
    assert matrix.weights.tolist() == [1, 2]


def test_ids_may_have_several_columns(archive):
    columns = open_numpy(archive(X=np.eye(2), ids=np.array([[1, 2], [1, 3]]))).id_columns
    assert [column.to_pylist() for column in columns.values()] == [[1, 1], [2, 3]]


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
        ({"X": np.eye(2), "ids": np.zeros((2, 0))}, r"array 'ids' has shape \(2, 0\); give one value per row"),
        ({"X": np.eye(2), "ids": np.arange(3)}, "3 ids for 2 rows"),
        ({"X": np.eye(2), "weights": np.ones(3)}, "3 weights for 2 rows"),
        (
            {"X": np.eye(2), "weights": np.array([1, -1])},
            "weight column 'weights' is no finite number, zero or more, in data row 2",
        ),
    ],
)
def test_an_archive_that_cannot_be_used_says_why(archive, arrays, message):
    with pytest.raises(DataError, match=message):
        open_numpy(archive(**arrays))


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[{}]]), allow_pickle=True)
    with pytest.raises(DataError, match=r"cannot be read as a numpy file: Object arrays .*numpy.save"):
        open_numpy(tmp_path / "x.npy")


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04broken", b"\x93NUMPY\x01\x00broken"])
def test_a_broken_numpy_file_is_refused(save, content):
    with pytest.raises(DataError, match="cannot be read as a numpy file"):
        open_numpy(save(content, "x.npz"))


@pytest.mark.parametrize("form", [b"csr", b"csc"])
@pytest.mark.parametrize(
    ("indices", "indptr"),
    [([7], [0, 1, 1]), ([-1], [0, 1, 1]), ([0], [0, 5, 1]), ([0], [0, 1]), ([0], [1, 1, 1]), ([0], [0, 1, 9])],
)
def test_a_sparse_matrix_with_an_index_out_of_range_is_refused(archive, form, indices, indptr):
    broken = archive(
        format=np.array(form),
        shape=np.array([2, 2]),
        data=np.ones(1),
        indices=np.array(indices),
        indptr=np.array(indptr),
    )
    with pytest.raises(DataError, match=r"cannot be read as a sparse matrix: .*; save it again"):
        open_numpy(broken)


def test_a_number_too_large_for_float32_becomes_infinite(archive):
    assert np.isinf(features(open_numpy(archive(X=np.array([[1e300]]))))).all()


def test_a_dense_matrix_is_read_in_pieces_of_whole_rows(archive):
    given = np.arange(21.0).reshape(7, 3)
    for order in "CF":
        matrix = open_numpy(archive(X=np.array(given, order=order)))
        pieces = list(matrix.pieces(24))
        assert [len(piece) for piece in pieces] == [2, 2, 2, 1]
        assert all(type(piece) is np.ndarray and piece.flags.c_contiguous and piece.flags.owndata for piece in pieces)
        np.testing.assert_array_equal(np.concatenate(pieces), given)


def test_a_sparse_matrix_is_read_in_pieces_of_about_equal_size(tmp_path):
    given = sp.csr_array(np.array([[1, 2, 3], [0, 0, 0], [4, 0, 0], [5, 6, 0], [0, 0, 7]], np.float32))
    sp.save_npz(tmp_path / "x.npz", given, compressed=False)
    matrix = open_numpy(tmp_path / "x.npz")
    assert [piece.shape[0] for piece in matrix.pieces(8 * 4)] == [3, 2]
    assert [piece.shape[0] for piece in matrix.pieces(8)] == [1] * 5


@pytest.mark.parametrize("matrix", [np.zeros((3, 0)), sp.csr_array((3, 0))])
def test_a_matrix_may_have_no_features(tmp_path, matrix):
    if sp.issparse(matrix):
        sp.save_npz(tmp_path / "x.npz", matrix, compressed=False)
    else:
        np.savez(tmp_path / "x.npz", X=matrix)
    assert features(open_numpy(tmp_path / "x.npz")).shape == (3, 0)


def test_labels_of_another_count_are_refused():
    with pytest.raises(DataError, match="2 labels for 3 rows"):
        Matrix(3, 1, lambda size: iter(()), labels=np.ones(2))
