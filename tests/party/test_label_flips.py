"""Private labels are shown with the same answer in every run (findings 5 and 6)."""

import math

import numpy as np
import pyarrow as pa
import pytest

from fdml.align.party_ids import PartyIds
from fdml.data.label_encoding import LabelEncoding
from fdml.party.alignment import RowIds
from fdml.party.label_flips import LabelFlips, shown_labels, training_ids
from fdml.privacy.noise import NoiseKey
from fdml.privacy.randomised_response import chance_of_truth
from fdml.protocol.alignment_messages import RowCounts
from fdml.settings import PrivacySettings

ROWS = 6000
SECRET = NoiseKey(bytes(range(32)))
FLIPS = LabelFlips(SECRET, "churn")
PRIVATE = PrivacySettings(labels="private", label_epsilon=1.0)
TRUE = (np.arange(ROWS) % 2).astype(np.float64)
NAMES = np.array([f"user {number}" for number in range(ROWS)])


def ids(order=slice(None)):
    return pa.array(NAMES[order], pa.large_string())


def shown(order=slice(None), *, flips=FLIPS, privacy=PRIVATE, labels=TRUE, classes=("no", "yes")):
    encoding = LabelEncoding("binary", np.array(classes))
    return shown_labels(labels[order], privacy, flips, classes=len(classes), encoding=encoding, ids=lambda: ids(order))


def differ(one, other):
    return float(np.mean(one != other))


def test_finding_5_another_order_of_rows_shows_every_row_the_same_answer():
    """Flips by position, on two orders of rows, cancel: y = s1 ^ F[p1] = s2 ^ F[p2]."""
    order = np.random.default_rng(0).permutation(ROWS)
    np.testing.assert_array_equal(shown(order), shown()[order])


def test_finding_6_a_run_over_some_of_the_rows_shows_the_same_answers():
    some = np.arange(0, ROWS, 3)
    np.testing.assert_array_equal(shown(some), shown()[some])


def test_as_many_answers_are_true_as_epsilon_says():
    chance = chance_of_truth(1.0, 2)
    assert abs(np.mean(shown() == TRUE) - chance) < 4 * math.sqrt(chance * (1 - chance) / ROWS)
    moved = (shown() != TRUE).astype(float)
    assert abs(np.corrcoef(moved[:-1], moved[1:])[0, 1]) < 4.5 / math.sqrt(ROWS)


@pytest.mark.parametrize(
    "other",
    [
        {"flips": LabelFlips(NoiseKey(b"o" * 32), "churn")},
        {"flips": LabelFlips(SECRET, "income")},
        {"flips": LabelFlips(SECRET, "churn", rows="another file")},
        {"privacy": PrivacySettings(labels="private", label_epsilon=1.0 + 1e-9)},
        {"classes": ("ja", "nein")},
    ],
    ids=["secret", "column", "file", "epsilon", "classes"],
)
def test_another_question_is_answered_independently(other):
    """The same flips for two labels, or for two sets of classes, would cancel."""
    wrong, wrong_again = shown() != TRUE, shown(**other) != TRUE
    chance = 1 - chance_of_truth(1.0, 2)
    together = float(np.mean(wrong & wrong_again))
    assert abs(together - chance**2) < 4 * math.sqrt(chance**2 * (1 - chance**2) / ROWS)


def test_a_label_that_has_changed_is_answered_independently():
    """Else two answers would tell that it has, as flips of one row cancel."""
    before, after = shown(), shown(labels=1.0 - TRUE)
    assert 0.3 < differ(before, after) < 0.75, "flips that cancel would make all of them differ"


def test_two_answers_that_differ_tell_that_a_label_has_changed():
    """A limit that docs/privacy.md names: of a label that stays, all answers are the same."""
    changed = np.arange(ROWS) % 10 == 0
    before, after = shown(), shown(labels=np.where(changed, 1.0 - TRUE, TRUE))
    assert not (before != after)[~changed].any()
    assert (before != after)[changed].any()
    assert (before == after)[changed].any()


def test_labels_that_are_shared_or_not_randomised_are_shown_as_they_are():
    for privacy in (PrivacySettings(), PrivacySettings(labels="private", label_epsilon="off")):
        assert shown(privacy=privacy) is not None
        np.testing.assert_array_equal(shown(privacy=privacy), TRUE)


def test_the_ids_of_training_rows_are_those_of_their_places_in_the_file():
    own = RowIds(PartyIds(pa.array(["a", "c", "d"], pa.large_string())), np.array([0, 2, 3]), np.array([0]))
    assert training_ids(own, np.array([3, 0])).to_pylist() == ["d", "a"]


def test_rows_without_ids_go_by_their_places_in_the_file():
    own = RowIds(PartyIds(by_position=RowCounts(4, None)), np.arange(4), np.arange(4))
    assert training_ids(own, np.array([3, 0])).to_pylist() == ["row 3", "row 0"]
