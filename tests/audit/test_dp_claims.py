"""A claim of differential privacy holds for what really travels, or the audit says where it does not."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.audit import dp_claims as claims
from fdml.audit.dp_claims import attacks, textbook_epsilon
from fdml.audit.recording import GroundTruth, Recording
from fdml.data.rows import as_rows, to_dense
from fdml.models.objective import objective_for
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger, Mechanism, epsilon_of
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import decode, encode
from fdml.protocol.messages import HeldOutPredictions, Push, Release
from fdml.protocol.schedule import schedule_for
from fdml.settings import RunSettings

ROWS, EPOCHS, CLIP, DELTA = 1200, 5, 2.0, 1e-5
GAUSSIAN = Mechanism("gaussian", CLIP, 4.0 * CLIP)
LAPLACE = Mechanism("laplace", CLIP, 2.0 * CLIP)
NOISES = pytest.mark.parametrize("mechanism", [GAUSSIAN, LAPLACE], ids=["gaussian", "laplace"])
ONE, ALL, TRAVELLED, AROUND = "one release", "all releases", "noise that travelled", "ways around the noise"


class Linear:
    """A final model."""

    dtype = np.dtype(np.float64)

    def __init__(self, weights):
        self._weights = weights

    def predict(self, rows, start=0, stop=None):
        return to_dense(rows)[start:stop].astype(np.float64) @ self._weights


def record(mechanism, *, used=None, classes=2, gradients_from=None):
    """A run of ann, who adds noise, and bob, who does not; `used` is what ann's noise really is.

    `gradients_from` is what gradients of private labels are made of: "released" or "exact" predictions.
    """
    chance = np.random.default_rng(11)
    schedule = schedule_for(ROWS, 50, 6, 1, EPOCHS, 3)
    parties = ("ann", "bob")
    x = {party: chance.normal(size=(ROWS, 3)) for party in parties}
    models = {party: Linear(0.5 * chance.normal(size=(3, 1 if classes == 2 else classes))) for party in parties}
    features = {party: as_rows(x[party]) for party in parties}
    used = mechanism if used is None else used
    shields = {"ann": Perturbation(used, NoiseKey(bytes(32))), "bob": Perturbation(NO_NOISE)}
    guards = {
        party: Guard(perturbation, Ledger(perturbation.mechanism, None, DELTA, None))
        for party, perturbation in shields.items()
    }
    pushes, plain, gradients = {party: {} for party in parties}, {party: {} for party in parties}, {}
    labels = chance.integers(0, classes, ROWS).astype(float)
    objective = objective_for("logistic" if classes == 2 else "softmax", classes)
    for step in range(schedule.steps):
        visit = schedule.visit(step)
        exact = {party: models[party].predict(features[party], visit.start, visit.stop) for party in parties}
        for party in parties:
            push, codes = guards[party].push(step, visit.block, exact[party])
            variance = mechanism.variance if party == "ann" else 0.0
            pushes[party][step] = Push(step, replace(push.release, variance=variance))
            plain[party][step] = decode(codes)
        own = exact["ann"] if gradients_from == "exact" else plain["ann"][step]
        given = objective.gradient(own + plain["bob"][step], labels[visit.start : visit.stop])
        gradients[step] = decode(encode(given))
    return Recording(
        run=RunSettings(
            parties=parties,
            label_party="ann",
            task="binary" if classes == 2 else "multiclass",
            privacy={"labels": "private" if gradients_from else "shared"},
        ),
        schedule=schedule,
        objective=objective,
        echo=2.0,
        pushes=pushes,
        plain=plain,
        held_out={party: {} for party in parties},
        gradients=gradients if gradients_from else {},
        mechanisms={"ann": mechanism, "bob": NO_NOISE},
        truth=GroundTruth(features, labels, labels, models=models),
    )


def of_ann(recording):
    """The results on ann's claim, by their part."""
    return {each.title.removeprefix("DP claim: "): each for each in attacks["A10"](recording) if "'ann'" in each.view}


@pytest.fixture(autouse=True)
def the_same_noise(monkeypatch):
    """The attack draws with a key of its own: one in twenty honest claims would fail, as its confidence says."""
    monkeypatch.setattr(claims.secrets, "token_bytes", bytes)


