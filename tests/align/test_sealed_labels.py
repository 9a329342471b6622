from dataclasses import replace

import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.align.sealed_labels import LabelSet, open_labels, open_pieces, seal_labels
from fdml.errors import AlignmentError, LabelError
from fdml.protocol.messages import Labels
from fdml.protocol.row_pieces import all_pieces, label_pieces

KEY = GroupKey(bytes(range(32)))
ROWS, HELD_OUT = 7, 3
GIVEN = LabelSet(
    2,
    np.arange(ROWS) % 2.0,
    np.arange(HELD_OUT) % 2.0,
    np.linspace(0.5, 1.5, ROWS),
    np.linspace(0.5, 1.5, HELD_OUT),
)
EVEN = replace(GIVEN, train_weights=np.ones(ROWS), held_out_weights=np.ones(HELD_OUT))


def of_classes(count):
    """The last of the classes occurs."""
    return replace(EVEN, classes=count, train=np.linspace(0, count - 1, ROWS).round())


CASES = {
    "two classes": ("binary", EVEN, 1),
    "as many classes as a byte tells apart": ("multiclass", of_classes(256), 1),
    "more of them": ("multiclass", of_classes(257), 2),
    "as many as two bytes tell apart": ("multiclass", of_classes(2**16), 2),
    "targets": ("regression", replace(EVEN, classes=0, train=np.linspace(-1e9, 1e-9, ROWS)), 8),
    "weights": ("binary", GIVEN, 9),
    "weights of two bytes' classes": ("multiclass", replace(of_classes(300), train_weights=GIVEN.train_weights), 10),
    "weights of held-out rows": ("binary", replace(EVEN, held_out_weights=GIVEN.held_out_weights), 9),
    "weights of targets": ("regression", replace(GIVEN, classes=0, train=np.linspace(-1.0, 1.0, ROWS) / 3), 16),
    "weights that are nearly even": ("binary", replace(EVEN, train_weights=np.full(ROWS, np.nextafter(1.0, 2.0))), 9),
}


def opened(sealed, task="binary", key=KEY, rows=ROWS, held_out=HELD_OUT):
    return open_labels(key, sealed, rows, held_out, task, "store")


def told(numbers, weights=b"", classes=2):
    """What a label party would send that seals whatever it likes."""
    return Labels(classes, KEY.seal("labels", numbers + weights))


@pytest.mark.parametrize("case", CASES)
def test_labels_arrive_as_they_were_and_can_be_written_to(case):
    task, given, _ = CASES[case]
    found = opened(seal_labels(KEY, given, task), task)
    assert found.classes == given.classes
    for name in ("train", "held_out", "train_weights", "held_out_weights"):
        assert getattr(found, name).tobytes() == getattr(given, name).tobytes()
        assert getattr(found, name).dtype == np.float64
        assert getattr(found, name).flags.writeable
        assert getattr(found, name).flags.c_contiguous


@pytest.mark.parametrize("case", CASES)
def test_labels_take_few_bytes_and_the_size_that_the_server_expects(case):
    task, given, width = CASES[case]
    size, empty = len(seal_labels(KEY, given, task).sealed), Labels.sealed_size(task, given.classes, 0)
    assert size == width * (ROWS + HELD_OUT) + empty
    weighted = "weights" in case
    assert size == Labels.sealed_size(task, given.classes, ROWS + HELD_OUT, weighted=weighted)


def test_sealed_labels_show_nothing():
    sealed = seal_labels(KEY, replace(GIVEN, train=np.full(ROWS, 1234.5)), "regression").sealed
    assert np.float64(1234.5).tobytes() not in sealed
    assert GIVEN.train_weights.tobytes() not in sealed
    assert EVEN.train.astype(np.uint8).tobytes() not in seal_labels(KEY, EVEN, "binary").sealed


def test_the_same_labels_are_sealed_alike_and_others_not():
    sealed = seal_labels(KEY, GIVEN, "binary")
    assert seal_labels(KEY, GIVEN, "binary") == sealed
    assert seal_labels(KEY, replace(GIVEN, train=1 - GIVEN.train), "binary") != sealed
    assert seal_labels(KEY, EVEN, "binary") != sealed


def test_who_has_another_key_or_gets_changed_bytes_cannot_open_them():
    sealed = seal_labels(KEY, GIVEN, "binary")
    with pytest.raises(AlignmentError, match="cannot be opened"):
        opened(sealed, key=GroupKey(bytes(32)))
    with pytest.raises(AlignmentError, match="cannot be opened"):
        opened(replace(sealed, sealed=sealed.sealed[:-1] + bytes([sealed.sealed[-1] ^ 1])))


def test_labels_of_other_rows_are_refused():
    expected = "'store' sent 90 bytes of labels; 8 rows and 3 held out have 11 or, with weights, 99"
    with pytest.raises(AlignmentError, match=expected):
        opened(seal_labels(KEY, GIVEN, "binary"), rows=ROWS + 1)


