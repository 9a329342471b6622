"""Gradients of losses in the kernels beside those in plain numpy."""

import numba
import numpy as np
import pytest

from fdml.models.kernels.gradients import KernelScores, logistic, row_gradient
from fdml.models.losses import loss_named
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, random_labels

TYPES = {np.float32: 3e-7, np.float64: 1e-14}


@numba.njit
def apply_logistic(values, powers):
    logistic(values, powers)


@pytest.mark.parametrize("dtype", TYPES)
def test_the_logistic_function_is_exact_to_the_last_digits(dtype):
    x = np.concatenate([np.linspace(-80, 80, 4001), [0.0, 1e-9, -1e-9]]).astype(dtype)
    found = x.copy()
    apply_logistic(found, np.empty(len(x), np.int32))
    exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    np.testing.assert_allclose(found, exact, rtol=0, atol=TYPES[dtype])
    small = x < -5
    np.testing.assert_allclose(found[small], exact[small], rtol=1e-5)


@pytest.mark.parametrize("dtype", TYPES)
def test_scores_far_out_have_a_probability_of_nearly_nothing_or_one(dtype):
    x = np.array([-1e30, -1000.0, -88.0, 88.0, 1000.0, 1e30], dtype)
    with np.errstate(all="ignore"):
        apply_logistic(x, np.empty(6, np.int32))
    assert np.isfinite(x).all()
    assert (x[:3] <= 1e-37).all()
    np.testing.assert_array_equal(x[3:], 1.0)


def test_probabilities_grow_with_the_score():
    x = np.linspace(-20, 20, 10_001).astype(np.float32)
    apply_logistic(x, np.empty(len(x), np.int32))
    assert (np.diff(x.astype(np.float64)) >= -1e-7).all()


@pytest.mark.parametrize("loss", CLASSES_OF)
def test_a_rows_gradient_is_its_share_of_the_batchs_mean_at_the_moved_score(loss):
    random, width, rows = np.random.default_rng(1), WIDTH_OF[loss], 9
    scores = KernelScores(
        total=random.normal(size=(rows, width)),
        own_at_push=random.normal(size=(rows, width)),
        echo=2.5,
        labels=random_labels(random, rows, loss),
        weights=random.uniform(0.5, 2.0, rows),
        loss=loss_named(loss).code,
    )
    for row in range(rows):
        own, score, out = random.normal(size=width), np.empty(width), np.empty(width)
        row_gradient(scores, row, 4, own, score, out)
        moved = scores.total[row] + 2.5 * (own - scores.own_at_push[row])
        expected = loss_named(loss).gradient(moved[None], scores.labels[[row]])[0] * scores.weights[row] / 4
        np.testing.assert_allclose(out, expected, rtol=1e-12, atol=1e-15)
