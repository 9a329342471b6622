from dataclasses import replace

import numpy as np
import pytest

from fdml.align.sealed_labels import LabelSet
from fdml.errors import FdmlError, LabelError
from fdml.events import Released
from fdml.party import labelling
from fdml.party.effects import Receive, Send, send_all
from fdml.party.labelling import labels_received, labels_to_send, send_labels, training_labels
from fdml.party.training_messages import TrainingMessages
from fdml.protocol.messages import HeldOutPredictions, Labels, Release, Welcome
from fdml.protocol.row_pieces import cut, held_out_pieces, labels_digest
from fdml.settings import PrivacySettings
from tests.party.sessions import BROWSER, STORE, SmallRun, hold

PRIVATE = SmallRun(privacy=PrivacySettings(labels="private", label_epsilon=0.5))


@pytest.fixture(scope="module")
def shared():
    return hold(SmallRun())[STORE].store.shared_rows()


def labels(rows=8, held_out=2):
    return LabelSet(2, np.arange(rows) % 2.0, np.arange(held_out) % 2.0, np.linspace(0.5, 1.5, rows), np.ones(held_out))


def test_shared_labels_and_weights_reach_the_others_as_they_are(shared):
    message = labels_to_send(SmallRun().member(STORE), shared, labels())
    found = labels_received(SmallRun().member(BROWSER), shared, [message])
    assert found.classes == 2
    for name in ("train", "held_out", "train_weights", "held_out_weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(labels(), name))


def test_shared_labels_are_sealed_from_the_server(shared):
    message = labels_to_send(SmallRun().member(STORE), shared, labels())
    assert labels().train.astype(np.uint8).tobytes() not in message.sealed
    broken = Labels(message.classes, message.sealed[:-1] + bytes([message.sealed[-1] ^ 1]))
    with pytest.raises(FdmlError, match="cannot be opened with this party's group key"):
        labels_received(SmallRun().member(BROWSER), shared, [broken])


def test_of_private_labels_only_the_number_of_classes_leaves(shared):
    assert labels_to_send(PRIVATE.member(STORE), shared, labels()) == Labels(2, b"")


def test_another_party_trains_with_nothing_in_place_of_private_labels(shared):
    found = labels_received(PRIVATE.member(BROWSER), shared, [Labels(2)])
    assert (found.classes, found.train.tolist(), found.held_out.tolist()) == (2, [0.0] * 8, [0.0] * 2)
    assert set(found.train_weights) == set(found.held_out_weights) == {1.0}


def test_private_labels_are_randomised_once_and_the_same_way_at_every_start(shared):
    many = replace(shared, train=np.arange(400))
    first, second = (training_labels(PRIVATE.member(STORE), many, labels(400), None) for _ in range(2))
    np.testing.assert_array_equal(first.train, second.train)
    flipped = np.mean(first.train != labels(400).train)
    assert 0.25 < flipped < 0.5, "at epsilon 0.5 a share of 1 / (1 + e^0.5) = 0.38"
    np.testing.assert_array_equal(first.held_out, labels(400).held_out)


@pytest.mark.parametrize("privacy", [PrivacySettings(), PrivacySettings(labels="private", label_epsilon="off")])
def test_labels_are_trained_on_as_they_are_where_they_are_shared_or_randomising_is_off(privacy, shared):
    own = labels()
    assert training_labels(SmallRun(privacy=privacy).member(STORE), shared, own, None) is own


def test_weights_would_disclose_private_labels(shared):
    run = SmallRun(privacy=PRIVATE.privacy, weighted=True)
    with pytest.raises(LabelError, match=r"leave data\.weight out"):
        labels_to_send(run.member(STORE), shared, labels())


def sent_in_pieces(shared, given=None, stored=(0, b""), run=None):
    """What a label party sends whose server has so many pieces, two rows each."""
    messages = TrainingMessages()

    def take_in(what):
        yield Receive(what)
        messages.add(Welcome(-1, (), *stored))

    member = replace((run or SmallRun()).member(STORE), piece_rows=2)
    effects = list(send_labels(member, shared, given or labels(), messages, take_in))
    return [each.message for each in effects if isinstance(each, Send)], effects


def test_many_labels_are_sent_in_pieces_after_those_that_are_stored(shared):
    whole, _ = sent_in_pieces(shared)
    assert [each.piece.number for each in whole] == [0, 1, 2, 3, 4]
    member = replace(SmallRun().member(BROWSER), piece_rows=2)
    np.testing.assert_array_equal(labels_received(member, shared, whole).train, labels().train)
    assert sent_in_pieces(shared, stored=(3, labels_digest(whole[:3])))[0] == whole[3:]
    assert sent_in_pieces(shared, stored=(5, labels_digest(whole)))[0] == []


def test_labels_that_have_changed_since_are_not_sent_on(shared):
    whole, _ = sent_in_pieces(shared)
    changed = replace(labels(), train=1.0 - labels().train)
    with pytest.raises(LabelError, match="are not those that it sent before; put its label column back"):
        sent_in_pieces(shared, changed, (3, labels_digest(whole[:3])))


def test_a_label_party_waits_from_time_to_time_until_its_pieces_are_stored(shared, monkeypatch):
    monkeypatch.setattr(labelling, "_AHEAD", 2)
    _, effects = sent_in_pieces(shared)
    assert [type(each).__name__ for each in effects] == [
        "Receive",
        "Send",
        "Send",
        "Flush",
        "Send",
        "Send",
        "Flush",
        "Send",
    ]


def test_labels_that_fit_into_a_piece_are_sent_before_the_server_has_said_anything(shared):
    effects = list(send_labels(SmallRun().member(STORE), shared, labels(), TrainingMessages(), None))
    assert effects == [Send(labels_to_send(SmallRun().member(STORE), shared, labels()))]


def test_a_release_in_pieces_is_told_once():
    whole = HeldOutPredictions(3, Release(np.arange(5)))
    effects = list(send_all(STORE, cut(whole, held_out_pieces(5, 1, 2))))
    assert [type(each).__name__ for each in effects] == ["Send", "Emit", "Send", "Send"]
    assert effects[1].event == Released(STORE, "held-out", 3)
