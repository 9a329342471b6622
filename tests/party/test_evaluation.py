import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.align.sealed_labels import LabelSet
from fdml.align.sealed_metrics import open_metrics
from fdml.errors import MessageRefused
from fdml.models.calibration import Calibration
from fdml.models.metrics import auc
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.checkpoint import Progress
from fdml.party.evaluation import Evaluation, noise_remark
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger
from fdml.privacy.masks import Masks
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import INT64, encode
from fdml.protocol.messages import HeldOutTotal, Metrics, SealedMetrics
from fdml.protocol.row_pieces import all_pieces, held_out_pieces
from fdml.settings import PrivacySettings, RunSettings, TrainingSettings, evaluation_schedule
from fdml.settings.evaluation import EvaluationSettings
from tests.party.sessions import STORE, SmallRun
from tests.privacy.guards import no_protection

SCORES = np.array([-2.0, 0.5, 1.0, -0.25])
KEY = GroupKey(bytes(range(32)))
SHARED = SharedRows(np.arange(8), np.arange(4), bytes(32), KEY, AlignmentReport("tokens", {}, 8, 8, 4, 0.0))
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
    member = (run or SmallRun()).member(STORE)
    return Evaluation(member, SHARED, labels, progress or Progress(pending={3: (1.5, 0.7)}))


def total(epoch=3, scores=SCORES):
    return [HeldOutTotal(epoch, encode(scores.reshape(-1, 1)))]


def as_told(found):
    """What others are told of an epoch."""
    return Metrics(found.epoch, found.seconds, found.train_loss, found.test_loss, found.test_metric)


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
    metrics, sealed = found.score(total(), no_protection())
    losses = np.log1p(np.exp(np.where(LABELS == 1, -SCORES, SCORES)))
    assert metrics.test_loss == pytest.approx(losses @ WEIGHTS / WEIGHTS.sum(), abs=1e-9)
    assert metrics.test_metric == pytest.approx(auc(LABELS, SCORES, WEIGHTS))
    assert (metrics.epoch, metrics.seconds, metrics.train_loss) == (3, 1.5, 0.7)
    assert found.result is metrics
    assert open_metrics(KEY, sealed) == as_told(metrics)
    assert found.pending == {}


def test_the_total_is_read_through_the_calibration():
    plain, calibrated = evaluation(), evaluation()
    calibrated.calibration = Calibration(2.0, np.array([0.5]))
    moved, _ = plain.score(total(scores=2.0 * SCORES + 0.5), no_protection())
    found, _ = calibrated.score(total(), no_protection())
    assert found.test_loss == pytest.approx(moved.test_loss, abs=1e-9)


def test_what_waits_for_its_total_is_taken_from_the_checkpoint():
    progress = Progress(9.0, {1: (1.0, 0.5), 2: (2.0, 0.4)}, evaluations=2)
    found = evaluation(progress=progress)
    assert (found.count, found.pending, found.result) == (2, {1: (1.0, 0.5), 2: (2.0, 0.4)}, None)
    found.score(total(2), no_protection())
    assert progress.pending.keys() == {1, 2}, "the checkpoint stays as it is"


def test_the_remark_of_noise_has_its_standard_deviation_and_the_way_out():
    text = noise_remark(0.25)
    assert "noise of 0.5 in all" in text
    assert 'guard.evaluation = "exact"' in text


# What others are told.


def test_others_are_told_of_the_score_as_it_was_released_not_as_it_is_calibrated():
    """Finding 7: the calibration is a fit to predictions that were never released."""
    plain, calibrated = evaluation(), evaluation()
    calibrated.calibration = Calibration(2.0, np.array([0.5]))
    as_released, _ = plain.score(total(), no_protection())
    at_home, told = calibrated.score(total(), no_protection())
    assert open_metrics(KEY, told) == as_told(as_released)
    assert at_home.test_loss != as_released.test_loss


