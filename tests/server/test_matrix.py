import numpy as np
import pytest

from fdml.protocol.messages import Release
from fdml.protocol.schedule import Visit
from fdml.server.matrix import PredictionMatrix

VISIT = Visit(0, 1, 2, 4)
RELEASE = Release(np.array([[7], [8]]), 2**63 + 5, 0.25)


def test_a_cell_is_zero_until_its_party_writes_it():
    part = PredictionMatrix(2, 2, 4, 3).read(1, VISIT)
    assert (part.pushed_at, part.release.mask_id, part.release.variance) == (-1, 0, 0.0)
    np.testing.assert_array_equal(part.release.values, np.zeros((2, 3)))


def test_a_party_writes_only_its_own_column_and_block():
    matrix = PredictionMatrix(2, 2, 4, 1)
    matrix.write(0, VISIT, 5, RELEASE)
    written = matrix.read(0, VISIT)
    assert (written.pushed_at, written.release.mask_id, written.release.variance) == (5, RELEASE.mask_id, 0.25)
    assert written.release.values.ravel().tolist() == [7, 8]
    assert matrix.column(0).ravel().tolist() == [0, 0, 7, 8]
    assert matrix.column(1).ravel().tolist() == [0, 0, 0, 0]
    for other in (matrix.read(1, VISIT), matrix.read(0, Visit(0, 0, 0, 2))):
        assert (other.pushed_at, other.release.mask_id, other.release.variance) == (-1, 0, 0.0)


def test_a_restored_matrix_reads_as_the_one_that_gave_the_state_and_moves_on_its_own():
    matrix, other = PredictionMatrix(2, 2, 4, 1), PredictionMatrix(2, 2, 4, 1)
    matrix.write(0, VISIT, 5, RELEASE)
    other.restore(matrix.state())
    np.testing.assert_equal(other.state(), matrix.state())
    matrix.write(0, VISIT, 6, Release(np.array([[1], [2]]), 3, 4.0))
    part = other.read(0, VISIT)
    assert (part.pushed_at, part.release.mask_id, part.release.variance) == (5, RELEASE.mask_id, 0.25)
    assert part.release.values.ravel().tolist() == [7, 8]


def test_a_column_is_to_be_looked_at_only():
    with pytest.raises(ValueError, match="read-only"):
        PredictionMatrix(1, 2, 4, 1).column(0)[0] = 1
