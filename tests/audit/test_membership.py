"""A model that learned its training rows by heart tells who they were; one that generalises does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.membership import attacks
from fdml.audit.recording import GroundTruth, Recording
from fdml.data.rows import as_rows, to_dense
from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.protocol.schedule import schedule_for
from fdml.settings import RunSettings

ROWS, WIDTH = 3000, 4
OBJECTIVES = {"binary": ("logistic", 2), "multiclass": ("softmax", 3), "regression": ("squared", 0)}
PARTIES = ("ann", "bob")


class Formula:
    """A final model that is any function of the features."""

    dtype = np.dtype(np.float64)

    def __init__(self, function):
        self._function = function

    def predict(self, rows, start=0, stop=None):
        return self._function(to_dense(rows)[start:stop])


def record(task="binary", *, by_heart=0.0):
    """A run whose ann knows the truth, and its training rows' labels by heart to some extent."""
    chance = np.random.default_rng(6)
    scores = 3 if task == "multiclass" else 1
    weights = {party: chance.normal(size=(WIDTH, scores)) for party in PARTIES}
    sets = []
    for rows in (ROWS, ROWS // 2):
        x = {party: chance.normal(size=(rows, WIDTH)).astype(np.float32) for party in PARTIES}
        score = sum(x[party] @ weights[party] for party in PARTIES)
        sets.append((x, _labels(task, score, chance)))
    (train, labels), (held_out, held_out_labels) = sets
    known = {row.tobytes(): label for row, label in zip(train["ann"], labels, strict=True)}

    def remembered(x):
        hints = np.array([_hint(task, known.get(row.tobytes()), scores) for row in x])
        return x @ weights["ann"] + by_heart * hints

    models = {"ann": Formula(remembered), "bob": Formula(lambda x: x @ weights["bob"])}
    features, others = ({party: as_rows(part[party]) for party in PARTIES} for part in (train, held_out))
    return Recording(
        run=RunSettings(parties=PARTIES, label_party="ann", task=task),
        schedule=schedule_for(ROWS, 100, 4, 1, 1, 3),
        objective=objective_for(*OBJECTIVES[task]),
        echo=2.0,
        pushes={},
        plain={},
        held_out={},
        gradients={},
        mechanisms={},
        truth=GroundTruth(features, labels, labels, others, held_out_labels, models),
    )


def _labels(task, score, chance):
    if task == "regression":
        return (score[:, 0] + chance.normal(size=len(score))).astype(float)
    chances = LOSSES["softmax" if task == "multiclass" else "logistic"].probability(score)
    return (chances.cumsum(axis=1) < chance.uniform(size=(len(score), 1))).sum(axis=1).astype(float)


def _hint(task, label, scores):
    """Towards the label of a row that is known; nothing of others."""
    if label is None:
        return np.zeros(scores)
    if task == "multiclass":
        return np.eye(scores)[int(label)]
    return np.array([label if task == "regression" else 2 * label - 1])


def only(results):
    (result,) = results
    return result


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_model_that_learned_what_is_true_in_general_tells_nobody_apart(task):
    result = only(attacks["A12"](record(task)))
    assert result.outcome == "PASS"
    assert result.score == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_a_model_that_learned_rows_by_heart_tells_who_they_were(task):
    result = only(attacks["A12"](record(task, by_heart=2.0)))
    assert result.outcome == "FAIL"
    assert result.score > 0.6
    assert result.gain == pytest.approx(result.score - 0.5)
    assert result.details["training_loss"] < result.details["held_out_loss"]


def test_knowing_more_by_heart_tells_more():
    scores = [only(attacks["A12"](record(by_heart=heart))).score for heart in (0.0, 0.5, 1.0, 4.0)]
    assert scores == sorted(scores)


def test_the_reason_says_how_far_chance_goes():
    assert "off by 0.009" in only(attacks["A12"](record())).reason


def test_without_held_out_rows_or_models_there_is_nothing_to_compare():
    recording = record()
    bare = replace(recording.truth, held_out={}, held_out_labels=np.zeros(0))
    assert only(attacks["A12"](replace(recording, truth=bare))).outcome == "NOT APPLICABLE"
    unfinished = replace(recording.truth, models={})
    assert only(attacks["A12"](replace(recording, truth=unfinished))).outcome == "NOT APPLICABLE"
