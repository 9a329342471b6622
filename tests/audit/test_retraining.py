"""A14 confirms cells by an unkeyed hash of the model, and nothing by a MAC: finding 2."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.retraining import guesses_of, retrain_and_compare, retrained_hash
from fdml.protocol.messages import Finished
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings
from fdml.storage.arrays import hash_arrays
from tests.audit.recorded import recorded, small

NOISE = GuardSettings(clip=2, noise="gaussian", sigma=5)
RUNS = {
    "no noise": {},
    "noise": {"guard": NOISE},
    "a blind server": {"privacy": PrivacySettings(server="blind")},
    "a blind server and noise": {"privacy": PrivacySettings(server="blind"), "guard": NOISE},
    "private labels": {"privacy": PrivacySettings(labels="private", label_epsilon=2.0)},
}


def as_before(recording):
    """The run as it was recorded before: every party sent the hash of its parameters as it is."""
    hashes = {party: Finished(hash_arrays(model.state())) for party, model in recording.truth.models.items()}
    return replace(recording, finished=hashes)


@pytest.mark.parametrize("what", RUNS)
def test_finding_2_an_unkeyed_hash_of_the_model_confirmed_every_cell_round_all_noise(what):
    recording = small("ab", **RUNS[what])
    before, now = retrain_and_compare(as_before(recording)), retrain_and_compare(recording)
    assert [(each.outcome, each.score) for each in before] == [("FAIL", 1.0)] * 2
    assert [(each.outcome, each.score) for each in now] == [("PASS", 0.0)] * 2
    assert "fits none, not even the true one" in now[0].reason


def test_finding_2_few_exchanges_were_no_obstacle():
    random = np.random.default_rng(4)
    parts = {name: random.normal(size=(30, 3)) for name in "ab"}
    training = TrainingSettings(epochs=4, exchanges=1, batch_size=10, learning_rate=0.2)
    recording = recorded(parts, np.arange(30) % 2.0, training, guard=NOISE)
    assert {each.outcome for each in retrain_and_compare(as_before(recording))} == {"FAIL"}
    assert {each.outcome for each in retrain_and_compare(recording)} == {"PASS"}


def test_totals_that_may_be_stale_or_no_features_are_nothing_to_retrain_with():
    random = np.random.default_rng(4)
    training = TrainingSettings(epochs=2, batch_size=6, batches_per_block=2, staleness=1)
    stale = recorded({name: random.normal(size=(24, 2)) for name in "ab"}, np.arange(24) % 2.0, training)
    assert {each.outcome for each in retrain_and_compare(stale)} == {"NOT APPLICABLE"}
    first, _ = retrain_and_compare(small("ab", widths={"a": 0, "b": 2}))
    assert (first.outcome, first.reason) == ("NOT APPLICABLE", "the party has no features")


# The parts of the attack.


def values_of(recording, party):
    return recording.truth.features[party].values.reshape(-1)


@pytest.mark.parametrize("what", RUNS)
@pytest.mark.parametrize("party", ["a", "b"])
def test_a_training_that_is_run_again_ends_with_the_same_bits(what, party):
    """Else the attack would pass whatever is sent."""
    recording = small("ab", **RUNS[what])
    assert retrained_hash(recording, party, values_of(recording, party)) == hash_arrays(
        recording.truth.models[party].state()
    )


def test_three_parties_are_retrained_one_by_one():
    recording = small("abc", guard=NOISE)
    for party in "abc":
        model = recording.truth.models[party]
        assert retrained_hash(recording, party, values_of(recording, party)) == hash_arrays(model.state())
    assert {each.view for each in retrain_and_compare(recording)} == {
        f"server and all parties but {party!r}" for party in "abc"
    }


def test_another_value_of_one_cell_ends_with_other_bits():
    recording = small("ab")
    values = values_of(recording, "b").copy()
    values[5] += np.float32(0.25)
    assert retrained_hash(recording, "b", values) != hash_arrays(recording.truth.models["b"].state())


@pytest.mark.parametrize("kind", ["sha256", "blake2s"])
def test_a_hash_of_the_hash_is_no_better(kind):
    recording = small("ab")
    hashed = {
        party: Finished(hashlib.new(kind, hash_arrays(model.state())).digest())
        for party, model in recording.truth.models.items()
    }
    assert {each.outcome for each in retrain_and_compare(replace(recording, finished=hashed))} == {"FAIL"}


def test_the_true_value_is_among_the_guesses_and_no_value_is_guessed_twice():
    values = np.array([1.0, 2.0, 2.0, 3.0, 5.0, 8.0], np.float32)
    for cell in range(len(values)):
        guesses = guesses_of(values, cell)
        assert guesses[0] == values[cell]
        assert len(set(guesses)) == len(guesses) == 4
    assert guesses_of(np.ones(3, np.float32), 1) == [1.0, 2.0], "where all are alike a near one is tried"
