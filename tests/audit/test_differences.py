"""What an audit makes of differences of few bits: the predictions that other parties' totals held."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.mask_checks import attacks
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.experiments.in_process import train_in_process
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.fixed_point import decode
from fdml.settings import PrivacySettings, TrainingSettings
from tests.audit.in_process_recording import record_in_process

ROWS = 60
BLIND, PRIVATE = PrivacySettings(server="blind"), PrivacySettings(labels="private", label_epsilon="off")


def rows_of(rows=ROWS):
    random = np.random.default_rng(2)
    parts = {name: as_rows(random.normal(size=(rows, 3)).astype(np.float32)) for name in "abc"}
    return RowSet(parts, random.integers(0, 2, rows).astype(float), np.ones(rows))


def plan_of(bits, lookahead, staleness=0):
    training = TrainingSettings(
        epochs=5,
        batch_size=5,
        batches_per_block=4,
        learning_rate=0.5,
        value_bits=bits,
        lookahead=lookahead,
        staleness=staleness,
    )
    return Plan(training, dict.fromkeys("abc", model_settings()), "a", "logistic", 2)


@pytest.mark.parametrize("privacy", [None, BLIND])
@pytest.mark.parametrize("bits", [4, 2])
@pytest.mark.parametrize("lookahead", [0, 1, 5])
def test_a_recording_holds_the_predictions_that_the_server_added_up(privacy, bits, lookahead):
    """Under masks no message says its scale: who has all keys finds it as the parties do."""
    recording = record_in_process(plan_of(bits, lookahead), rows_of(), privacy=privacy)
    matrix = train_in_process(plan_of(bits, lookahead), rows_of(), in_turns=True).coordinator.matrix
    for number, party in enumerate("abc"):
        for step in range(recording.schedule.steps - recording.schedule.blocks, recording.schedule.steps):
            visit = recording.schedule.visit(step)
            held = decode(matrix.read(number, visit).release.values)
            np.testing.assert_array_equal(recording.plain[party][step], held)


@pytest.mark.parametrize(("privacy", "staleness"), [(PRIVATE, 0), (None, 2)])
def test_scales_that_parties_choose_are_read_from_their_messages(privacy, staleness):
    plan = plan_of(4, 1, staleness)
    recording = record_in_process(plan, rows_of(), privacy=privacy)
    matrix = train_in_process(plan, rows_of(), privacy=privacy, in_turns=True).coordinator.matrix
    step = recording.schedule.steps - 1
    held = matrix.read(1, recording.schedule.visit(step)).release.values
    np.testing.assert_array_equal(recording.plain["b"][step], decode(held))


def test_pushes_are_kept_as_they_travelled():
    recording = record_in_process(plan_of(4, 1), rows_of(), privacy=BLIND)
    later = recording.pushes["b"][recording.schedule.blocks].release
    assert (later.bits, later.scale) == (5, 0)
    assert np.abs(later.values).max() <= 16


@pytest.mark.parametrize("bits", [64, 32, 16, 8, 4, 2])
def test_what_a_blind_server_has_looks_like_noise_whatever_its_bits(bits):
    rows = rows_of(400)
    recording = record_in_process(plan_of(bits, 1), rows, privacy=BLIND)
    assert [each.outcome for each in attacks["A8"](recording)] == ["PASS"] * 3
    assert [each.outcome for each in attacks["A9"](recording)] == ["PASS"]


@pytest.mark.parametrize("bits", [16, 4])
def test_without_masks_it_does_not(bits):
    recording = record_in_process(plan_of(bits, 1), rows_of(400))
    bare = replace(recording, run=recording.run.model_copy(update={"privacy": BLIND}))
    assert "FAIL" in [each.outcome for each in attacks["A8"](bare)]
