import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score, roc_auc_score

from fdml.data.row_set import RowSet
from fdml.models.metrics import auc, mean_loss, metric, r2

ROWS = st.lists(
    st.tuples(st.booleans(), st.sampled_from([-2.0, -0.5, 0.0, 1e-9, 3.0]), st.sampled_from([0.5, 1.0, 2.0])),
    min_size=2,
    max_size=40,
).filter(lambda rows: len({label for label, _, _ in rows}) == 2)


@given(ROWS)
def test_our_auc_is_that_of_scikit_learn_with_ties_and_weights(rows):
    labels, score, weights = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    assert auc(labels, score, weights) == pytest.approx(roc_auc_score(labels, score, sample_weight=weights), abs=1e-12)


def test_rows_without_weight_do_not_count():
    labels, score = np.array([0.0, 1.0, 1.0]), np.array([0.3, 0.9, 0.1])
    assert auc(labels, score, np.array([1.0, 1.0, 0.0])) == 1.0
    assert auc(labels, score, np.ones(3)) == 0.5


@given(
    st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9), st.sampled_from([0.5, 1.0, 2.0])), min_size=2, max_size=30)
)
def test_our_r2_is_that_of_scikit_learn(rows):
    targets, score, weights = (np.array(column, np.float64) for column in zip(*rows, strict=True))
    if np.ptp(targets) > 1e-3:
        assert r2(targets, score, weights) == pytest.approx(r2_score(targets, score, sample_weight=weights), abs=1e-9)


def test_equal_targets_are_explained_by_nothing_but_themselves():
    same = np.full(4, 2.5)
    assert r2(same, same, np.ones(4)) == 1.0
    assert r2(same, same + 1, np.ones(4)) == 0.0


def test_metrics_are_those_of_their_names():
    sample = RowSet({}, np.array([0.0, 1.0, 1.0, 0.0]), np.ones(4))
    assert metric("binary", np.array([[0.1], [0.9], [0.4], [0.4]]), sample) == 0.875
    assert metric("multiclass", np.array([[1, 0], [0, 1], [1, 0], [1, 0]]), sample) == 0.75
    assert metric("regression", sample.labels[:, None], sample) == 1.0


def test_rows_count_by_their_weight():
    sample = RowSet({}, np.array([0.0, 1.0, 1.0]), np.array([1.0, 2.0, 5.0]))
    assert metric("multiclass", np.array([[1, 0], [0, 1], [1, 0]]), sample) == pytest.approx(3 / 8)
    losses = np.array([0.5 * 1.0, 0.5 * 4.0, 0.0])
    score = np.array([[1.0], [3.0], [1.0]])
    assert mean_loss("squared", score, sample) == pytest.approx(losses @ sample.weights / 8)


def test_rows_of_one_label_have_no_auc():
    sample = RowSet({}, np.ones(3), np.ones(3))
    assert np.isnan(metric("binary", np.zeros((3, 1)), sample))


def test_a_score_that_says_nothing_has_an_auc_of_a_half():
    labels = np.array([0.0, 1.0, 0.0, 1.0])
    assert auc(labels, np.zeros(4), np.ones(4)) == 0.5
