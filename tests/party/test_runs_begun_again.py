"""A run that is begun a second time under its name, over an alignment that its parties have kept."""

import numpy as np
import pytest

from fdml.errors import AlignmentError, MessageRefused
from fdml.party.member import pairwise_masks_of
from fdml.privacy.pairwise_masks import PAIRWISE_ID
from fdml.protocol.fixed_point import encode
from fdml.settings import PrivacySettings
from tests.party.kept_runs import PARTIES, Federation, data_of, people

IDS = data_of(dict.fromkeys(PARTIES, people(range(40))))
BLIND = PrivacySettings(server="blind")


def align(federation):
    return federation.align_run("first", IDS, privacy=BLIND)


def test_a_run_begun_again_under_its_name_uses_no_mask_again():
    """The keys of a kept alignment outlive the run's folders, so who removes those would push under old masks."""
    federation, lives = Federation(), []
    run = federation.settings("first", privacy=BLIND)
    for values in (np.array([1.0, 2.0, 3.0]), np.array([1.5, 2.0, -7.0])):
        shared = {party: found.shared for party, found in align(federation).items()}
        masks = {party: pairwise_masks_of(run, party, shared[party]) for party in PARTIES}
        pushes = {party: masks[party].add("push", 0, encode(values)) for party in PARTIES}
        opened = masks["shop"].remove("push", [0] * 3, [PAIRWISE_ID] * 3, sum(pushes.values()))
        np.testing.assert_array_equal(opened, 3 * encode(values))
        lives.append((shared, pushes))
        federation.runs.clear()
    (before, first), (after, second) = lives
    moved = encode(np.array([0.5, 0.0, -10.0]))
    for party in PARTIES:
        assert before[party].digest == after[party].digest, "the alignment is the kept one"
        assert before[party].key != after[party].key, "nor does what was sealed then open now"
        assert not (second[party] - first[party] == moved).any(), "else the server sees how predictions differ"
    assert len({each.key.secret for each in after.values()}) == 1


def test_a_run_that_goes_on_keeps_its_keys():
    federation = Federation()
    before, after = align(federation)["bank"].shared, align(federation)["bank"].shared
    assert (before.key, before.pair_keys, before.begun) == (after.key, after.pair_keys, after.begun)


def test_a_party_that_has_lost_the_state_of_a_run_is_refused_before_it_pushes_anything():
    federation = Federation()
    align(federation)
    del federation.runs["first", "shop"]
    with pytest.raises(MessageRefused, match="its state was lost"):
        align(federation)


def test_a_server_that_goes_by_what_was_drawn_in_an_earlier_life_is_refused():
    federation = Federation()
    align(federation)
    plan = federation.runs["first", "server"].files["rows-plan"]
    federation.runs.clear()
    federation.run_disk("first", "server").files["rows-plan"] = plan
    with pytest.raises(AlignmentError, match="does not fit"):
        align(federation)
