"""How a score is read: what the label party tells others, probabilities, classes, values."""

import json

import numpy as np
import pytest

from fdml.data.label_encoding import LabelEncoding
from fdml.errors import MessageRefused
from fdml.models.calibration import IDENTITY
from fdml.serving.reading import ScoreReading, predictions_of, probabilities_of, score_of
from tests.serving.published import codes_of, reading_of, run_of


def test_a_reading_comes_back_as_it_was():
    found = ScoreReading.from_json(reading_of("multiclass", 1.5, (0.1, 0.2, -0.3)).to_json())
    assert found.calibration.scale == 1.5
    assert found.calibration.offset.tolist() == [0.1, 0.2, -0.3]
    assert found.labels.classes.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        json.dumps({"scale": 1, "offset": ["x"], "labels": "{}"}).encode(),
        b'{"scale": 1, "offset": [NaN], "labels": ""}',
    ],
)
def test_a_reading_that_makes_no_sense_is_refused(raw):
    with pytest.raises(MessageRefused, match="label party"):
        ScoreReading.from_json(raw)


def test_a_score_is_the_total_on_its_grid():
    run = run_of()
    assert score_of(run, codes_of([0.5, -2.25]), 32, reading_of()).tolist() == [[0.5], [-2.25]]


def test_a_binary_class_goes_by_the_threshold_of_the_run():
    labels, score = reading_of().labels, np.array([[-1.0], [0.0], [1.0]])
    assert predictions_of(run_of(), score, labels).tolist() == ["no", "yes", "yes"]
    strict = run_of(evaluation={"threshold": 0.9})
    assert predictions_of(strict, score, labels).tolist() == ["no", "no", "no"]
    assert probabilities_of(run_of(), score).tolist() == pytest.approx([0.2689414, 0.5, 0.7310586])


def test_a_hinge_has_a_class_and_no_probability():
    run = run_of(loss="hinge")
    assert probabilities_of(run, np.array([[1.0]])) is None
    assert predictions_of(run, np.array([[-0.1], [0.1]]), reading_of().labels).tolist() == ["no", "yes"]


def test_the_class_with_the_highest_score_wins():
    score = np.array([[0.1, 0.3, 0.2], [2.0, -1.0, 0.0]])
    assert predictions_of(run_of(task="multiclass"), score, reading_of("multiclass").labels).tolist() == ["b", "a"]


def test_a_regression_is_in_the_labels_own_units():
    labels = LabelEncoding("regression", None, centre=10.0, spread=2.0)
    assert predictions_of(run_of(task="regression"), np.array([[1.5]]), labels).tolist() == [13.0]


def test_a_prediction_of_counts_is_exp_of_the_score_times_their_mean():
    run, labels = run_of(task="regression", loss="poisson"), LabelEncoding("regression", None, spread=3.0, link="log")
    found = predictions_of(run, np.array([[0.0], [np.log(2.0)]]), labels)
    assert found.tolist() == pytest.approx([3.0, 6.0])
    assert probabilities_of(run, np.array([[0.0]])) is None
    asked = ScoreReading.from_json(ScoreReading(IDENTITY, labels).to_json())
    assert predictions_of(run, np.array([[0.0]]), asked.labels).tolist() == [3.0]


def test_the_identity_changes_no_bit():
    score = np.random.default_rng(0).normal(size=(100, 1))
    assert (IDENTITY.apply(score) == score).all()
