"""A linear party's training, run over again from what an attacker knows of it."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.replay import replay_of
from fdml.audit.views import dense
from fdml.models.registry import model_settings
from fdml.settings import PrivacySettings, TrainingSettings
from tests.audit.recorded import recorded

ROWS = 30
BLOCKS = TrainingSettings(epochs=3, batch_size=5, batches_per_block=2, learning_rate=0.3)
BY_BLOCKS = (
    BLOCKS,
    BLOCKS.model_copy(update={"passes": 2, "lookahead": 2}),
    BLOCKS.model_copy(update={"lookahead": 0, "lr_decay": "sqrt"}),
)
FEW_EXCHANGES = TrainingSettings(epochs=6, batch_size=5, exchanges=2, learning_rate=0.3)
EXACT = model_settings(optimizer="sgd", l2=1e-2, precision="double")


def run_of(training=BLOCKS, parties="abc", privacy=None, model=EXACT):
    chance = np.random.default_rng(1)
    parts = {name: chance.normal(size=(ROWS, 3)) for name in parties}
    return recorded(parts, (parts["a"][:, 0] > 0).astype(float), training, privacy=privacy, model=model)


def replayed(recording, target):
    return replay_of(recording, target, recording.plain[target], 0.0)


def predictions(replay, features):
    """What the replayed party would push at each step."""
    weights, biases = replay.trajectory(features)
    return [
        features[step.start : step.stop] @ weights[step.pushed_after] + biases[step.pushed_after]
        for step in replay.steps
    ]


@pytest.mark.parametrize(
    ("training", "labels"),
    [
        *((training, labels) for training in BY_BLOCKS for labels in ("shared", "private")),
        (FEW_EXCHANGES, "shared"),
    ],
)
def test_the_right_features_lead_to_what_was_pushed(training, labels):
    recording = run_of(training, privacy=PrivacySettings(labels=labels))
    for target in recording.run.parties:
        replay = replayed(recording, target)
        features = dense(recording.truth.features[target])
        for step, again in zip(replay.steps, predictions(replay, features), strict=True):
            np.testing.assert_allclose(again, step.then, atol=1e-6)


def test_a_rotation_of_the_right_features_leads_there_too():
    recording = run_of()
    replay, features = replayed(recording, "b"), dense(recording.truth.features["b"])
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    for step, again in zip(replay.steps, predictions(replay, features @ turn), strict=True):
        np.testing.assert_allclose(again, step.then, atol=1e-6)


def test_wrong_features_do_not():
    recording = run_of()
    replay = replayed(recording, "b")
    wrong = np.random.default_rng(5).normal(size=(ROWS, 3))
    misfit = [
        np.abs(again - step.then).max() for step, again in zip(replay.steps, predictions(replay, wrong), strict=True)
    ]
    assert max(misfit) > 0.1


def test_only_the_label_party_has_a_bias_unless_parties_begin_alone():
    recording = run_of()
    assert {party: replayed(recording, party).has_bias for party in "abc"} == {"a": True, "b": False, "c": False}
    few = run_of(FEW_EXCHANGES)
    assert replayed(few, "b").has_bias
    assert len(replayed(few, "b").alone) == 2 * 6, "two passes of six batches before the first exchange"


def test_the_others_part_is_the_sum_of_what_they_pushed():
    recording = run_of()
    step = replayed(recording, "b").steps[4]
    np.testing.assert_allclose(step.others, recording.plain["a"][4] + recording.plain["c"][4])


def test_over_private_labels_the_others_part_follows_from_the_gradient():
    recording = run_of(privacy=PrivacySettings(labels="private"))
    step = replayed(recording, "b").steps[4]
    np.testing.assert_allclose(step.others, recording.plain["a"][4] + recording.plain["c"][4], atol=1e-6)


def test_a_run_that_ended_early_is_replayed_as_far_as_all_have_pushed():
    recording = run_of()
    some = {step: values for step, values in recording.plain["a"].items() if step < 5}
    cut = replace(recording, plain={**recording.plain, "a": some})
    assert len(replayed(cut, "b").steps) == 5


def test_momentum_counts_for_so_much_more_in_the_long_run():
    plain, momentum = (
        replayed(run_of(model=model_settings(optimizer=kind, l2=1e-4, momentum=0.8)), "b").steps[0].batches[0].rate
        for kind in ("sgd", "momentum")
    )
    assert momentum == pytest.approx(5 * plain)


def test_equal_replays_have_equal_keys():
    recording = run_of()
    first, again, other = replayed(recording, "b"), replayed(recording, "b"), replayed(recording, "c")
    assert first == again
    assert hash(first) == hash(again)
    assert first != other
