import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import r2_score, roc_auc_score

from fdml.models.metrics import auc, r2

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
