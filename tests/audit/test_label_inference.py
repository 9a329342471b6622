"""Labels that nothing protects are found, and randomised ones only as far as their epsilon says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.audit.label_inference import attacks, class_auc, gather
from fdml.audit.recording import GroundTruth, Recording
from fdml.data.rows import as_rows, to_dense
from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.privacy.randomised_response import DRAW_BYTES, chance_of_truth, draws_of, randomised
from fdml.protocol.fixed_point import decode, encode
from fdml.protocol.schedule import schedule_for
from fdml.settings import RunSettings

ROWS, EPOCHS, WIDTH = 3000, 4, 6


class Formula:
    """A final model that is any function of the features."""

    dtype = np.dtype(np.float64)

    def __init__(self, function):
        self._function = function

    def predict(self, rows, start=0, stop=None):
        return self._function(to_dense(rows)[start:stop].astype(np.float64))


def draws(seed):
    return draws_of(np.random.default_rng(seed).integers(0, 256, (ROWS, DRAW_BYTES), np.uint8))


def record(classes=2, epsilon=2.0, seed=1, *, drawn_with=None, anew=False, labels="private", sparse=False, noise=0.0):
    """A run as its gradients tell of it.

    `drawn_with` is the epsilon that labels were really randomised with; `anew` draws them again in every epoch;
    `noise` is put on gradients.
    """
    chance = np.random.default_rng(seed)
    scores = 1 if classes == 2 else classes
    x = {party: chance.normal(size=(ROWS, WIDTH)) for party in ("ann", "bob")}
    weights = {party: chance.normal(size=(WIDTH, scores)) for party in x}
    score = sum(x[party] @ weights[party] for party in x)
    logistic = LOSSES["logistic" if classes == 2 else "softmax"]
    chances = logistic.probability(score)
    true = (chances.cumsum(axis=1) < chance.uniform(size=(ROWS, 1))).sum(axis=1).astype(float)
    used = epsilon if drawn_with is None else drawn_with
    shown = [
        true if used == "off" else randomised(true, classes, used, draws([seed, epoch * anew]))
        for epoch in range(EPOCHS)
    ]
    schedule = schedule_for(ROWS, 50, 8, 1, EPOCHS, seed)
    plain, gradients = {"ann": {}, "bob": {}}, {}
    for step in range(schedule.steps):
        visit = schedule.visit(step)
        here = slice(visit.start, visit.stop)
        for party in plain:
            part = x[party][here] @ weights[party] * (visit.epoch / EPOCHS)
            plain[party][step] = decode(encode(part))
        exact = logistic.gradient(plain["ann"][step] + plain["bob"][step], shown[visit.epoch][here])
        gradients[step] = decode(encode(exact + noise * chance.normal(size=exact.shape)))
    features = {party: as_rows(sp.csr_array(x[party]) if sparse else x[party]) for party in x}
    privacy = {"labels": labels, "label_epsilon": epsilon}
    task = "binary" if classes == 2 else "multiclass"
    return Recording(
        run=RunSettings(parties=("ann", "bob"), label_party="ann", task=task, privacy=privacy),
        schedule=schedule,
        objective=objective_for("logistic" if classes == 2 else "softmax", classes),
        echo=2.0,
        pushes={"ann": {}, "bob": {}},
        plain=plain,
        held_out={"ann": {}, "bob": {}},
        gradients=gradients if labels == "private" else {},
        mechanisms={},
        truth=GroundTruth(
            features, true, shown[0], models={party: Formula(lambda x, p=party: x @ weights[p]) for party in x}
        ),
    )


def only(results):
    (result,) = results
    return result


def outcome(name, recording):
    return only(attacks[name](recording)).outcome


@pytest.mark.parametrize("name", ["A1", "A2", "A3"])
def test_shared_labels_are_no_secret(name):
    result = only(attacks[name](record(labels="shared")))
    assert result.outcome == "NOT APPLICABLE"
    assert "by agreement" in result.reason


@pytest.mark.parametrize("classes", [2, 3])
def test_without_randomised_labels_every_label_and_total_is_found(classes):
    result = only(attacks["A1"](record(classes, "off")))
    assert result.score == 1.0
    assert result.details["totals_recovered"] > 0.99
    assert result.baseline < 0.6
    assert result.outcome == "FAIL"


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0, 3.0])
def test_randomised_labels_are_found_as_often_as_epsilon_allows(classes, epsilon):
    result = only(attacks["A1"](record(classes, epsilon)))
    assert result.outcome == "PASS"
    assert result.score == pytest.approx(chance_of_truth(epsilon, classes), abs=0.04)
    assert result.details["totals_recovered"] > 0.99, "epsilon protects labels, not the sum of predictions"


@pytest.mark.parametrize("classes", [2, 3])
def test_labels_randomised_with_a_larger_epsilon_than_agreed_are_noticed(classes):
    assert outcome("A1", record(classes, 1.0, drawn_with=1.5)) == "FAIL"


def test_labels_drawn_anew_in_every_epoch_are_found_by_averaging():
    recording = record(epsilon=1.0, anew=True)
    last = [step for step in recording.gradients if recording.schedule.visit(step).epoch == EPOCHS - 1]
    once = replace(recording, gradients={step: recording.gradients[step] for step in last})
    assert outcome("A1", once) == "PASS"
    assert outcome("A1", recording) == "FAIL"


def test_few_rows_widen_the_bar_and_the_reason_says_so():
    recording = record(epsilon=1.0)
    result = only(attacks["A1"](replace(recording, gradients={0: recording.gradients[0]})))
    assert result.outcome == "PASS"
    assert "4 standard deviations of 400 rows" in result.reason
    assert "+ 0.089" in result.bar


def test_rows_that_were_never_visited_do_not_count():
    recording = record(epsilon="off")
    evidence = gather(replace(recording, gradients={0: recording.gradients[0]}))
    visit = recording.schedule.visit(0)
    assert evidence.rows.tolist() == list(range(visit.start, visit.stop))


@pytest.mark.parametrize("classes", [2, 3])
def test_averaged_gradients_tell_labels_that_are_not_randomised(classes):
    result = only(attacks["A2"](record(classes, "off")))
    assert result.score > 0.99
    assert result.gain > 0.1
    assert result.outcome == "FAIL"
    assert "label_epsilon is off" in result.reason


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("epsilon", [1.0, 2.0, 4.0])
def test_averaged_gradients_of_randomised_labels_tell_no_more_than_the_labels_shown(classes, epsilon):
    result = only(attacks["A2"](record(classes, epsilon)))
    assert result.outcome == "PASS"
    assert result.score <= max(result.details["shown_labels"], result.baseline) + 0.02


def test_the_bar_of_averaged_gradients_is_the_larger_of_both_and_the_reason_says_which():
    assert "the attacker's own model reaches" in only(attacks["A2"](record(epsilon=0.5))).reason
    assert "that were shown reach" in only(attacks["A2"](record(epsilon=4.0))).reason


def test_averaged_gradients_see_through_labels_drawn_anew():
    assert outcome("A2", record(epsilon=2.0, anew=True)) == "FAIL"


def test_noise_on_gradients_that_hides_one_epoch_is_averaged_away():
    """What noise hides in one epoch comes out over several; see the notes on single-shot figures."""
    details = only(attacks["A2"](record(epsilon="off", noise=2.0))).details
    assert details["direction"] > details["one_epoch"] + 0.05


def test_the_length_of_a_gradient_needs_no_direction():
    labels = np.array([0.0, 0.0, 1.0, 1.0])
    score = np.array([[4.0], [3.0], [2.0], [1.0]])
    assert class_auc(labels, score) == 0.0
    assert class_auc(labels, score, either_way=True) == 1.0
    assert class_auc(np.zeros(4), score) == 0.5


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("classes", [2, 3])
def test_a_local_model_that_knows_what_its_features_tell_passes(classes, sparse):
    result = only(attacks["A3"](record(classes, sparse=sparse)))
    assert result.outcome == "PASS"
    assert 0.5 < result.baseline < result.details["solo"]
    assert result.score == pytest.approx(result.details["solo"], abs=0.02)


def test_a_local_model_that_knows_more_than_its_features_tell_is_noticed():
    recording = record()
    known = dict(zip(to_dense(recording.truth.features["bob"])[:, 0].tolist(), recording.truth.labels, strict=True))
    memory = Formula(lambda x: np.array([[known[value]] for value in x[:, 0]]))
    models = {**recording.truth.models, "bob": memory}
    result = only(attacks["A3"](replace(recording, truth=replace(recording.truth, models=models))))
    assert result.score == 1.0
    assert result.outcome == "FAIL"


def test_without_final_models_there_is_nothing_to_complete():
    recording = record()
    result = only(attacks["A3"](replace(recording, truth=replace(recording.truth, models={}))))
    assert result.outcome == "NOT APPLICABLE"


def test_every_party_but_the_label_party_attacks():
    recording = record()
    run = recording.run.model_copy(update={"label_party": "bob"})
    assert only(attacks["A3"](replace(recording, run=run))).view == "party 'ann'"


def test_a_run_without_gradients_cannot_be_attacked():
    assert "no gradients" in only(attacks["A1"](replace(record(), gradients={}))).reason
