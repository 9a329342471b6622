import json
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from fdml.monitor.status import PartyStatus, RunStatus
from fdml.protocol.messages import SealedMetrics

TRAINING = PartyStatus("ann", connected=True, pushed=4, served=3, incarnation=1, aligned=True)


@pytest.mark.parametrize(
    ("party", "state"),
    [
        (PartyStatus("ann"), "not here yet"),
        (PartyStatus("ann", aligned=True), "aligned, not joined yet"),
        (PartyStatus("ann", connected=True, aligning=True), "aligning"),
        (PartyStatus("ann", connected=True, aligning=True, waits_for=("bob",)), "aligning"),
        (PartyStatus("ann", connected=True, aligning=True, aligned=True), "aligned"),
        (PartyStatus("ann", connected=True, aligning=True, aligned=True, waits_for=("bob",)), "aligning"),
        (TRAINING, "training"),
        (replace(TRAINING, waits_for=("bob",)), "waiting"),
        (PartyStatus("ann", gone_seconds=62.3), "gone for 62 s"),
        (PartyStatus("ann", aligned=True, gone_seconds=62.3), "aligned, not joined yet"),
        (replace(TRAINING, connected=False), "gone"),
        (replace(TRAINING, connected=False, waits_for=("bob",)), "gone"),
        (replace(TRAINING, connected=False, gone_seconds=5.6), "gone for 6 s"),
        (replace(TRAINING, finished=True), "finished"),
        (replace(TRAINING, finished=True, connected=False, waits_for=("bob",)), "finished"),
    ],
)
def test_the_state_of_a_party_in_words(party, state):
    assert party.state == state


def test_a_party_that_nobody_has_seen_has_done_no_step():
    party = PartyStatus("ann")
    assert (party.pushed, party.served, party.incarnation) == (-1, -1, 0)
    assert not party.connected


def test_a_status_is_plain_values_and_its_metrics_are_sealed():
    status = RunStatus("shop", 10, (TRAINING,), (SealedMetrics(1, b"sealed"),), {"gap": 2})
    found = asdict(status)
    assert found.pop("history") == ({"epoch": 1, "sealed": b"sealed"},)
    found = json.loads(json.dumps(found))
    assert found["parties"][0]["served"] == 3
    assert found["refused"] == {"gap": 2}


def test_a_status_does_not_change():
    with pytest.raises(FrozenInstanceError):
        TRAINING.served = 5
    with pytest.raises(FrozenInstanceError):
        RunStatus("shop").steps = 5


def test_how_large_predictions_are_is_shown_to_their_own_party_and_to_the_server_alone():
    sizes = {"ann": 1.5, "bob": 0.25, "eve": None}
    status = RunStatus("shop", 10, tuple(PartyStatus(name, largest_prediction=size) for name, size in sizes.items()))
    assert [each.largest_prediction for each in status.seen_by("bob").parties] == [None, 0.25, None]
    assert [each.name for each in status.seen_by("bob").parties] == ["ann", "bob", "eve"]
    assert status.seen_by("server") == status
