import numpy as np
import pytest

from fdml.align.sealed_labels import LabelSet
from fdml.models.calibration import Calibration
from fdml.models.metrics import auc
from fdml.party.checkpoint import Progress
from fdml.party.evaluation import Evaluation, noise_remark
from fdml.privacy.guard import no_protection
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import HeldOutTotal
from fdml.settings import EvaluationSettings, RunSettings, TrainingSettings, evaluation_schedule
from tests.party.sessions import STORE, SmallRun

SCORES = np.array([-2.0, 0.5, 1.0, -0.25])
LABELS = np.array([0.0, 1.0, 0.0, 1.0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 0.5])


def run_of(every=None, **training):
    return RunSettings(
        parties=("store", "browser"),
        label_party="store",
        training=TrainingSettings(**training),
        evaluation=EvaluationSettings(every=every),
    )


def evaluation(run=None, held_out=LABELS, progress=None):
    weights = WEIGHTS[: len(held_out)]
    labels = LabelSet(2, np.zeros(8), held_out, np.ones(8), weights)
    return Evaluation((run or SmallRun()).member(STORE), labels, progress or Progress(pending={3: (1.5, 0.7)}))


def total(epoch=3, scores=SCORES):
    return HeldOutTotal(epoch, encode(scores.reshape(-1, 1)))


@pytest.mark.parametrize(
    ("every", "training", "expected"),
    [
        (None, {}, "epoch"),
        (None, {"exchanges": 2}, "end"),
        ("epoch", {"exchanges": 2}, "epoch"),
        ("end", {}, "end"),
    ],
)
def test_few_exchanges_are_evaluated_at_the_end_unless_set(every, training, expected):
    assert evaluation_schedule(run_of(every, **training)) == expected


@pytest.mark.parametrize("every", ["epoch", "end"])
def test_without_held_out_rows_there_is_no_evaluation(every):
    found = evaluation(SmallRun(every=every), held_out=np.zeros(0))
    assert (found.is_on, found.each_epoch, found.at_end) == (False, False, False)


@pytest.mark.parametrize(("every", "each_epoch"), [("epoch", True), ("end", False)])
def test_an_evaluation_is_after_each_epoch_or_at_the_end(every, each_epoch):
    found = evaluation(SmallRun(every=every))
    assert (found.is_on, found.each_epoch, found.at_end) == (True, each_epoch, not each_epoch)


def test_the_metrics_are_those_of_the_total_with_the_weights_of_the_rows():
    found = evaluation()
    metrics = found.score(total(), no_protection())
    losses = np.log1p(np.exp(np.where(LABELS == 1, -SCORES, SCORES)))
    assert metrics.test_loss == pytest.approx(losses @ WEIGHTS / WEIGHTS.sum(), abs=1e-9)
    assert metrics.test_metric == pytest.approx(auc(LABELS, SCORES, WEIGHTS))
    assert (metrics.epoch, metrics.seconds, metrics.train_loss) == (3, 1.5, 0.7)
    assert found.last is metrics
    assert found.pending == {}


def test_the_total_is_read_through_the_calibration():
    plain, calibrated = evaluation(), evaluation()
    calibrated.calibration = Calibration(2.0, np.array([0.5]))
    moved = plain.score(total(scores=2.0 * SCORES + 0.5), no_protection())
    found = calibrated.score(total(), no_protection())
    assert found.test_loss == pytest.approx(moved.test_loss, abs=1e-9)


def test_what_waits_for_its_total_is_taken_from_the_checkpoint():
    progress = Progress(9.0, {1: (1.0, 0.5), 2: (2.0, 0.4)}, evaluations=2)
    found = evaluation(progress=progress)
    assert (found.count, found.pending, found.last) == (2, {1: (1.0, 0.5), 2: (2.0, 0.4)}, None)
    found.score(total(2), no_protection())
    assert progress.pending.keys() == {1, 2}, "the checkpoint stays as it is"


def test_the_remark_of_noise_has_its_standard_deviation_and_the_way_out():
    text = noise_remark(0.25)
    assert "noise of 0.5 in all" in text
    assert 'guard.evaluation = "exact"' in text
