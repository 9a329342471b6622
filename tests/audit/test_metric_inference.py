"""A13 reads labels off plain metrics, and nothing off sealed ones: finding 1."""

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest

from fdml.align.sealed_metrics import open_metrics, pack_figures
from fdml.audit.metric_inference import infer_from_metrics, positives_by_auc, readable_figures, sum_of_positives
from fdml.data.row_set import RowSet
from fdml.experiments.in_memory import KEY
from fdml.models.metrics import auc, mean_loss
from fdml.protocol.fixed_point import FIXED_POINTS, decode, encode
from fdml.protocol.messages import SealedMetrics
from fdml.settings import GuardSettings, PrivacySettings
from tests.audit.recorded import evaluated, small

NOISE = GuardSettings(clip=3, noise="gaussian", sigma=3)


@lru_cache(maxsize=4)
def recorded(**settings):
    return evaluated(**settings)


def as_before(recording):
    """The run as it was recorded before metrics were sealed: the same figures, for the server to read."""
    found = [open_metrics(KEY, each) for each in recording.metrics.values()]
    plain = {
        each.epoch: SealedMetrics(
            each.epoch, pack_figures(each.seconds, each.train_loss, each.test_loss, each.test_metric)
        )
        for each in found
    }
    return replace(recording, metrics=plain)


@pytest.mark.parametrize("guard", [None, NOISE], ids=["no noise", "noise"])
def test_finding_1_a_plain_server_read_all_held_out_labels_off_plain_metrics(guard):
    labels, balance = infer_from_metrics(as_before(recorded(guard=guard)))
    assert (labels.outcome, labels.score) == ("FAIL", 1.0)
    assert labels.baseline < 0.8
    assert "exact losses can be read" in labels.reason
    assert (balance.outcome, balance.score) == ("FAIL", 1.0)


@pytest.mark.parametrize("guard", [None, NOISE], ids=["no noise", "noise"])
def test_finding_1_sealed_metrics_tell_no_more_than_the_guess_by_class_balance(guard):
    labels, balance = infer_from_metrics(recorded(guard=guard))
    assert (labels.outcome, labels.gain, labels.details["solved"]) == ("PASS", 0.0, 0.0)
    assert "no figure can be read in the metrics of 20 epochs" in labels.reason
    assert (balance.outcome, balance.score) == ("PASS", 0.0)


def test_finding_1_plain_metrics_told_a_blind_server_how_many_labels_are_positive():
    recording = recorded(privacy=PrivacySettings(server="blind"))
    labels, balance = infer_from_metrics(as_before(recording))
    assert (labels.outcome, balance.outcome) == ("PASS", "FAIL")
    assert "under masks" in labels.reason
    assert [each.outcome for each in infer_from_metrics(recording)] == ["PASS", "PASS"]


def test_figures_that_anyone_can_read_fail_though_there_are_too_many_rows_to_solve_for():
    recording = as_before(recorded())
    rows = np.arange(200)
    many = replace(recording, truth=replace(recording.truth, held_out_labels=rows % 2.0))
    labels, _ = infer_from_metrics(many)
    assert labels.outcome == "FAIL"
    assert "more than 120 rows" in labels.reason


def test_figures_that_fit_no_labels_pass():
    """As those of another run would."""
    recording = as_before(recorded(held_out=20, epochs=6))
    other = {
        epoch: SealedMetrics(epoch, pack_figures(None, None, 0.5 + epoch / 7, None)) for epoch in recording.metrics
    }
    labels, balance = infer_from_metrics(replace(recording, metrics=other))
    assert (labels.outcome, labels.gain) == ("PASS", 0.0)
    assert "fits no labels" in labels.reason
    assert balance.outcome == "PASS"


def test_without_held_out_rows_or_a_log_loss_there_is_nothing_to_infer():
    (result,) = infer_from_metrics(small("ab"))
    assert result.outcome == "NOT APPLICABLE"
    private = recorded(held_out=20, epochs=6, privacy=PrivacySettings(labels="private"))
    assert {each.sealed for each in private.metrics.values()} == {b""}
    assert [each.outcome for each in infer_from_metrics(private)] == ["PASS", "PASS"]


# The parts of the attack.


@pytest.mark.parametrize("bits", [64, 32, 16])
def test_the_loss_tells_the_sum_of_the_positive_scores_to_the_step_of_the_grid(bits):
    random, grid = np.random.default_rng(bits), FIXED_POINTS[bits]
    scores, labels = random.normal(size=(40, 1)) * 3, random.integers(0, 2, 40).astype(float)
    codes = encode(scores, grid)
    loss = mean_loss("logistic", decode(codes), RowSet({}, labels, np.ones(40)))
    step = 2.0**-grid.fraction_bits
    found = sum_of_positives(codes[:, 0].tolist(), step, loss)
    assert found == int(codes[labels == 1].sum())


def test_a_number_is_read_only_where_it_stands_at_one_place_in_every_epoch():
    def sealed(*figures):
        return {epoch: SealedMetrics(epoch, pack_figures(*given)) for epoch, given in enumerate(figures, 1)}

    (found,) = readable_figures(sealed((0.0, 0.5, None, -1.0), (0.0, 0.25, 0.5, -1.0)), (1e-4, 1e4))
    assert found == {1: 0.5, 2: 0.25}
    assert list(readable_figures(sealed((None, 0.5, None, None), (0.5, None, None, None)), (1e-4, 1e4))) == []
    assert list(readable_figures({1: SealedMetrics(1), 2: SealedMetrics(2)}, (1e-4, 1e4))) == []


def test_random_bytes_are_no_figures_of_several_epochs():
    random = np.random.default_rng(5)
    metrics = {epoch: SealedMetrics(epoch, random.bytes(60)) for epoch in range(1, 11)}
    assert list(readable_figures(metrics, (1e-4, 1e4))) == []
    assert list(readable_figures(metrics, (0.01, 1.0))) == []


@pytest.mark.parametrize("positive", [7, 12, 18])
def test_aucs_tell_how_many_rows_are_positive_but_not_which_class_that_is(positive):
    random, labels = np.random.default_rng(positive), (np.arange(25) < positive).astype(float)
    aucs = {epoch: auc(labels, random.normal(size=25), np.ones(25)) for epoch in range(20)}
    assert positives_by_auc(aucs, 25) == sorted({positive, 25 - positive})


def test_an_auc_of_one_tells_nothing_of_how_many_are_positive():
    assert positives_by_auc({1: 1.0}, 25) == list(range(1, 25))
