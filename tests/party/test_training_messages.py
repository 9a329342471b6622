import numpy as np
import pytest

from fdml.errors import ExchangeError
from fdml.party.training_messages import TrainingMessages
from fdml.protocol.alignment_messages import KeyCheck
from fdml.protocol.messages import BestEpoch, Gradient, HeldOutTotal, Labels, Release, Stopped, Total, Waiting, Welcome
from fdml.protocol.row_pieces import all_pieces, held_out_pieces, label_pieces
from fdml.protocol.waited_for import WaitedFor


def total(step):
    return Total(step, np.array([10 * step]), (step, step))


def holding(*messages):
    found = TrainingMessages()
    for message in messages:
        found.add(message)
    return found


def test_an_answer_is_given_once_and_to_its_own_step():
    messages = holding(total(1), total(0))
    assert messages.answer(2) is None
    assert messages.answer(0) == total(0)
    assert messages.answer(0) is None
    assert messages.answer(1) == total(1)


def test_a_gradient_answers_a_step_as_a_total_does():
    gradient = Gradient(3, Release(np.array([1])))
    assert holding(gradient).answer(3) is gradient


def test_the_end_of_a_run_answers_every_step_from_it_on_that_has_no_answer_of_its_own():
    messages = holding(total(1), Stopped("browser", 1))
    assert messages.answer(0) is None
    assert messages.answer(1) == total(1)
    assert messages.answer(1) == messages.answer(2) == Stopped("browser", 1)


@pytest.mark.parametrize("steps", [(3, 1), (1, 3), (3, 1, 2)])
def test_of_several_ends_the_first_counts_in_whatever_order_they_come(steps):
    messages = holding(*(Stopped(f"party {step}", step) for step in steps))
    assert messages.answer(0) is None
    assert messages.answer(1) == Stopped("party 1", 1)
    assert messages.why_stopped == "the privacy budget of party 'party 1' is spent"


def test_a_run_that_does_not_end_early_has_no_reason_to():
    assert holding(total(0)).why_stopped == ""


def test_labels_are_kept_until_they_are_needed():
    labels = Labels(2, b"sealed")
    assert holding().labels is None
    assert holding(labels).labels == (labels,)


def test_labels_in_pieces_are_there_once_all_have_come():
    pieces = [Labels(2, b"sealed", piece) for piece in all_pieces(label_pieces(5, 2, 3))]
    assert holding(*pieces[:2]).labels is None
    assert holding(pieces[2], *pieces[:2]).labels == tuple(pieces)


def test_what_was_stored_of_the_labels_is_what_the_first_welcome_says():
    assert holding().stored_labels is None
    assert holding(Welcome(-1, (), 2, b"d"), Welcome(-1, (), 3, b"e")).stored_labels == (2, b"d")


def test_held_out_totals_are_kept_by_epoch():
    found = [HeldOutTotal(epoch, np.array([epoch])) for epoch in (3, 1)]
    assert holding(*found).held_out == {3: (found[0],), 1: (found[1],)}


def test_an_epoch_is_not_settled_before_all_its_pieces_have_come():
    pieces = [HeldOutTotal(1, np.array([number]), piece=held_out_pieces(2, 1, 1).at(number)) for number in (0, 1)]
    messages = holding(pieces[1])
    assert (messages.held_out, messages.is_settled(1, 3)) == ({}, False)
    messages.add(pieces[0])
    assert (messages.held_out, messages.is_settled(1, 3)) == ({1: tuple(pieces)}, True)


def test_an_epoch_is_settled_once_its_total_has_come_or_was_scored_before_or_never_comes():
    messages = holding(HeldOutTotal(1, np.array([5])), Welcome(4, (2,)))
    assert [messages.is_settled(epoch, 3) for epoch in (1, 2, 3, 4)] == [True, True, False, False]
    messages.add(Stopped("browser", 9))
    assert [messages.is_settled(epoch, 3) for epoch in (3, 4)] == [False, True]
    messages.add(Stopped("guard", 8))
    assert messages.is_settled(3, 3), "two blocks of the third epoch are not all of it"


def test_the_evaluation_at_the_end_comes_however_early_the_end_is():
    """All parties predict the held-out rows once, wherever they stopped: no number of blocks stands in its way."""
    messages = holding(Stopped("browser", 0))
    assert not messages.is_settled(5, 0)
    messages.add(HeldOutTotal(5, np.array([1])))
    assert messages.is_settled(5, 0)


def test_every_welcome_adds_to_the_epochs_that_were_scored():
    messages = holding(Welcome(4, (1,)), Welcome(8, (1, 2)))
    assert [messages.is_settled(epoch, 3) for epoch in (1, 2, 3)] == [True, True, False]


@pytest.mark.parametrize("message", [KeyCheck(b"d" * 32), Waiting((WaitedFor("browser"),))])
def test_a_message_that_has_no_place_in_training_is_an_error_that_names_it(message):
    with pytest.raises(ExchangeError, match=rf"sent {type(message).__name__}, which has no place.*same version"):
        holding(message)


def test_where_held_out_rows_decide_an_epoch_scored_before_is_scored_again():
    messages = TrainingMessages(scores_again=True)
    messages.add(Welcome(4, (1, 2)))
    assert not messages.is_settled(1, 3)
    messages.add(HeldOutTotal(1, np.array([5])))
    assert messages.is_settled(1, 3)


def test_the_end_by_held_out_rows_and_the_best_epoch_are_kept():
    best = BestEpoch(b"sealed")
    messages = holding(best, Stopped("store", 4, no_gain=True))
    assert messages.best_epoch is best
    assert messages.why_stopped == "the loss of held-out rows falls no more"