@NOISES
@pytest.mark.parametrize("classes", [2, 3])
def test_an_honest_claim_passes(mechanism, classes):
    found = of_ann(record(mechanism, classes=classes))
    assert {part: result.outcome for part, result in found.items()} == dict.fromkeys((ONE, ALL, TRAVELLED), "PASS")
    assert 0 < found[ONE].score <= found[ONE].details["claimed"]
    assert found[ALL].score == pytest.approx(epsilon_of(mechanism, EPOCHS, DELTA), rel=1e-6)


class HalfPerturbation(Perturbation):
    """Claims its mechanism and adds half the noise."""

    def protect(self, predictions, purpose, number):
        if self.mechanism.noise == "none":
            return super().protect(predictions, purpose, number)
        half = Mechanism(self.mechanism.noise, self.mechanism.clip, self.mechanism.sigma / 2)
        return Perturbation(half, self._key).protect(predictions, purpose, number)


class WidePerturbation(Perturbation):
    """Clips at twice what it claims."""

    def protect(self, predictions, purpose, number):
        wide = Mechanism(self.mechanism.noise, 2 * self.mechanism.clip, self.mechanism.sigma)
        return Perturbation(wide, self._key).protect(2 * predictions, purpose, number)


@NOISES
@pytest.mark.parametrize("broken", [HalfPerturbation, WidePerturbation])
def test_a_perturbation_that_hides_less_than_it_claims_is_noticed(monkeypatch, mechanism, broken):
    recording = record(mechanism)
    monkeypatch.setattr(claims, "Perturbation", broken)
    result = of_ann(recording)[ONE]
    assert result.outcome == "FAIL"
    assert result.score > result.details["claimed"]


def test_a_claim_that_draws_cannot_refute_is_said_to_be_one():
    assert "cannot show more" in of_ann(record(Mechanism("gaussian", CLIP, 0.5 * CLIP)))[ONE].reason
    assert "cannot show more" not in of_ann(record(GAUSSIAN))[ONE].reason


def sent(recording):
    return tuple((party, push) for party, pushes in recording.pushes.items() for push in pushes.values())


def test_noise_drawn_anew_for_a_step_is_a_release_that_was_not_counted():
    recording = record(GAUSSIAN)
    first = recording.pushes["ann"][3]
    again = Push(3, replace(first.release, values=first.release.values + 1))
    result = of_ann(replace(recording, repeated=(*sent(recording), ("ann", again))))[ALL]
    assert result.outcome == "FAIL"
    assert result.details["not_counted"] == 1
    assert result.score == pytest.approx(epsilon_of(GAUSSIAN, EPOCHS + 1, DELTA), rel=1e-6)


def test_a_release_sent_again_as_it_was_costs_nothing():
    recording = record(GAUSSIAN)
    assert of_ann(replace(recording, repeated=2 * sent(recording)))[ALL].outcome == "PASS"


def test_a_ledger_that_counts_too_cheaply_is_noticed(monkeypatch):
    monkeypatch.setattr(
        "fdml.privacy.ledger.epsilon_of",
        lambda mechanism, releases, *rest: epsilon_of(mechanism, min(releases, 1), *rest),
    )
    assert of_ann(record(GAUSSIAN))[ALL].outcome == "FAIL"


@NOISES
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8])
def test_pushes_with_less_noise_than_they_say_are_noticed(mechanism, share):
    used = Mechanism(mechanism.noise, CLIP, share * mechanism.sigma) if share else Mechanism("none", CLIP, 0.0)
    found = of_ann(record(mechanism, used=used))
    assert found[TRAVELLED].outcome == "FAIL"
    assert found[TRAVELLED].score == pytest.approx(share * math.sqrt(mechanism.variance), rel=0.1, abs=1e-6)


def test_messages_that_say_another_variance_are_noticed():
    recording = record(GAUSSIAN)
    pushes = {step: Push(step, Release(push.release.values, 0, 1.0)) for step, push in recording.pushes["ann"].items()}
    result = of_ann(replace(recording, pushes={**recording.pushes, "ann": pushes}))[TRAVELLED]
    assert result.outcome == "FAIL"
    assert "say otherwise" in result.reason


