from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.label_encoding import LabelEncoding, fit_labels
from fdml.errors import DataError, LabelError


def test_two_values_of_any_kind_become_0_and_1():
    code = fit_labels("binary", np.array(["yes", "no", "yes"]))
    assert code.transform(np.array(["no", "yes"])).tolist() == [0.0, 1.0]
    assert code.class_count == 2


def test_classes_are_numbered_in_sorted_order():
    code = fit_labels("multiclass", np.array([30, 10, 20]))
    assert code.transform(np.array([10, 20, 30])).tolist() == [0.0, 1.0, 2.0]
    assert code.class_count == 3


def test_targets_are_centred_and_scaled_and_come_back_in_their_units():
    targets = np.array([10.0, 20.0, 60.0])
    code = fit_labels("regression", targets)
    scaled = code.transform(targets)
    assert (scaled.mean(), scaled.std()) == pytest.approx((0.0, 1.0))
    assert code.inverse_transform(scaled[:, None]) == pytest.approx(targets)
    assert code.class_count == 0


def test_constant_targets_are_only_centred():
    assert fit_labels("regression", np.array([5.0, 5.0])).transform(np.array([5.0])) == 0.0


@pytest.mark.parametrize(
    ("task", "labels", "message"),
    [
        ("binary", ["a", "a"], "all 2 labels are the same: one class only"),
        ("binary", [0, 1, 2], r'"binary" takes two classes, these labels have 3; set task = "multiclass"'),
        ("multiclass", np.arange(2000), '2000 different labels are too many for classes; set task = "regression"'),
        ("regression", ["a", "b"], '"regression" needs numbers as labels, not text'),
        ("regression", [1.0, np.nan], "the label in row 1 is no finite number"),
        ("binary", np.array([1, "a"], object), "mixed types"),
    ],
)
def test_labels_of_the_wrong_kind_are_refused(task, labels, message):
    with pytest.raises(LabelError, match=message):
        fit_labels(task, np.asarray(labels))


def test_a_test_label_that_training_never_saw_is_named():
    with pytest.raises(LabelError, match="the label in test row 1 does not occur in training, which has 2 classes"):
        fit_labels("binary", np.array(["a", "b"])).transform(np.array(["a", "c"]))


# Counts and rates, whose scores are logarithms


def test_under_a_log_link_targets_are_divided_by_their_mean_and_scores_are_logarithms():
    counts = np.array([0.0, 2.0, 10.0])
    code = fit_labels("regression", counts, link="log")
    assert code.transform(counts) == pytest.approx(counts / 4.0)
    assert code.inverse_transform(np.array([[0.0], [np.log(2.5)]])) == pytest.approx([4.0, 10.0])


def test_the_mean_is_that_of_weighted_rows():
    assert fit_labels("regression", np.array([1.0, 4.0]), np.array([2.0, 1.0]), "log").spread == pytest.approx(2.0)


def test_no_score_makes_a_prediction_that_is_no_number():
    code = fit_labels("regression", np.array([1.0, 3.0]), link="log")
    found = code.inverse_transform(np.array([[1e30], [20.0], [-1e30]]))
    assert found.tolist() == [2.0 * np.exp(20.0), 2.0 * np.exp(20.0), 0.0]


def test_a_target_below_0_has_no_logarithm_and_is_named_by_its_row():
    with pytest.raises(
        LabelError, match="the label in row 2 is below 0, and this loss takes counts or rates from 0 on"
    ):
        fit_labels("regression", np.array([1.0, 0.0, -3.0]), link="log")
    with pytest.raises(LabelError, match="the label in row 0 is below 0"):
        fit_labels("regression", np.array([1.0, 2.0]), link="log").transform(np.array([-1.0]))


def test_targets_that_are_all_0_have_no_mean_to_divide_by():
    with pytest.raises(LabelError, match="all 3 labels are 0, whose mean has no logarithm; add rows of other labels"):
        fit_labels("regression", np.zeros(3), link="log")


def test_the_link_is_stored_and_others_have_the_text_that_they_had():
    code = fit_labels("regression", np.array([1.0, 3.0]), link="log")
    assert LabelEncoding.from_json(code.to_json()) == code
    assert "link" not in fit_labels("regression", np.array([1.0, 3.0])).to_json()
    with pytest.raises(DataError, match="link"):
        LabelEncoding.from_json(code.to_json().replace('"log"', '"logit"'))


