"""Attacks on runs whose parties send vectors: more numbers of a row tell more of its features."""

import numpy as np
import pytest

from fdml.audit.feature_reconstruction import attacks
from fdml.models.registry import model_settings
from fdml.settings import GuardSettings, TrainingSettings
from tests.audit.recorded import recorded

pytestmark = pytest.mark.slow
LOUD = GuardSettings(clip=2, noise="gaussian", sigma=16)
ROWS, FEATURES = 300, 6


def run_of(joint, guard=None, parties="ab"):
    chance = np.random.default_rng(1)
    parts = {name: (chance.random((ROWS, FEATURES)) < 0.4).astype(np.float32) for name in parties}
    labels = (sum(values[:, 0] for values in parts.values()) > 0.5).astype(float)
    given = {} if joint == "sum" else {"joint": joint, "joint_width": 4}
    training = TrainingSettings(epochs=3, batch_size=30, batches_per_block=5, learning_rate=0.1, **given)
    return recorded(parts, labels, training, guard, model=model_settings(optimizer="sgd", l2=1e-4))


def gains(test, recording):
    found = [each for each in attacks[test](recording) if each.score is not None]
    return [each.score - each.baseline for each in found]


@pytest.mark.parametrize("test", ["A4", "A6"])
def test_a_vector_tells_no_less_of_a_row_than_a_score(test):
    assert max(gains(test, run_of("fm"))) > max(0.1, max(gains(test, run_of("sum"))) - 0.1)


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_noise_over_the_whole_vector_holds_the_attacks_off(joint):
    for test in ("A4", "A6"):
        assert max(gains(test, run_of(joint, LOUD))) < 0.1


def test_the_replay_of_a_sum_is_not_tried_on_vectors():
    (first, *_) = attacks["A5"](run_of("fm"))
    assert first.score is None
    assert 'the attack is for sums, the run has joint = "fm"' in first.reason


def test_a_coalition_attacks_vectors_too():
    assert max(gains("A7", run_of("fm", parties="abc"))) > 0.1
