"""A16: two runs over the same rows. It finds labels of the old kind, and nothing where answers are permanent."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.attacks import ATTACKS
from fdml.audit.label_lives import two_lives
from fdml.audit.recording import FurtherRun
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.privacy.randomised_response import DRAW_BYTES, chance_of_truth, draws_of, randomised
from fdml.settings import PrivacySettings, TrainingSettings
from tests.audit.in_process_recording import record_in_process

ROWS = 800


@pytest.fixture(scope="module", params=[2, 3])
def recording(request):
    classes = request.param
    chance = np.random.default_rng(1)
    parts = {name: as_rows(chance.normal(size=(ROWS, 2))) for name in ("ann", "bob")}
    labels = chance.integers(0, classes, ROWS).astype(float)
    training = TrainingSettings(epochs=1, batch_size=100, batches_per_block=4)
    models = dict.fromkeys(parts, model_settings(optimizer="sgd", l2=1e-4))
    plan = Plan(training, models, "ann", "logistic" if classes == 2 else "softmax", classes)
    privacy = PrivacySettings(labels="private", label_epsilon=2.0)
    return record_in_process(plan, RowSet(parts, labels, np.ones(ROWS)), privacy=privacy)


def draws(seed):
    return draws_of(np.random.default_rng(seed).integers(0, 256, (ROWS, DRAW_BYTES), np.uint8))


def of_the_old_kind(recording, *, second):
    """Both runs draw by position; the second with the same draws (finding 5), or with new ones (finding 6)."""
    order, labels = np.random.default_rng(2).permutation(ROWS), recording.truth.labels
    classes = recording.objective.classes
    first = randomised(labels, classes, 2.0, draws(3))
    again = randomised(labels[order], classes, 2.0, draws(second))
    truth = replace(recording.truth, shown_labels=first, further_run=FurtherRun(order, again))
    return replace(recording, truth=truth)


def only(results):
    (result,) = results
    return result


def test_answers_that_outlive_runs_pass(recording):
    found = only(two_lives(recording))
    assert found.outcome == "PASS"
    assert found.details["agreeing_share"] == 1.0
    assert found.score == pytest.approx(found.baseline, abs=0.1)


def test_finding_5_the_same_flips_by_position_are_solved_for(recording):
    found = only(two_lives(of_the_old_kind(recording, second=3)))
    assert found.outcome == "FAIL"
    assert found.details["by_position"] > 0.95 > chance_of_truth(2.0, recording.objective.classes)


def test_finding_6_flips_drawn_anew_make_agreeing_answers_nearly_certain(recording):
    found = only(two_lives(of_the_old_kind(recording, second=4)))
    assert found.outcome == "FAIL"
    assert found.details["agreeing"] > 0.94
    assert found.details["agreeing_share"] < 0.9


@pytest.mark.parametrize(
    ("privacy", "why"),
    [(PrivacySettings(), "by agreement"), (PrivacySettings(labels="private", label_epsilon="off"), "is off")],
)
def test_labels_that_nothing_hides_are_no_case_for_it(recording, privacy, why):
    open_run = replace(recording, run=recording.run.model_copy(update={"privacy": privacy}))
    found = only(two_lives(open_run))
    assert found.outcome == "NOT APPLICABLE"
    assert why in found.reason


def test_it_is_among_the_attacks():
    assert ATTACKS["A16"] is two_lives
