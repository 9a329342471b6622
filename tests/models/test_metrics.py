import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from fdml.data.row_set import RowSet
from fdml.errors import LabelError
from fdml.models.metrics import auc, mean_loss, metric, r2


def sample_of(labels, weights=None):
    labels = np.asarray(labels, np.float64)
    return RowSet({}, labels, np.ones(len(labels)) if weights is None else weights)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 60), levels=st.integers(1, 20))
def test_the_auc_is_scikit_learns_with_weights_and_ties(seed, rows, levels):
    random = np.random.default_rng(seed)
    labels = np.concatenate([[0.0, 1.0], random.integers(0, 2, rows - 2)])
    score, weights = random.integers(0, levels, rows) / 3.0, random.uniform(0.1, 2.0, rows)
    assert auc(labels, score, weights) == pytest.approx(roc_auc_score(labels, score, sample_weight=weights))


def test_rows_without_weight_do_not_count():
    labels, score = np.array([0.0, 1.0, 1.0]), np.array([0.3, 0.9, 0.1])
    assert auc(labels, score, np.array([1.0, 1.0, 0.0])) == 1.0
    assert auc(labels, score, np.ones(3)) == 0.5


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(2, 60))
def test_r2_is_scikit_learns_with_weights(seed, rows):
    random = np.random.default_rng(seed)
    targets, score, weights = random.normal(size=rows), random.normal(size=rows), random.uniform(0.1, 2.0, rows)
    assert r2(targets, score, weights) == pytest.approx(r2_score(targets, score, sample_weight=weights))


def test_targets_that_are_all_the_same_are_explained_wholly_or_not_at_all():
    same, ones = np.full(4, 3.0), np.ones(4)
    assert r2(same, same, ones) == 1.0
    assert r2(same, same + 1.0, ones) == 0.0


def test_the_metric_fits_the_task():
    random = np.random.default_rng(1)
    score, labels = random.normal(size=(30, 3)), random.integers(0, 3, 30)
    assert metric("multiclass", score, sample_of(labels)) == np.mean(score.argmax(axis=1) == labels)
    assert metric("binary", score[:, :1], sample_of(labels > 0)) == pytest.approx(
        roc_auc_score(labels > 0, score[:, 0])
    )
    assert metric("regression", score[:, :1], sample_of(labels)) == pytest.approx(r2_score(labels, score[:, 0]))


def test_rows_of_one_class_have_no_auc():
    with pytest.raises(LabelError, match="all test rows have the same label, so there is no AUC; hold out more rows"):
        metric("binary", np.zeros((3, 1)), sample_of([1, 1, 1]))


def test_the_mean_loss_counts_every_row_with_its_weight():
    random = np.random.default_rng(2)
    score, labels, weights = random.normal(size=(20, 1)), random.integers(0, 2, 20), random.uniform(0.1, 2.0, 20)
    expected = log_loss(labels, 1.0 / (1.0 + np.exp(-score[:, 0])), sample_weight=weights)
    assert mean_loss("logistic", score, sample_of(labels, weights)) == pytest.approx(expected)