@pytest.mark.parametrize("link", ["identity", "log"])
def test_a_score_by_one_encoding_means_the_same_by_another(link):
    before, now = (fit_labels("regression", np.array(each), link=link) for each in ([1.0, 3.0], [2.0, 9.0, 40.0]))
    score = np.array([[0.3], [-1.2]])
    assert now.inverse_transform(before.rescaled(score, now)) == pytest.approx(before.inverse_transform(score))


CLASSES = {
    "text": np.array(["", "nein", "é", "東京", "01"]),
    "bool": np.array([False, True]),
    "int8": np.array([-128, 127], np.int8),
    "int64": np.array([-(2**63), 0, 2**63 - 1]),
    "uint64": np.array([0, 2**64 - 1], np.uint64),
    "float16": np.array([0.1, 0.5], np.float16),
    "float32": np.array([-1e30, 0.1, 7], np.float32),
    "float64": np.array([0.1, 1e-300, 7.0]),
}


@pytest.mark.parametrize("kind", CLASSES)
def test_saved_classes_come_back_in_their_type_and_number_labels_alike(kind):
    labels = CLASSES[kind]
    code = fit_labels("binary" if len(labels) == 2 else "multiclass", labels)
    loaded = LabelEncoding.from_json(code.to_json())
    assert json.loads(code.to_json())["classes"]["type"] == kind
    assert (loaded.task, loaded.class_count, loaded.classes.dtype.kind) == (
        code.task,
        code.class_count,
        code.classes.dtype.kind,
    )
    assert loaded.classes.tobytes() == code.classes.tobytes()
    assert loaded.transform(labels).tolist() == code.transform(labels).tolist()


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), unique=True, min_size=2, max_size=6))
def test_any_words_are_saved_and_loaded(words):
    labels = np.array(words)
    if len(np.unique(labels)) < 2:  # numpy drops zeros at the end of a text
        return
    loaded = LabelEncoding.from_json(fit_labels("multiclass", labels).to_json())
    assert loaded.classes.tolist() == np.unique(labels).tolist()


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=6))
def test_a_loaded_scale_of_targets_makes_the_same_bits(targets):
    code = fit_labels("regression", np.array(targets))
    loaded = LabelEncoding.from_json(code.to_json())
    assert loaded == code
    unseen = np.array([0.3, -7e50])
    assert loaded.transform(unseen).tobytes() == code.transform(unseen).tobytes()
    assert loaded.inverse_transform(unseen[:, None]).tobytes() == code.inverse_transform(unseen[:, None]).tobytes()


def test_classes_of_a_type_that_json_has_no_word_for_are_refused():
    with pytest.raises(LabelError, match="labels of type bytes8 cannot be saved; make them numbers, text"):
        LabelEncoding("binary", np.array([b"a", b"b"])).to_json()


def changed(code, **values):
    return json.dumps({**json.loads(code.to_json()), **values})


BINARY = LabelEncoding("binary", np.array([0, 1]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the label encoding is no JSON"),
        (changed(BINARY, layout=9), "the label encoding has layout 9, this fdml reads layout 1"),
        (changed(BINARY, task="guess"), "the label encoding: task: "),
        (changed(BINARY, classes=None), "of task 'binary' has no classes; the file is damaged"),
        (changed(BINARY, task="regression"), "of task 'regression' has classes"),
        (changed(BINARY, spread=0), "the label encoding: spread: "),
        (changed(BINARY, classes={"type": "object", "values": [1, 2]}), "classes.type: "),
        (changed(BINARY, classes={"type": "int64", "values": [1]}), "classes.values: "),
        (changed(BINARY, classes={"type": "int64", "values": [1, 0]}), "are not int64 in sorted order"),
        (changed(BINARY, classes={"type": "int64", "values": [1, 1]}), "are not int64 in sorted order"),
        (changed(BINARY, classes={"type": "int8", "values": [1, 999]}), "are not int8 in sorted order"),
        (changed(BINARY, classes={"type": "int64", "values": ["a", "b"]}), "are not int64 in sorted order"),
        (changed(BINARY, classes={"type": "text", "values": [1, 2]}), "are not text in sorted order"),
        (changed(BINARY, classes={"type": "int64", "values": [0.5, 1.5]}), "are not int64 in sorted order"),
    ],
)
def test_a_text_that_is_no_label_encoding_is_refused_with_what_is_wrong(text, message):
    with pytest.raises(DataError, match=message):
        LabelEncoding.from_json(text)
