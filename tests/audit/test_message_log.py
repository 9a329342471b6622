import numpy as np
import pytest

from fdml.audit.message_log import MessageLog, any_masks
from fdml.audit.recording import GroundTruth
from fdml.models.objective import objective_for
from fdml.privacy.masks import Masks
from fdml.privacy.pairwise_masks import PAIRWISE_ID, PairwiseMasks
from fdml.protocol.fixed_point import decode, encode
from fdml.protocol.messages import (
    Checkpointed,
    Finished,
    Gradient,
    HeldOutPredictions,
    Hello,
    Push,
    Release,
    SealedMetrics,
)
from fdml.protocol.schedule import schedule_for
from fdml.settings import RunSettings

RUN = RunSettings(parties=("ann", "bob"), label_party="ann")
SECRET = bytes(range(32))
VALUES = np.array([[0.5], [-1.25], [3.0]])


def log():
    return MessageLog(RUN, any_masks(SECRET, RUN.parties))


def recording_of(messages):
    truth = GroundTruth({}, np.zeros(3), np.zeros(3), {})
    return messages.recording(schedule_for(3, 3, 1, 1, 2, 7), objective_for("logistic", 2), 2.0, {}, truth, {})


def push(step, values=VALUES, mask_id=0, masks=None):
    codes = encode(values)
    return Push(step, Release(codes if masks is None else masks.add("push", step, codes), mask_id))


def test_pushes_and_held_out_predictions_are_kept_by_party_and_number():
    messages, held_out = log(), HeldOutPredictions(1, Release(encode(VALUES)))
    messages.take("ann", push(0))
    messages.take("bob", push(0, 2 * VALUES))
    messages.take("ann", push(1))
    messages.take("bob", held_out)
    found = recording_of(messages)
    assert {party: sorted(steps) for party, steps in found.pushes.items()} == {"ann": [0, 1], "bob": [0]}
    assert found.held_out == {"ann": {}, "bob": {1: held_out}}
    np.testing.assert_array_equal(found.plain["bob"][0], 2 * VALUES)


def test_a_push_that_comes_again_is_kept_as_it_came_first_and_the_resend_is_counted():
    messages = log()
    messages.take("ann", push(0))
    messages.take("ann", push(0, VALUES + 1))
    found = recording_of(messages)
    np.testing.assert_array_equal(found.plain["ann"][0], VALUES)
    assert len(found.repeated) == 2


@pytest.mark.parametrize(
    "message",
    [Hello(b"r", b"a", 3, 0, 1, -1), Checkpointed(1), SealedMetrics(1), Finished(b"m" * 32)],
)
def test_what_carries_no_predictions_is_not_kept(message):
    messages = log()
    messages.take("ann", message)
    assert recording_of(messages).repeated == ()


@pytest.mark.parametrize("mask_id", [5, 2**63])
def test_masks_of_any_start_are_taken_off(mask_id):
    masks = Masks(SECRET, RUN.parties, "bob", mask_id)
    messages = log()
    messages.take("bob", push(1, mask_id=mask_id, masks=masks))
    found = recording_of(messages)
    assert not np.array_equal(decode(found.pushes["bob"][1].release.values), VALUES)
    np.testing.assert_array_equal(found.plain["bob"][1], VALUES)


def test_gradients_are_the_label_partys_and_come_off_their_masks():
    masks = Masks(SECRET, RUN.parties, "ann", 9)
    messages = log()
    messages.take("ann", Gradient(1, Release(masks.add("gradient", 1, encode(VALUES)), 9)))
    np.testing.assert_array_equal(recording_of(messages).gradients[1], VALUES)


def test_messages_stay_in_the_order_in_which_the_server_took_them():
    messages = log()
    for party, step in (("bob", 0), ("ann", 0), ("ann", 1), ("bob", 1)):
        messages.take(party, push(step))
    assert [(party, message.step) for party, message in recording_of(messages).repeated] == [
        ("bob", 0), ("ann", 0), ("ann", 1), ("bob", 1)
    ]  # fmt: skip


def test_metrics_and_what_was_sent_of_models_are_kept_by_epoch_and_party():
    messages = log()
    first, second = SealedMetrics(1, b"1" * 60), SealedMetrics(2, b"2" * 60)
    done = {party: Finished(party.encode() * 8) for party in RUN.parties}
    for message in (first, second):
        messages.take("ann", message)
    for party, message in done.items():
        messages.take(party, message)
    found = recording_of(messages)
    assert found.metrics == {1: first, 2: second}
    assert found.finished == done


def test_a_run_that_was_agreed_on_over_its_rows_is_recorded_as_agreed():
    training = RUN.training.model_copy(update={"epochs": 9})
    messages, truth = log(), GroundTruth({}, np.zeros(3), np.zeros(3), {})
    parts = (schedule_for(3, 3, 1, 1, 2, 7), objective_for("logistic", 2), 2.0, {}, truth, {})
    assert messages.recording(*parts).run == RUN
    assert messages.recording(*parts, training).run.training.epochs == 9


def test_pairwise_masks_of_each_party_are_taken_off():
    pairs = {"ann": {"bob": SECRET}, "bob": {"ann": SECRET}}
    pairwise = {
        party: PairwiseMasks(RUN.parties, party, pair_keys=keys, total_key=SECRET[::-1])
        for party, keys in pairs.items()
    }
    messages = MessageLog(RUN, any_masks(SECRET, RUN.parties), pairwise)
    for party in RUN.parties:
        masked = pairwise[party].add("push", 0, encode(VALUES))
        messages.take(party, Push(0, Release(masked, PAIRWISE_ID)))
    found = recording_of(messages)
    for party in RUN.parties:
        assert not np.array_equal(decode(found.pushes[party][0].release.values), VALUES)
        np.testing.assert_array_equal(found.plain[party][0], VALUES)
