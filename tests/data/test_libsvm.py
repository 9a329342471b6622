import bz2
import gzip

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.datasets import dump_svmlight_file

from fdml.data.libsvm import matrix_of, numbering, scan
from fdml.errors import DataError, LabelError

PACKS = pytest.mark.parametrize(
    ("pack", "name"),
    [(bytes, "file"), (gzip.compress, "file.gz"), (bz2.compress, "file.bz2")],
    ids=["plain", "gz", "bz2"],
)


@pytest.fixture
def save(tmp_path):
    def write(content, name="file.svm"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def opened(*paths, size=10**6):
    scans = [scan(path, size) for path in paths]
    return [matrix_of(each, *numbering(scans)) for each in scans]


def dense(matrix, size=10**6):
    return sp.vstack(list(matrix.pieces(size))).toarray()


@PACKS
@pytest.mark.parametrize("size", [1, 10, 10**6])
def test_libsvm_is_read_plain_and_compressed_in_pieces_of_any_size(save, pack, name, size):
    path = save(pack(b"+1 1:0.5 3:2 # note\n-1 2:1\n"), name)
    (matrix,) = opened(path, size=size)
    assert (matrix.count, matrix.width) == (2, 3)
    assert dense(matrix, 2 * size).tolist() == [[0.5, 0, 2], [0, 1, 0]]
    assert next(matrix.pieces(size + 1)).dtype == np.float32
    assert matrix.labels.tolist() == [1, -1]


def test_pieces_end_with_a_line(save):
    (matrix,) = opened(save(b"1 1:1\n" * 10))
    assert [piece.shape[0] for piece in matrix.pieces(2 * 13)] == [3, 3, 3, 1]


@given(
    arrays(np.float32, st.tuples(st.integers(1, 8), st.integers(1, 5)), elements=st.integers(-2, 2).map(float)),
    st.integers(1, 40),
)
def test_what_scikit_learn_writes_comes_back(tmp_path_factory, matrix, size):
    path = tmp_path_factory.mktemp("libsvm") / "x"
    matrix[0, -1] = 1  # else the width is not in the file
    dump_svmlight_file(matrix, np.arange(len(matrix)), str(path), zero_based=False)
    (found,) = opened(path, size=size)
    np.testing.assert_array_equal(dense(found, 2 * size), matrix)
    assert found.labels.tolist() == list(range(len(matrix)))


def test_the_last_line_needs_no_end(save):
    (matrix,) = opened(save(b"1 1:1\n0 2:1"))
    assert dense(matrix).tolist() == [[1, 0], [0, 1]]


def test_files_of_one_party_get_the_width_of_the_widest(save):
    narrow, wide = save(b"1 1:1\n", "narrow"), save(b"1 4:1\n", "wide")
    for pair in ((narrow, wide), (wide, narrow)):
        assert [dense(matrix).shape for matrix in opened(*pair)] == [(1, 4), (1, 4)]


def test_a_feature_0_in_one_file_moves_the_numbers_of_all(save):
    plain, from_zero = save(b"1 1:1\n", "plain"), save(b"1 0:1 2:1\n", "zero")
    assert [dense(matrix).tolist() for matrix in opened(plain, from_zero)] == [[[0, 1, 0]], [[1, 0, 1]]]


def test_libsvm_without_features_has_width_0(save):
    (matrix,) = opened(save(b"1\n0\n"))
    assert dense(matrix).shape == (2, 0)
    assert matrix.labels.tolist() == [1, 0]


def test_an_empty_file_has_no_rows(save):
    (matrix,) = opened(save(b""))
    assert (matrix.count, list(matrix.pieces(10))) == (0, [])


@pytest.mark.parametrize("content", [b"age,income\n1,2\n", b"1 2:x\n", b"1 3:1 2:1\n", b"1,2 1:1\n", b"\xff\xfe"])
def test_what_is_not_libsvm_names_the_way_out(save, content):
    with pytest.raises(DataError, match=r"cannot be read as LIBSVM: .*; if it is something else, set data.format"):
        opened(save(content))


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "file.gz"), (bz2.compress, "file.bz2")])
def test_a_compressed_file_cut_short_is_refused(save, pack, name):
    with pytest.raises(DataError, match="cannot be read as LIBSVM"):
        opened(save(pack(b"1 1:1\n" * 1000)[:-20], name))


def test_a_label_that_is_no_number_is_refused_by_its_row_in_the_file(save):
    with pytest.raises(LabelError, match="label column 'y' has no value in data row 2"):
        opened(save(b"1 1:1\nnan 1:1\n"), size=1)
