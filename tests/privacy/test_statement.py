"""What a party's statement says of a blind server, by the masks that the run has."""

import pytest

from fdml.privacy.guard import NO_NOISE
from fdml.privacy.ledger import Ledger
from fdml.privacy.statement import state_of
from fdml.protocol.schedule import schedule_of
from fdml.settings import GuardSettings, RunSettings


def statement(server="blind", staleness=0, parties=("ann", "bob", "cyd")):
    run = RunSettings(
        parties=parties, label_party="ann", training={"staleness": staleness, "epochs": 2}, privacy={"server": server}
    )
    ledger, schedule = Ledger(NO_NOISE, None, 1e-5, None), schedule_of(100, run.training)
    return state_of(run, "bob", GuardSettings(), ledger, schedule, 2, plain=False).as_text()


@pytest.mark.parametrize(
    ("options", "masks", "together"),
    [
        ({}, "keys of each two parties, which cancel", "the server and all other parties together"),
        ({"parties": ("ann", "bob")}, "keys of each two parties", "the server and the other party together"),
        ({"staleness": 1}, "masks (AES-CTR under the group key)", "any party together, which can take off all masks"),
    ],
)
def test_it_says_which_masks_there_were_and_who_together_could_take_them_off(options, masks, together):
    text = statement(**options)
    assert masks in text
    assert together in text


def test_a_plain_server_saw_predictions_as_they_are():
    text = statement("plain")
    assert "each party's own, plain" in text
    assert "AES-CTR" not in text
