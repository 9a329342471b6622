from dataclasses import replace

import numpy as np
import pytest

from fdml.align.sealed_labels import LabelSet
from fdml.errors import FdmlError, LabelError
from fdml.party.labelling import labels_received, labels_to_send, training_labels
from fdml.protocol.messages import Labels
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
    found = labels_received(SmallRun().member(BROWSER), shared, message)
    assert found.classes == 2
    for name in ("train", "held_out", "train_weights", "held_out_weights"):
        np.testing.assert_array_equal(getattr(found, name), getattr(labels(), name))


def test_shared_labels_are_sealed_from_the_server(shared):
    message = labels_to_send(SmallRun().member(STORE), shared, labels())
    assert labels().train.astype(np.uint8).tobytes() not in message.sealed
    broken = Labels(message.classes, message.sealed[:-1] + bytes([message.sealed[-1] ^ 1]))
    with pytest.raises(FdmlError, match="cannot be opened with this party's group key"):
        labels_received(SmallRun().member(BROWSER), shared, broken)


def test_of_private_labels_only_the_number_of_classes_leaves(shared):
    assert labels_to_send(PRIVATE.member(STORE), shared, labels()) == Labels(2, b"")


def test_another_party_trains_with_nothing_in_place_of_private_labels(shared):
    found = labels_received(PRIVATE.member(BROWSER), shared, Labels(2))
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
