import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.data.imputation import fit_imputation, impute
from fdml.errors import DataError

NAN = float("nan")
TRAIN = np.array([[1, NAN, 0], [3, 4, 0], [NAN, NAN, 2]], np.float32)
KINDS = pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])


def fills_for(train, rule):
    return fit_imputation([train], train.shape[1], rule)


def dense(features):
    return features.toarray() if sp.issparse(features) else features


@KINDS
def test_without_a_rule_nan_is_an_error_that_says_where_and_what_to_do(kind):
    message = (
        r"feature 2 of data row 1 is NaN \(3 such values\); set data.missing = \"indicator\", \"mean\" or \"zero\""
    )
    with pytest.raises(DataError, match=message):
        impute(kind(TRAIN), fills_for(kind(TRAIN), "error"))


@KINDS
def test_zero_fills_with_zero(kind):
    filled = impute(kind(TRAIN), fills_for(kind(TRAIN), "zero"))
    assert dense(filled).tolist() == [[1, 0, 0], [3, 4, 0], [0, 0, 2]]


@KINDS
def test_mean_fills_with_the_mean_of_training(kind):
    fills = fills_for(kind(TRAIN), "mean")
    assert fills.tolist() == pytest.approx([2, 4, 2 / 3])
    assert dense(impute(kind(np.array([[NAN, 9, 9]], np.float32)), fills)).tolist() == [[2, 9, 9]]


@KINDS
def test_a_feature_that_is_always_missing_becomes_zero(kind):
    assert fills_for(kind(np.full((2, 1), NAN, np.float32)), "mean").tolist() == [0]


@KINDS
@pytest.mark.parametrize("rule", ["error", "mean", "zero"])
def test_infinity_is_an_error_under_every_rule(kind, rule):
    features = kind(np.array([[1, 2], [NAN, -np.inf]], np.float32))
    with pytest.raises(DataError, match="feature 2 of data row 2 is infinite or too large for float32; correct"):
        impute(features, fills_for(kind(np.eye(2, dtype=np.float32)), rule))


@KINDS
def test_features_with_nothing_missing_are_not_copied(kind):
    features = kind(np.eye(3, dtype=np.float32))
    assert impute(features, None) is features


numbers = st.sampled_from([0.0, 1.0, -3.0, NAN])


@given(arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 4)), elements=numbers))
def test_sparse_and_dense_are_filled_alike(matrix):
    sparse = sp.csr_array(matrix)
    np.testing.assert_allclose(
        dense(impute(sparse, fills_for(sparse, "mean"))), impute(matrix, fills_for(matrix, "mean")), rtol=1e-6
    )


@KINDS
def test_the_row_is_right_where_the_first_value_of_a_row_is_missing(kind):
    with pytest.raises(DataError, match="feature 1 of data row 3 is NaN"):
        impute(kind(np.array([[1, 2], [3, 4], [NAN, 5]], np.float32)), None)


@KINDS
def test_the_row_is_counted_from_the_start_of_the_file(kind):
    with pytest.raises(DataError, match="feature 2 of data row 11 is NaN"):
        impute(kind(np.array([[1, NAN]], np.float32)), None, first=10)
    with pytest.raises(DataError, match="feature 1 of data row 12 is infinite"):
        impute(kind(np.array([[1, 2], [np.inf, 3]], np.float32)), None, first=10)


@given(arrays(np.float32, st.tuples(st.integers(1, 9), st.integers(1, 4)), elements=numbers), st.integers(1, 4))
def test_means_are_the_same_in_pieces_and_at_once(matrix, size):
    for kind in (np.asarray, sp.csr_array):
        pieces = [kind(matrix[start : start + size]) for start in range(0, len(matrix), size)]
        np.testing.assert_allclose(
            fit_imputation(pieces, matrix.shape[1], "mean"), fills_for(kind(matrix), "mean"), rtol=1e-6
        )


@pytest.mark.parametrize("rule", ["error", "zero"])
def test_only_the_mean_needs_to_look_at_the_features(rule):
    def unread():
        raise AssertionError("nothing is to be read")
        yield

    fills = fit_imputation(unread(), 2, rule)
    assert fills is None if rule == "error" else fills.tolist() == [0, 0]
