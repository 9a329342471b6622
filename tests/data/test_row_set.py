"""Rows of all parties in one order: whichever are taken, every party's rows, labels and weights stay together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.row_set import RowSet, mean_one
from fdml.data.rows import as_rows, to_dense, width
from fdml.errors import DataError

ROWS = 6


@pytest.fixture
def rows():
    values = np.arange(ROWS * 3, dtype=np.float32).reshape(ROWS, 3)
    return RowSet({"a": as_rows(values[:, :1]), "b": as_rows(values[:, 1:])}, np.arange(6.0), np.arange(6.0) / 2.5)


def test_rows_that_are_taken_keep_their_labels_and_weights(rows):
    taken = rows.take(np.array([4, 0, 4]))
    assert len(taken) == 3
    assert taken.labels.tolist() == [4.0, 0.0, 4.0]
    assert taken.weights.tolist() == rows.weights[[4, 0, 4]].tolist()
    for name, part in rows.parts.items():
        np.testing.assert_array_equal(to_dense(taken.parts[name]), to_dense(part)[[4, 0, 4]])


def test_one_partys_rows_are_those_it_had(rows):
    alone = rows.only("b")
    assert list(alone.parts) == ["b"]
    assert alone.parts["b"] is rows.parts["b"]
    assert len(alone) == ROWS


def test_pooled_rows_have_all_features_side_by_side(rows):
    pooled = rows.pooled("all")
    assert list(pooled.parts) == ["all"]
    assert width(pooled.parts["all"]) == 3
    np.testing.assert_array_equal(to_dense(pooled.parts["all"]), np.arange(18.0).reshape(6, 3))
    assert pooled.labels is rows.labels


def test_without_weights_every_row_counts_once():
    assert mean_one(None, 3).tolist() == [1.0, 1.0, 1.0]


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=20))
def test_weights_have_mean_one_and_keep_their_ratios(weights):
    given_weights = np.array(weights)
    scaled = mean_one(given_weights, len(weights))
    assert scaled.mean() == pytest.approx(1.0)
    np.testing.assert_allclose(scaled * given_weights.sum(), given_weights * len(weights))


def test_weights_that_are_all_zero_are_refused():
    with pytest.raises(DataError, match="all row weights are zero; give at least one row a weight"):
        mean_one(np.zeros(3), 3)