@NOISES
@pytest.mark.parametrize("classes", [2, 3])
def test_gradients_made_of_exact_predictions_take_the_noise_off(mechanism, classes):
    result = of_ann(record(mechanism, classes=classes, gradients_from="exact"))[AROUND]
    assert result.outcome == "FAIL"
    assert result.score > 0.1


@pytest.mark.parametrize("classes", [2, 3])
def test_gradients_made_of_what_was_released_tell_nothing_more(classes):
    small = Mechanism("gaussian", CLIP, 0.5 * CLIP)
    result = of_ann(record(small, classes=classes, gradients_from="released"))[AROUND]
    assert result.outcome == "PASS"
    assert result.details["values"] > 100


def test_stale_totals_leave_open_what_gradients_were_made_of():
    recording = record(GAUSSIAN, gradients_from="exact")
    training = recording.run.training.model_copy(update={"staleness": 2})
    run = recording.run.model_copy(update={"training": training})
    assert of_ann(replace(recording, run=run))[AROUND].outcome == "NOT APPLICABLE"


def test_a_party_without_noise_claims_nothing():
    bob = [each for each in attacks["A10"](record(GAUSSIAN)) if "'bob'" in each.view]
    assert [each.outcome for each in bob] == ["NOT APPLICABLE"]
    assert "infinite" in bob[0].reason


def test_without_a_final_model_the_noise_that_travelled_is_not_known():
    recording = record(GAUSSIAN)
    bare = replace(recording, truth=replace(recording.truth, models={}))
    assert of_ann(bare)[TRAVELLED].outcome == "NOT APPLICABLE"


@pytest.mark.parametrize(
    ("ratio", "releases", "epsilon"), [(2, 10, 17.9), (4, 1, 1.99), (8, 10, 3.34), (16, 100, 5.68), (1, 40, 133)]
)
def test_the_textbook_formula_gives_the_figures_of_the_notes(ratio, releases, epsilon):
    found = textbook_epsilon(Mechanism("gaussian", 1.0, ratio), releases, DELTA)
    assert found == pytest.approx(epsilon, rel=0.005)


@given(st.floats(0.5, 100), st.integers(1, 500), st.sampled_from(["gaussian", "laplace"]))
def test_the_textbook_and_the_ledger_agree(ratio, releases, noise):
    mechanism = Mechanism(noise, 3.0, 3.0 * ratio)
    expected = epsilon_of(mechanism, releases, DELTA)
    assert textbook_epsilon(mechanism, releases, DELTA) == pytest.approx(expected, rel=1e-3, abs=1e-6)


def test_held_out_predictions_under_noise_are_releases_of_other_rows():
    recording = record(GAUSSIAN)
    noisy = {
        epoch: HeldOutPredictions(epoch, Release(np.arange(5) + epoch, 0, GAUSSIAN.variance))
        for epoch in range(1, EPOCHS + 3)
    }
    result = of_ann(replace(recording, held_out={**recording.held_out, "ann": noisy}))[ALL]
    assert result.outcome == "PASS"
    assert result.details["releases"] == EPOCHS + 2, "held-out rows were released more often than any other"
    assert result.score == pytest.approx(epsilon_of(GAUSSIAN, EPOCHS + 2, DELTA), rel=1e-6)


def test_held_out_predictions_that_are_exact_are_no_release_under_noise():
    recording = record(GAUSSIAN)
    exact = {epoch: HeldOutPredictions(epoch, Release(np.arange(5) + epoch)) for epoch in range(1, 99)}
    result = of_ann(replace(recording, held_out={**recording.held_out, "ann": exact}))[ALL]
    assert (result.outcome, result.details["releases"]) == ("PASS", EPOCHS)


@NOISES
def test_no_release_costs_nothing(mechanism):
    assert textbook_epsilon(mechanism, 0, DELTA) == 0.0


def test_noise_so_large_that_delta_covers_it_costs_nothing():
    assert textbook_epsilon(Mechanism("gaussian", 1.0, 1e7), 1, DELTA) == 0.0
