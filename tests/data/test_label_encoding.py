from __future__ import annotations

import numpy as np
import pytest

from fdml.data.label_encoding import fit_labels
from fdml.errors import LabelError


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
        ("binary", ["a", "a"], "all 2 labels are 'a': one class only"),
        ("binary", [0, 1, 2], r'"binary" takes two classes, these labels have 3: 0, 1, 2; set task = "multiclass"'),
        ("multiclass", np.arange(2000), '2000 different labels are too many for classes; set task = "regression"'),
        ("regression", ["a", "b"], r'"regression" needs numbers as labels, not \'a\''),
        ("regression", [1.0, np.nan], "label in row 1 is nan"),
        ("binary", np.array([1, "a"], object), "mixed types"),
    ],
)
def test_labels_of_the_wrong_kind_are_refused(task, labels, message):
    with pytest.raises(LabelError, match=message):
        fit_labels(task, np.asarray(labels))


def test_a_test_label_that_training_never_saw_is_named():
    with pytest.raises(
        LabelError, match="label 'c' in test row 1 does not occur in training; the classes are 'a', 'b'"
    ):
        fit_labels("binary", np.array(["a", "b"])).transform(np.array(["a", "c"]))
