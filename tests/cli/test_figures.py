"""The last lines of a run, from the bundle."""

from dataclasses import asdict, replace

import numpy as np

from fdml.cli.figures import bundle_figures, bundle_lines
from fdml.data.label_encoding import LabelEncoding
from fdml.events import Compared, Evaluated
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.settings.evaluation import EvaluationSettings
from tests.models.test_bundle import ENCODER, LABELS, PARTY, RUN, STATE
from tests.monitor.sample_events import SAMPLES

FOUND = Evaluated("store", 4, 1.0, 0.5, 0.4, 0.9, {"auc": 0.9, "accuracy": 0.75, "threshold": 0.3})


def bundle(evaluated=FOUND, labels=LABELS, stop_after=None):
    run = RUN.model_copy(update={"evaluation": EvaluationSettings(stop_after=stop_after)})
    card = BundleCard.of(
        run=run, party="store", model=PARTY.model, data=PARTY.data, alignment_hash=b"a" * 32, evaluated=evaluated
    )
    return Bundle(card=card, parameters=STATE, encoder=ENCODER, labels=labels)


def test_a_label_party_reads_all_figures_and_which_class_is_1():
    assert list(bundle_lines(bundle())) == [
        "held-out rows, model of epoch 4: AUC 0.9000, accuracy 0.7500 at threshold 0.3",
        "'yes' is 1, 'no' is 0",
    ]


def test_figures_of_rows_that_have_chosen_the_model_are_said_to_be_too_good():
    first, second, _ = bundle_lines(bundle(stop_after=2))
    assert first.startswith("held-out rows, model of epoch 4")
    assert "a little too good" in second


def test_what_joint_training_brings_is_read_and_is_in_the_figures_for_a_program(tmp_path):
    (compared,) = [event for event in SAMPLES if isinstance(event, Compared)]
    made = bundle(replace(FOUND, compared=compared))
    assert list(bundle_lines(made))[1] == compared.text
    made.save(tmp_path / "model")
    lines, figures = bundle_figures(tmp_path / "model")
    assert compared.text in lines
    assert figures["compared"] == asdict(compared)


def test_another_party_and_more_than_two_classes_have_nothing_to_say_of_them():
    assert list(bundle_lines(bundle(None, None))) == []
    three = LabelEncoding("multiclass", np.array(["a", "b", "c"]))
    assert len(list(bundle_lines(bundle(labels=three)))) == 1


def test_a_program_reads_the_same_figures(tmp_path):
    bundle().save(tmp_path / "model")
    lines, facts = bundle_figures(tmp_path / "model")
    assert len(lines) == 2
    assert (facts["epoch"], facts["test_metric"], facts["chosen_by_held_out_rows"]) == (4, 0.9, False)
    assert facts["figures"] == FOUND.figures
    assert bundle_figures(None) == ([], {})
    bundle(None, None).save(tmp_path / "other")
    assert bundle_figures(tmp_path / "other") == ([], {})
