import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.models.calibration import IDENTITY, calibrate
from fdml.models.losses import LOSSES
from fdml.models.metrics import mean_loss
from tests.models.random_updates import CLASSES_OF

LOSSES_WITH_A_MINIMUM = ["logistic", "squared", "softmax"]


def sample_of(score, loss, random, weights=None):
    """Labels drawn as these scores say."""
    rows = len(score)
    if loss == "squared":
        labels = score[:, 0] + 0.1 * random.normal(size=rows)
    else:
        chances = LOSSES[loss].probability(score)
        labels = (chances.cumsum(axis=1) < random.uniform(size=(rows, 1))).sum(axis=1).astype(np.float64)
    return RowSet({}, labels, np.ones(rows) if weights is None else weights)


def test_the_identity_changes_nothing():
    score = np.random.default_rng(0).normal(size=(5, 3))
    np.testing.assert_array_equal(IDENTITY.apply(score), score)


@pytest.mark.parametrize("loss", LOSSES_WITH_A_MINIMUM)
def test_a_score_that_was_stretched_and_moved_is_brought_back(loss):
    random = np.random.default_rng(4)
    true = random.normal(size=(20_000, max(1, CLASSES_OF[loss] if loss == "softmax" else 1)))
    sample = sample_of(true, loss, random)
    offset = np.linspace(-1.0, 1.0, true.shape[1])
    found = calibrate(loss, 4.0 * true + offset, sample)
    assert found.scale == pytest.approx(0.25, rel=0.1)
    back = found.apply(4.0 * true + offset)
    if loss == "softmax":  # of which a constant for all classes is no part
        back, true = (each - each.mean(axis=1, keepdims=True) for each in (back, true))
    np.testing.assert_allclose(back, true, atol=0.5)
    assert mean_loss(loss, back, sample) <= mean_loss(loss, true, sample) + 1e-3


@pytest.mark.parametrize("loss", LOSSES_WITH_A_MINIMUM)
def test_no_other_scale_or_offset_is_better(loss):
    random = np.random.default_rng(5)
    score = random.normal(size=(500, 3 if loss == "softmax" else 1))
    sample = sample_of(2.0 * score - 0.5, loss, random, random.uniform(0.2, 2.0, 500))
    found = calibrate(loss, score, sample)
    least = mean_loss(loss, found.apply(score), sample)
    for _ in range(30):
        scale, offset = found.scale + 0.1 * random.normal(), found.offset + 0.1 * random.normal(size=found.offset.shape)
        assert mean_loss(loss, scale * score + offset, sample) >= least - 1e-9
