"""Scaling inside the estimators, against scikit-learn's scaler and by what must not change."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler

from fdml.experiments import input_scaling
from fdml.experiments.input_scaling import InputScaling

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(50, 4)) * [1e-3, 1.0, 50.0, 1e4] + [0.0, 5.0, -100.0, 1e6]
ONES = np.ones(len(X))


@pytest.mark.parametrize("weights", [ONES, RANDOM.random(50)])
def test_dense_columns_get_mean_0_and_variance_1(weights):
    ours = InputScaling.fit(X, weights)
    theirs = StandardScaler().fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.centre, theirs.mean_, rtol=1e-12)
    np.testing.assert_allclose(ours.spread, theirs.scale_, rtol=1e-9)
    np.testing.assert_allclose(ours.apply(X), theirs.transform(X), rtol=1e-5, atol=1e-6)
    assert ours.apply(X).dtype == np.float32


def test_piece_by_piece_it_is_the_same(monkeypatch):
    whole = InputScaling.fit(X, ONES).apply(X)
    monkeypatch.setattr(input_scaling, "_PIECE_BYTES", 7 * 8 * 4)
    np.testing.assert_allclose(InputScaling.fit(X, ONES).apply(X), whole, rtol=1e-6)


def test_a_constant_column_is_only_centred():
    constant = np.column_stack([X[:, 0], np.full(len(X), 0.1)])
    scaling = InputScaling.fit(constant, ONES)
    assert (scaling.centre[1], scaling.spread[1]) == (0.1, 1.0)
    assert not scaling.apply(constant)[:, 1].any()


def test_rows_without_weight_count_for_nothing():
    spoiled = np.vstack([X, X + 1e9])
    weights = np.concatenate([ONES, np.zeros(len(X))])
    ours, clean = InputScaling.fit(spoiled, weights), InputScaling.fit(X, ONES)
    np.testing.assert_array_equal(ours.centre, clean.centre)
    np.testing.assert_array_equal(ours.spread, clean.spread)


def sparse(dense):
    return sp.csr_array(dense)


def test_sparse_entries_get_mean_square_1_and_stay_sparse():
    dense = np.where(RANDOM.random((60, 3)) < 0.3, RANDOM.normal(size=(60, 3)) * [1e-3, 1.0, 1e3], 0.0)
    scaling = InputScaling.fit(sparse(dense), np.ones(60))
    scaled = scaling.apply(sparse(dense))
    assert sp.issparse(scaled)
    assert scaled.nnz == np.count_nonzero(dense)
    for column in scaled.toarray().T:
        assert np.mean(np.square(column[column != 0])) == pytest.approx(1.0, rel=1e-5)
    np.testing.assert_allclose(scaling.apply(dense), scaled.toarray(), rtol=1e-6)


def test_columns_of_zeros_and_ones_stay_as_they_are_if_sparse():
    indicators = sparse((RANDOM.random((60, 5)) < 0.1).astype(float))
    scaling = InputScaling.fit(indicators, RANDOM.random(60))
    assert scaling.changes_nothing
    assert scaling.apply(indicators) is indicators


def test_empty_columns_and_stored_zeros_of_sparse_rows_do_no_harm():
    stored = sp.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2])), shape=(1, 3))
    assert InputScaling.fit(stored, np.ones(1)).spread.tolist() == [1.0, 2.0, 1.0]


def test_sparse_rows_for_what_was_learned_from_dense_ones_become_dense():
    scaling = InputScaling.fit(X, ONES)
    np.testing.assert_array_equal(scaling.apply(sparse(X)), scaling.apply(X))


def test_none_changes_nothing():
    assert InputScaling.none(4).apply(X) is X
