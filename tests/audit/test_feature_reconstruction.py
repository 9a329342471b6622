"""Attacks on features: they must work on runs without protection, or passing them means nothing."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.feature_reconstruction import attacks, attributes, gram
from fdml.audit.recording import Recording
from fdml.audit.replay import replay_of
from fdml.audit.result import AttackResult
from fdml.audit.trajectory import gram_score, recovered
from fdml.audit.views import coalitions, dense, trajectories, views
from fdml.models.losses import LOSSES
from fdml.models.registry import model_settings
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings
from tests.audit.recorded import NOISE, adult, breast_cancer, recorded

pytestmark = pytest.mark.slow

LOUD = GuardSettings(clip=2, noise="gaussian", sigma=16)
QUICK = TrainingSettings(epochs=3, batch_size=16, batches_per_block=2, learning_rate=0.5)
LONGER = QUICK.model_copy(update={"passes": 2, "lookahead": 2})


def quick(parties: str, **settings: object) -> Recording:
    chance = np.random.default_rng(1)
    parts = {name: chance.normal(size=(64, 3)) for name in parties}
    labels = (sum(values[:, 0] for values in parts.values()) > 0).astype(float)
    return recorded(parts, labels, QUICK, **settings)


def found(test: str, recording: Recording) -> dict[str, AttackResult]:
    return {result.view: result for result in attacks[test](recording)}


# What can be followed.


@pytest.mark.parametrize(
    ("training", "privacy"),
    [
        (QUICK, PrivacySettings()),
        (QUICK, PrivacySettings(labels="private")),
        (LONGER, PrivacySettings()),
        (LONGER, PrivacySettings(labels="private")),
        (TrainingSettings(epochs=6, batch_size=16, exchanges=2, learning_rate=0.5), PrivacySettings()),
    ],
)
def test_whoever_has_the_features_can_follow_the_training_to_what_was_pushed(training, privacy):
    chance = np.random.default_rng(1)
    parts = {name: chance.normal(size=(50, 3)) for name in "abc"}
    model = model_settings(optimizer="sgd", l2=1e-2, precision="double")
    recording = recorded(parts, (parts["a"][:, 0] > 0).astype(float), training, privacy=privacy, model=model)
    for target in recording.run.parties:
        replay = replay_of(recording, target, recording.plain[target], 0.0)
        features = dense(recording.truth.features[target])
        weights, biases = replay.trajectory(features)
        for update in replay.steps:
            again = features[update.start : update.stop] @ weights[update.pushed_after] + biases[update.pushed_after]
            np.testing.assert_allclose(again, update.then, atol=1e-6)


def test_the_gram_score_knows_neither_rotation_nor_scale():
    chance = np.random.default_rng(0)
    features = chance.normal(size=(80, 5)) + 1.0
    turned = features @ np.linalg.qr(chance.normal(size=(5, 5)))[0] * 3.0
    assert gram_score(turned, features) == pytest.approx(1.0)
    assert abs(gram_score(chance.normal(size=(80, 5)), features)) < 0.02


# Who sees what.


def test_the_other_of_two_parties_sees_what_was_pushed():
    recording = quick("ab")
    seen_by = {view.view: view for view in views(recording)}
    assert set(seen_by) == {"server", "party 'a'", "party 'b'"}
    seen = trajectories(recording, seen_by["party 'a'"].pushed)
    assert seen.shape == (64, 3, 1)
    last = recording.schedule.visit(recording.schedule.steps - 1)
    np.testing.assert_array_equal(seen[last.start : last.stop, 2], recording.plain["b"][recording.schedule.steps - 1])


def test_one_of_three_parties_sees_sums_and_two_together_see_the_third():
    recording = quick("abc")
    alone = [view for view in views(recording) if view.view != "server"]
    assert {view.kind for view in alone} == {"sums"}
    together = {view.target: view for view in coalitions(recording)}
    np.testing.assert_array_equal(together["c"].pushed[5], recording.plain["c"][5])
    assert together["c"].own.shape == (64, 6)
    assert together["c"].view == "all parties but 'c'"


def test_a_blind_server_sees_nothing_of_what_was_pushed():
    recording = quick("ab", privacy=PrivacySettings(server="blind"))
    view = next(view for view in views(recording) if view.view == "server")
    assert view.kind == "masked"
    assert not np.allclose(view.pushed[0], recording.plain["a"][0])
    assert found("A5", recording)["server on 'a'"].outcome == "NOT APPLICABLE"


def test_gradients_of_private_labels_tell_no_more_of_the_label_partys_predictions_than_it_pushed():
    recording = quick("ab", guard=NOISE, privacy=PrivacySettings(labels="private"))
    view = next(view for view in views(recording) if view.view == "party 'b'")
    assert view.noisy
    assert view.pushed is recording.plain["a"]


def test_gradients_made_of_exact_predictions_are_found_out():
    recording = quick("ab", guard=NOISE, privacy=PrivacySettings(labels="private"))
    exact = np.full((32, 1), 0.25)
    loss, labels = LOSSES["logistic"], np.zeros(32)
    leaky = {step: loss.gradient(exact + recording.plain["b"][step], labels) for step in recording.gradients}
    view = next(view for view in views(replace(recording, gradients=leaky)) if view.view == "party 'b'")
    assert not view.noisy
    assert "gradients tell more" in view.remark
    np.testing.assert_allclose(np.median(view.pushed[2]), 0.25, atol=1e-3)


# What does not apply.


@pytest.mark.parametrize(
    ("model", "word"), [(model_settings("mlp", hidden=(4,)), "mlp"), (model_settings(optimizer="adam"), "adam")]
)
def test_the_trajectory_attack_says_what_it_is_not_made_for(model, word):
    results = attacks["A5"](quick("ab", model=model))
    assert {result.outcome for result in results} == {"NOT APPLICABLE"}
    assert all(word in result.reason for result in results)


def test_attribute_inference_needs_binary_features():
    assert {result.outcome for result in attacks["A6"](quick("ab"))} == {"NOT APPLICABLE"}


def test_two_parties_are_no_coalition():
    (result,) = attacks["A7"](quick("ab"))
    assert result.outcome == "NOT APPLICABLE"


# What the attacks reach.


@pytest.mark.slow
def test_a_linear_run_without_noise_gives_away_its_gram_matrix_and_features():
    recording = breast_cancer()
    grams, insiders = found("A5", recording), found("A4", recording)
    assert min(result.score for result in grams.values()) > 0.8
    assert {result.outcome for result in (*grams.values(), *insiders.values())} == {"FAIL"}
    assert insiders["party 'a'"].score > 0.75
    assert insiders["party 'a'"].gain > 0.1


@pytest.mark.slow
def test_noise_of_four_times_the_clip_hides_the_gram_matrix_and_features():
    recording = breast_cancer(NOISE)
    results = [*attacks["A5"](recording), *attacks["A4"](recording)]
    assert {result.outcome for result in results} == {"PASS"}


@pytest.mark.slow
def test_attributes_are_inferred_without_noise_and_hardly_with_much(monkeypatch):
    monkeypatch.setattr("fdml.audit.attribute_inference._ATTRIBUTES", 4)  # of 11, for the time it takes
    of_party = {guard: next(s for s in views(adult(guard)) if s.view == "party 'party-0'") for guard in (None, LOUD)}
    bare, hidden = (attributes(adult(guard), view) for guard, view in of_party.items())
    assert bare.outcome == "FAIL"
    assert bare.gain > 0.1
    assert hidden.gain < bare.gain / 3


@pytest.mark.slow
def test_the_trajectory_attack_works_on_blocks_of_several_batches_and_binary_features():
    recording = adult()
    replay = replay_of(recording, "party-1", recording.plain["party-1"], 0.0)
    assert gram_score(recovered(replay), dense(recording.truth.features["party-1"])) > 0.2


@pytest.mark.slow
def test_all_parties_but_one_together_find_out_what_one_alone_does_not():
    recording = adult(parties=3)
    together = next(view for view in coalitions(recording) if view.target == "party-2")
    assert gram(recording, together).outcome == "FAIL"
    assert gram(recording, replace(together, kind="sums")).outcome == "NOT APPLICABLE"


def test_collusion_tries_all_three_attacks_on_every_party():
    found = attacks["A7"](quick("abc"))
    assert len(found) == 9
    assert {result.test for result in found} == {"A7"}
