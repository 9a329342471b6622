import numpy as np
import pytest

from fdml.data.schedule import Visit
from fdml.server.matrix import PredictionMatrix

VISIT = Visit(0, 1, 2, 4)


def test_a_cell_is_zero_until_its_party_writes_it():
    matrix = PredictionMatrix(2, 2, 4, 3)
    made, values = matrix.read(1, VISIT)
    assert made == -1
    np.testing.assert_array_equal(values, np.zeros((2, 3)))


def test_a_party_writes_only_its_own_column_and_block():
    matrix = PredictionMatrix(2, 2, 4, 1)
    matrix.write(0, VISIT, 5, np.array([[7], [8]]))
    assert matrix.read(0, VISIT)[0] == 5
    assert matrix.read(0, VISIT)[1].ravel().tolist() == [7, 8]
    assert matrix.column(0).ravel().tolist() == [0, 0, 7, 8]
    assert matrix.column(1).ravel().tolist() == [0, 0, 0, 0]
    assert matrix.read(1, VISIT)[0] == -1
    assert matrix.read(0, Visit(0, 0, 0, 2))[0] == -1


def test_a_column_is_to_be_looked_at_only():
    with pytest.raises(ValueError, match="read-only"):
        PredictionMatrix(1, 2, 4, 1).column(0)[0] = 1