@pytest.mark.parametrize("size", [0, 9, 11, 80, 89, 91, 160])
def test_another_number_of_bytes_than_the_rows_have_is_refused(size):
    with pytest.raises(AlignmentError, match=rf"sent {size} bytes of labels; 7 rows and 3 held out have 10 or, .* 90;"):
        opened(told(bytes(size)))


@pytest.mark.parametrize(("classes", "instead"), [(256, 257), (257, 256)])
def test_classes_of_another_width_than_their_number_says_are_refused(classes, instead):
    sealed = seal_labels(KEY, of_classes(classes), "multiclass")
    with pytest.raises(AlignmentError, match="bytes of labels"):
        opened(replace(sealed, classes=instead), "multiclass")


OUT_OF_RANGE = {
    "two classes": ("binary", 2, "u1", 2, "a label in row 1 that is none of the 2 classes"),
    "the largest byte": ("binary", 2, "u1", 255, "a label in row 1 that is none of the 2 classes"),
    "three classes": ("multiclass", 3, "u1", 3, "a label in row 1 that is none of the 3 classes"),
    "classes of two bytes": ("multiclass", 300, "<u2", 300, "a label in row 1 that is none of the 300 classes"),
    "a target that is no number": ("regression", 0, "<f8", np.nan, "not finite"),
    "a target without end": ("regression", 0, "<f8", -np.inf, "not finite"),
}


@pytest.mark.parametrize("at", [1, ROWS + 1])
@pytest.mark.parametrize("what", OUT_OF_RANGE)
def test_a_label_that_no_loss_can_take_is_refused_once_it_is_opened(what, at):
    task, classes, kind, value, text = OUT_OF_RANGE[what]
    numbers = np.zeros(ROWS + HELD_OUT, kind)
    numbers[at] = value
    with pytest.raises(LabelError, match=f"label party 'store' sent .*{text}"):
        opened(told(numbers.tobytes(), classes=classes), task)


@pytest.mark.parametrize("at", [1, ROWS + 1])
@pytest.mark.parametrize(
    ("value", "text"), [(np.nan, "not finite"), (np.inf, "not finite"), (-0.5, "weight below 0 in row 1")]
)
def test_a_weight_that_no_loss_can_take_is_refused_once_it_is_opened(value, text, at):
    weights = np.ones(ROWS + HELD_OUT)
    weights[at] = value
    with pytest.raises(LabelError, match=f"label party 'store' sent .*{text}"):
        opened(told(bytes(ROWS + HELD_OUT), weights.astype("<f8").tobytes()))


BAD = {
    "NaN": ({"train": np.nan}, "not finite"),
    "Inf": ({"held_out": np.inf}, "not finite"),
    "a NaN weight": ({"train_weights": np.nan}, "not finite"),
    "a negative weight": ({"held_out_weights": -0.5}, "weight below 0 in row 1"),
    "no class": ({"train": 2.0}, "a label in row 1 that is none of the 2 classes"),
    "no class, but 0 in a byte": ({"train": 256.0}, "in row 1 that is none of the 2 classes"),
    "a negative class": ({"held_out": -1.0}, "in row 1 that is none"),
    "half a class": ({"train": 0.5}, "in row 1 that is none"),
    "a huge label": ({"train": 1e300}, "in row 1 that is none"),
}


@pytest.mark.parametrize("what", BAD)
def test_labels_that_no_loss_can_take_are_not_even_sealed(what):
    change, text = BAD[what]
    given = replace(GIVEN, **{name: _with_one(getattr(GIVEN, name), value) for name, value in change.items()})
    with pytest.raises(LabelError, match=f"this party has .*{text}"):
        seal_labels(KEY, given, "binary")


def _with_one(values, value):
    changed = values.copy()
    changed[1] = value
    return changed


WHOLE = label_pieces(ROWS, HELD_OUT, 4)


def in_pieces(given=GIVEN, task="binary"):
    return [seal_labels(KEY, given, task, piece) for piece in all_pieces(WHOLE)]


@pytest.mark.parametrize("case", CASES)
def test_labels_in_pieces_are_put_together_again(case):
    task, given, _ = CASES[case]
    found = open_pieces(KEY, in_pieces(given, task), WHOLE, task, "store")
    for name in ("train", "held_out", "train_weights", "held_out_weights"):
        assert getattr(found, name).tobytes() == getattr(given, name).tobytes()


def test_each_piece_is_of_the_size_that_its_rows_have():
    sizes = [len(each.sealed) for each in in_pieces(EVEN)]
    assert sizes == [Labels.sealed_size("binary", 2, rows) for rows in (4, 4, 2)]


def test_no_piece_can_take_the_place_of_another():
    pieces = in_pieces(EVEN)
    swapped = [replace(pieces[0], sealed=pieces[1].sealed), *pieces[1:]]
    with pytest.raises(AlignmentError, match="cannot be opened"):
        open_pieces(KEY, swapped, WHOLE, "binary", "store")


@pytest.mark.parametrize("wrong", [slice(2), slice(None, None, -1), slice(0)])
def test_pieces_that_are_not_those_of_the_run_are_refused(wrong):
    with pytest.raises(AlignmentError, match="pieces that do not fit together"):
        open_pieces(KEY, in_pieces()[wrong], WHOLE, "binary", "store")
