"""The label party's labels at the server: in order, never changed, and the same after a restart."""

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import Labels
from fdml.protocol.row_pieces import all_pieces, label_pieces, labels_digest
from fdml.server.stored_labels import StoredLabels, pieces_of_labels
from fdml.settings import RunSettings

WHOLE = label_pieces(5, 2, 3)
SENT = [Labels(2, bytes([number]) * 8, piece) for number, piece in enumerate(all_pieces(WHOLE))]


def given(count, sent=SENT):
    labels = StoredLabels()
    for each in sent[:count]:
        assert labels.take("store", each, WHOLE)
    return labels


@pytest.mark.parametrize("count", [1, 2, 3])
def test_labels_are_there_once_their_last_piece_has_come(count):
    labels = given(count)
    assert labels.complete == (count == 3)
    assert labels.told == (count, labels_digest(SENT[:count]))
    assert labels.first == SENT[0]


def test_labels_of_one_message_are_told_as_nothing():
    labels = StoredLabels()
    assert not labels.complete
    assert labels.take("store", Labels(2, b"sealed"), label_pieces(5, 2))
    assert (labels.complete, labels.told) == (True, (0, b""))


def test_a_piece_that_comes_again_has_no_effect():
    labels = given(2)
    assert not labels.take("store", SENT[0], WHOLE)
    assert labels.pieces == SENT[:2]


REFUSED = {
    "a gap": (SENT[2], Refusal.GAP, "sent piece 2 of its labels; the next is 1"),
    "other labels": (Labels(2, b"other", SENT[0].piece), Refusal.CONFLICT, "other labels than before"),
    "other classes": (Labels(3, SENT[1].sealed, SENT[1].piece), Refusal.CONFLICT, "other labels than before"),
    "whole": (Labels(2, b"whole"), Refusal.INVALID, "in other pieces than the 3 of this run"),
    "another size": (Labels(2, b"x", label_pieces(5, 2, 4).at(1)), Refusal.INVALID, "in other pieces than the 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_go_on_is_refused_and_changes_nothing(case):
    wrong, refusal, text = REFUSED[case]
    labels = given(1)
    with pytest.raises(MessageRefused, match=text) as refused:
        labels.take("store", wrong, WHOLE)
    assert refused.value.refusal is refusal
    assert labels.pieces == SENT[:1]


@pytest.mark.parametrize("count", [0, 1, 3])
def test_a_restart_has_what_had_come(count):
    labels, again = given(count), StoredLabels()
    again.restore(labels.state(), WHOLE)
    assert again.pieces == labels.pieces
    assert again.complete == labels.complete or count == 0
    assert again.told == labels.told


def test_private_labels_are_one_message_of_whatever_rows():
    shared = RunSettings(parties=("store", "browser"), label_party="store")
    private = shared.model_copy(update={"privacy": shared.privacy.model_copy(update={"labels": "private"})})
    counts = _Counts(2**22, 5)
    assert pieces_of_labels(shared, counts, None).count == 5
    assert pieces_of_labels(private, counts, None).count == 1


class _Counts:
    line = 0

    def __init__(self, rows, held_out):
        self.rows, self.held_out = rows, held_out
