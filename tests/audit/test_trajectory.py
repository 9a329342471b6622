"""Features, up to a rotation, from predictions alone."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.replay import replay_of
from fdml.audit.trajectory import gram_score, recovered
from fdml.audit.views import dense
from fdml.models.registry import model_settings
from fdml.settings import TrainingSettings
from tests.audit.recorded import recorded

ROWS = 60


@pytest.fixture(scope="module")
def recording():
    chance = np.random.default_rng(1)
    parts = {name: chance.normal(size=(ROWS, 3)) + 0.5 for name in "ab"}
    labels = (parts["a"][:, 0] + parts["b"] @ [1, -1, 1] > 0).astype(float)
    training = TrainingSettings(epochs=15, batch_size=6, batches_per_block=1, lookahead=0, learning_rate=0.5)
    return recorded(parts, labels, training, model=model_settings(optimizer="sgd", l2=1e-4, precision="double"))


def test_a_party_of_few_features_and_many_exchanges_gives_its_gram_matrix_away(recording):
    replay = replay_of(recording, "b", recording.plain["b"], 0.0)
    guess = recovered(replay)
    assert len(guess) == ROWS
    assert gram_score(guess, dense(recording.truth.features["b"])) > 0.9


def test_a_guess_that_was_found_once_is_not_looked_for_again(recording):
    first, second = (recovered(replay_of(recording, "b", recording.plain["b"], 0.0)) for _ in range(2))
    assert first is second


def test_predictions_that_are_noise_give_nothing_away(recording):
    chance = np.random.default_rng(2)
    noise = {step: 5 * chance.normal(size=values.shape) for step, values in recording.plain["b"].items()}
    guess = recovered(replay_of(recording, "b", noise, 25.0))
    assert gram_score(guess, dense(recording.truth.features["b"])) < 0.2


def test_a_guess_whose_training_runs_away_is_left_for_the_last_good_one(recording):
    """A step size that no training could have had: every weight is infinite after some steps."""
    replay = replay_of(recording, "b", recording.plain["b"], 0.0)
    steps = tuple(
        replace(step, batches=tuple(replace(batch, rate=1e200) for batch in step.batches)) for step in replay.steps
    )
    runs_away = replace(replay, key=b"runs away", l2=1.0, steps=steps)
    guess = recovered(runs_away)
    assert guess.shape[0] == ROWS
    assert np.isfinite(guess).all()


def test_a_party_of_fewer_features_than_components_is_guessed_with_as_many(recording):
    replay = replay_of(recording, "b", recording.plain["b"], 0.0)
    assert recovered(replay).shape == (ROWS, 3)
    assert recovered(replace(replay, key=b"one feature", features=1)).shape == (ROWS, 1)


# The score


@pytest.fixture
def features():
    return np.random.default_rng(0).normal(size=(80, 5)) + 1.0


def test_the_score_knows_neither_rotation_nor_scale(features):
    turned = features @ np.linalg.qr(np.random.default_rng(1).normal(size=(5, 5)))[0] * 3.0
    assert gram_score(turned, features) == pytest.approx(1.0)


def test_a_guess_that_knows_nothing_scores_nothing(features):
    assert abs(gram_score(np.random.default_rng(2).normal(size=(80, 5)), features)) < 0.05


def test_a_guess_closer_to_the_features_scores_more(features):
    noise = np.random.default_rng(3).normal(size=features.shape)
    scores = [gram_score(features + size * noise, features) for size in (0.0, 0.3, 1.0, 5.0)]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("guess", [np.zeros((80, 2)), np.full((80, 2), np.nan), np.full((80, 1), np.inf)])
def test_a_guess_that_is_constant_or_no_number_scores_nothing(features, guess):
    with np.errstate(all="ignore"):
        assert gram_score(guess, features) == 0.0


def test_many_rows_are_sampled_by_the_seed():
    chance = np.random.default_rng(4)
    features = chance.normal(size=(300, 4))
    guess = features + chance.normal(size=features.shape)
    first, again, other = (gram_score(guess, features, seed, most=50) for seed in (1, 1, 2))
    assert first == again != other