def test_over_private_labels_others_are_told_the_epoch():
    found = evaluation(SmallRun(privacy=PrivacySettings(labels="private")), held_out=LABELS)
    scores = np.column_stack([SCORES, -SCORES]).reshape(-1, 1)
    metrics, told = found.score(total(scores=scores), no_protection())
    assert told == SealedMetrics(3)
    assert metrics.test_loss > 0


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("sign", [-1, 1])
def test_a_sum_that_the_parties_cannot_have_made_is_refused(row, sign):
    """Finding 1, a lying blind server: offsets of 1024 * 2^k on 20 rows of a sum told 20 labels by the loss."""
    found, (sums,) = evaluation(), total()
    sums.values[row] += sign * (INT64.largest_code(2) * 2 + 2**35)
    with pytest.raises(MessageRefused, match=r"of epoch 3 has 1 values that 2 parties cannot have made") as refused:
        found.score([sums], no_protection())
    assert "each sends at most 1.04858e+06" in str(refused.value)
    assert found.pending == {3: (1.5, 0.7)}
    assert found.result is None


def test_the_largest_sum_that_the_parties_can_make_is_scored():
    found, (sums,) = evaluation(), total()
    sums.values[0] = 2 * INT64.largest_code(2)
    assert found.score([sums], no_protection())[0].test_loss > 1e5


def test_the_offsets_of_the_lying_server_are_refused():
    """Finding 1: as it was tried, 20 rows at once; the label party scored it and asked nothing."""
    held_out = np.arange(200) % 2.0
    labels = LabelSet(2, np.zeros(8), held_out, np.ones(8), np.ones(200))
    found = Evaluation(SmallRun().member(STORE), SHARED, labels, Progress(pending={3: (1.5, 0.7)}))
    (sums,) = total(scores=np.zeros(200))
    for bit in range(20):
        sums.values[bit] += encode(np.array([1024.0 * 2**bit]))
    with pytest.raises(MessageRefused, match="cannot have made"):
        found.score([sums], no_protection())


def test_totals_in_pieces_are_scored_as_one():
    whole, pieces = evaluation(), evaluation()
    pieces.pieces = held_out_pieces(4, 1, 3)
    (sums,) = total()
    parts = [
        HeldOutTotal(3, sums.values[each.test.start : each.test.stop], piece=each) for each in all_pieces(pieces.pieces)
    ]
    assert [len(each.values) for each in parts] == [3, 1]
    found, _ = pieces.score(parts, no_protection())
    assert found == whole.score([sums], no_protection())[0]


@pytest.mark.parametrize("wrong", [slice(1), slice(1, None), slice(None, None, -1)])
def test_pieces_that_do_not_fit_together_are_refused(wrong):
    found = evaluation()
    found.pieces = held_out_pieces(4, 1, 3)
    (sums,) = total()
    parts = [HeldOutTotal(3, sums.values[:2], piece=each) for each in all_pieces(found.pieces)]
    with pytest.raises(MessageRefused, match="pieces that do not fit together"):
        found.score(parts[wrong], no_protection())


def test_pieces_of_a_party_that_was_started_in_between_are_under_two_masks():
    masks = {start: Masks(b"k" * 32, ("store", "browser"), "store", start) for start in (5, 6)}
    other = Masks(b"k" * 32, ("store", "browser"), "browser", 9)
    found = evaluation()
    found.pieces = held_out_pieces(4, 1, 2)
    (sums,) = total()
    parts = []
    for start, piece in zip((5, 6), all_pieces(found.pieces), strict=True):
        codes = other.add("held-out", 3, masks[start].add("held-out", 3, sums.values))
        parts.append(HeldOutTotal(3, codes[piece.test], (start, 9), piece=piece))
    guard = Guard(Perturbation(NO_NOISE), Ledger(NO_NOISE, None, 1e-5, None), masks=masks[6], blind=True)
    plain = evaluation().score([sums], no_protection())[0]
    assert found.score(parts, guard)[0] == plain
