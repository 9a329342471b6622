"""An attack that has nothing to work on says why: it neither fails nor passes a run it knows nothing of."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.attacks import ATTACKS
from fdml.audit.feature_reconstruction import insider
from fdml.audit.views import views
from fdml.data.rows import as_rows
from fdml.models.objective import objective_for
from fdml.models.registry import model_settings
from fdml.settings import PrivacySettings, TrainingSettings
from tests.audit.recorded import evaluated, recorded, small

PRIVATE = PrivacySettings(labels="private")
BLIND = PrivacySettings(server="blind")


def outcomes(name, recording):
    return {(each.outcome, each.reason) for each in ATTACKS[name](recording)}


def only_reason(name, recording):
    """The one reason why an attack has nothing to work on, from whatever view."""
    ((outcome, reason),) = outcomes(name, recording)
    assert outcome == "NOT APPLICABLE"
    return reason


LABEL_ATTACKS = pytest.mark.parametrize("name", ["A1", "A2", "A3"])


@LABEL_ATTACKS
def test_labels_that_are_shared_need_no_attack(name):
    assert only_reason(name, small("ab")) == "labels are shared: the parties know them by agreement"


@LABEL_ATTACKS
def test_a_label_party_without_others_has_nobody_to_attack_it(name):
    recording = small("ab", privacy=PRIVATE)
    alone = replace(recording, run=recording.run.model_copy(update={"parties": ("a",)}))
    assert only_reason(name, alone) == "there is no party but the label party"


@LABEL_ATTACKS
def test_without_gradients_there_is_nothing_to_read_labels_from(name):
    assert only_reason(name, replace(small("ab", privacy=PRIVATE), gradients={})) == "no gradients were recorded"


def test_too_few_rows_are_none_to_know_some_of_and_guess_the_others():
    recording = small("ab", widths={"a": 2, "b": 9})
    view = next(each for each in views(recording) if each.target == "b")
    found = insider(recording, view)
    assert (found.outcome, found.reason) == ("NOT APPLICABLE", "24 rows are too few to know 14 and guess the others")


def test_features_that_are_all_alike_are_not_guessed():
    recording = small("ab")
    parts = {**recording.truth.features, "b": as_rows(np.ones((24, 2)))}
    alike = replace(recording, truth=replace(recording.truth, features=parts))
    view = next(each for each in views(alike) if each.target == "b")
    assert insider(alike, view).outcome == "NOT APPLICABLE"


def test_features_of_many_values_are_no_attributes():
    reasons = {reason for _, reason in outcomes("A6", small("ab"))}
    assert "'b' has no feature of two values that 5 % to 95 % of the rows have" in reasons


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (model_settings(kind="mlp", hidden=(3,)), "the attack is for linear models, that of 'b' is mlp"),
        (model_settings(optimizer="adam"), "adam steps depend on more than inner products of rows"),
        (model_settings(optimizer="adagrad"), "adagrad steps depend on more than inner products of rows"),
    ],
    ids=["hidden layers", "adam", "adagrad"],
)
def test_a_training_that_is_not_linear_in_inner_products_cannot_be_followed(model, words):
    reasons = [reason for _, reason in outcomes("A5", small("ab", model=model))]
    assert any(words in reason for reason in reasons)


def test_a_model_that_the_recording_does_not_name_cannot_be_followed():
    reasons = {reason for _, reason in outcomes("A5", replace(small("ab"), model_settings={}))}
    assert any("that of 'b' is unknown" in reason for reason in reasons)


def test_a_blind_server_sees_masked_values_and_other_parties_see_sums():
    reasons = {reason for _, reason in outcomes("A5", small("abc", privacy=BLIND))}
    assert "sees only masked values; A8 tests those" in reasons
    assert any(reason.startswith("sees only sums over several parties") for reason in reasons)


def test_a_run_that_ended_before_every_row_was_pushed_cannot_be_followed():
    recording = small("ab")
    first = {party: {0: pushes[0]} for party, pushes in recording.plain.items()}
    assert {reason for _, reason in outcomes("A5", replace(recording, plain=first))} == {"not every row was pushed"}


def test_without_held_out_rows_no_metrics_tell_of_them():
    assert only_reason("A13", small("ab")) == "no held-out rows were evaluated"


def test_metrics_of_another_loss_have_other_equations():
    recording = replace(evaluated(held_out=12, epochs=2), objective=objective_for("hinge", 2))
    assert only_reason("A13", recording) == "the equations are those of a log loss of two classes"


def test_a_party_that_never_finished_has_sent_nothing_of_its_model():
    assert only_reason("A14", replace(small("ab"), finished={})) == "nothing was sent of its final model"


def test_round_features_are_nothing_to_look_for():
    training = TrainingSettings(epochs=1, batch_size=6, batches_per_block=2, learning_rate=0.25)
    recording = recorded({name: np.zeros((24, 2)) for name in "ab"}, np.arange(24) % 2.0, training)
    bare = replace(recording, truth=replace(recording.truth, models={}))
    assert only_reason("A11", bare).startswith("there is nothing distinctive to look for")
