"""Recordings of runs in this process: what an audit sees is what the run was."""

import numpy as np
import pytest

from fdml.audit.load_recording import read_recording
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import DataError
from fdml.experiments.in_process import train_in_process
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.messages import Push
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings
from tests.audit.in_process_recording import record_in_process
from tests.audit.recorded import NOISE

ROWS, HELD_OUT = 30, 8


def rows_of(count, seed=0, weights=None):
    random = np.random.default_rng(seed)
    parts = {name: as_rows(random.normal(size=(count, 2))) for name in "ab"}
    return RowSet(parts, random.integers(0, 2, count).astype(float), np.ones(count) if weights is None else weights)


def plan_of(guards=None, **training):
    chosen = TrainingSettings(**{"epochs": 2, "batch_size": 5, "batches_per_block": 2, **training})
    return Plan(
        chosen, dict.fromkeys("ab", model_settings(optimizer="sgd", l2=1e-4)), "a", "logistic", 2, guards=guards or {}
    )


def test_a_recorded_run_ends_with_the_models_of_any_run():
    recording = record_in_process(plan_of(), rows_of(ROWS))
    trained = train_in_process(plan_of(), rows_of(ROWS))
    for name, model in trained.models.items():
        assert recording.truth.models[name].state()["theta"].tobytes() == model.state()["theta"].tobytes()


def test_a_recording_has_the_runs_schedule_echo_and_settings():
    recording = record_in_process(plan_of(echo=1.5), rows_of(ROWS))
    assert recording.schedule == plan_of().schedule(ROWS)
    assert recording.echo == 1.5
    assert recording.run.parties == ("a", "b")
    assert recording.model_settings == plan_of().models


def test_every_step_of_every_party_is_there_once_and_in_the_order_it_came():
    recording = record_in_process(plan_of(), rows_of(ROWS))
    for party in "ab":
        assert sorted(recording.pushes[party]) == list(range(recording.schedule.steps))
        steps = [
            message.step for sender, message in recording.repeated if sender == party and isinstance(message, Push)
        ]
        assert steps == sorted(steps)


def test_held_out_rows_are_in_the_truth_and_their_predictions_in_the_recording():
    held_out = rows_of(HELD_OUT, seed=1)
    recording = record_in_process(plan_of(), rows_of(ROWS), held_out)
    assert sorted(recording.held_out["b"]) == [1, 2]
    assert recording.held_out["a"][2].release.values.size == HELD_OUT
    assert recording.truth.held_out == held_out.parts
    without = record_in_process(plan_of(), rows_of(ROWS))
    assert (without.held_out, len(without.truth.held_out_labels)) == ({"a": {}, "b": {}}, 0)


def test_weights_of_rows_are_part_of_the_truth():
    weights = np.linspace(0.5, 1.5, ROWS)
    recording = record_in_process(plan_of(), rows_of(ROWS, weights=weights))
    np.testing.assert_array_equal(recording.truth.weights, weights)


def test_each_party_has_the_mechanism_of_its_guard():
    recording = record_in_process(plan_of({"b": NOISE}), rows_of(ROWS))
    assert (recording.mechanisms["a"].noise, recording.mechanisms["b"].noise) == ("none", "gaussian")
    assert recording.mechanisms["b"].sigma == NOISE.sigma
    auto = GuardSettings(clip=2, noise="gaussian", sigma="auto", epsilon=4.0)
    found = record_in_process(plan_of({"b": auto}), rows_of(ROWS)).mechanisms["b"]
    assert found.sigma > 0


# Labels as training used them


def test_shared_labels_are_shown_as_they_are():
    recording = record_in_process(plan_of(), rows_of(ROWS))
    np.testing.assert_array_equal(recording.truth.shown_labels, rows_of(ROWS).labels)
    assert recording.gradients == {}


@pytest.mark.parametrize("epsilon", [0.5, 2.0, "off"])
def test_the_labels_shown_are_those_that_the_gradients_disclose(epsilon):
    privacy = PrivacySettings(labels="private", label_epsilon=epsilon)
    recording = record_in_process(plan_of(), rows_of(ROWS), privacy=privacy)
    visit = recording.schedule.visit(0)
    disclosed = (recording.gradients[0][:, 0] < 0).astype(float)
    np.testing.assert_array_equal(disclosed, recording.truth.shown_labels[visit.start : visit.stop])
    flipped = (recording.truth.shown_labels != recording.truth.labels).mean()
    assert flipped == 0 if epsilon == "off" else flipped > 0


# From folders


def test_a_run_without_a_log_says_what_to_run_first(tmp_path):
    (tmp_path / "federation.toml").write_text('parties = ["a", "b"]\n')
    (tmp_path / "run.toml").write_text('label_party = "a"\n')
    with pytest.raises(DataError, match=r"there is no log .*journal'; run `fdml simulate` first"):
        read_recording(tmp_path / "run.toml")
