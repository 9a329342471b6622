from dataclasses import replace

import numpy as np
import pytest

from fdml.align.keys import GroupKey
from fdml.align.labels import LabelSet, open_labels, seal_labels
from fdml.errors import AlignmentError, LabelError
from fdml.exchange.messages import Labels

KEY = GroupKey(bytes(range(32)))
ROWS, HELD_OUT = 7, 3
GIVEN = LabelSet(
    1,
    np.arange(ROWS) % 2.0,
    np.arange(HELD_OUT) % 2.0,
    np.linspace(0.5, 1.5, ROWS),
    np.linspace(0.5, 1.5, HELD_OUT),
)


def opened(sealed, task="binary", key=KEY, rows=ROWS, held_out=HELD_OUT):
    return open_labels(key, sealed, rows, held_out, task, "store")


def test_labels_arrive_as_they_were_and_can_be_written_to():
    found = opened(seal_labels(KEY, GIVEN))
    assert found.outputs == 1
    for name in ("train", "held_out", "train_weights", "held_out_weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(GIVEN, name))
        assert getattr(found, name).flags.writeable


def test_sealed_labels_have_the_size_that_the_server_expects_and_show_nothing():
    sealed = seal_labels(KEY, replace(GIVEN, train=np.full(ROWS, 1234.5))).sealed
    assert len(sealed) == Labels.sealed_size(ROWS + HELD_OUT)
    assert np.float64(1234.5).tobytes() not in sealed
    assert GIVEN.train_weights.tobytes() not in sealed


def test_the_same_labels_are_sealed_alike_and_others_not():
    assert seal_labels(KEY, GIVEN) == seal_labels(KEY, GIVEN)
    assert seal_labels(KEY, GIVEN) != seal_labels(KEY, replace(GIVEN, train=1 - GIVEN.train))


def test_who_has_another_key_or_gets_changed_bytes_cannot_open_them():
    sealed = seal_labels(KEY, GIVEN)
    with pytest.raises(AlignmentError, match="cannot be opened"):
        opened(sealed, key=GroupKey(bytes(32)))
    with pytest.raises(AlignmentError, match="cannot be opened"):
        opened(replace(sealed, sealed=sealed.sealed[:-1] + bytes([sealed.sealed[-1] ^ 1])))


def test_labels_of_other_rows_are_refused():
    with pytest.raises(AlignmentError, match="'store' sent 10 labels for 8 rows and 3 held out"):
        opened(seal_labels(KEY, GIVEN), rows=ROWS + 1)


BAD = {
    "NaN": ({"train": np.nan}, "not finite"),
    "Inf": ({"held_out": np.inf}, "not finite"),
    "a NaN weight": ({"train_weights": np.nan}, "not finite"),
    "a negative weight": ({"held_out_weights": -0.5}, r"weight of -0\.5"),
    "no class": ({"train": 2.0}, "the label 2; the 2 classes"),
    "a negative class": ({"held_out": -1.0}, "the label -1"),
    "half a class": ({"train": 0.5}, r"the label 0\.5"),
    "a huge label": ({"train": 1e300}, "the label 1e"),
}


@pytest.mark.parametrize("what", BAD)
def test_labels_that_no_loss_can_take_are_refused_and_the_label_party_is_named(what):
    change, text = BAD[what]
    given = replace(GIVEN, **{name: _with_one(getattr(GIVEN, name), value) for name, value in change.items()})
    with pytest.raises(LabelError, match=text) as refused:
        opened(seal_labels(KEY, given))
    assert "'store'" in str(refused.value)


def test_any_number_is_a_target_and_classes_go_up_to_the_outputs():
    opened(seal_labels(KEY, replace(GIVEN, train=_with_one(GIVEN.train, -1234.5))), task="regression")
    three = replace(GIVEN, outputs=3, train=_with_one(GIVEN.train, 2.0))
    assert opened(seal_labels(KEY, three), task="multiclass").train.max() == 2.0
    with pytest.raises(LabelError, match="the label 3; the 3 classes"):
        opened(seal_labels(KEY, replace(three, train=_with_one(GIVEN.train, 3.0))), task="multiclass")


def _with_one(values, value):
    changed = values.copy()
    changed[1] = value
    return changed
