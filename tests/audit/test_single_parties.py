"""A17 and finding 13: totals that show one other party alone are found in the log, and a blind server serves none."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.audit.single_parties import attacks, parts_seen
from fdml.protocol.messages import Push, Release
from fdml.settings import PrivacySettings, TrainingSettings
from tests.audit.recorded import recorded, small

PARTIES = "abc"
BLIND = PrivacySettings(server="blind")


def stale(privacy=None, parties=PARTIES, staleness=2, lookahead=1):
    """A run whose parties take turns, so that the first one is always ahead."""
    chance = np.random.default_rng(1)
    parts = {name: chance.normal(size=(48, 2)) for name in parties}
    labels = (sum(values.sum(axis=1) for values in parts.values()) > 0).astype(float)
    training = TrainingSettings(
        epochs=3, batch_size=6, batches_per_block=1, learning_rate=0.1, staleness=staleness, lookahead=lookahead
    )
    return recorded(parts, labels, training, privacy=privacy)


def outcome(recording):
    (result,) = attacks["A17"](recording)
    return result


def with_log(recording, *pushes):
    """The same run with a log of these pushes alone, each as party and step."""
    sent = tuple((party, Push(step, Release(np.zeros(1, np.int64)))) for party, step in pushes)
    return replace(recording, repeated=sent)


def test_a_plain_server_at_staleness_shows_single_parties_and_the_log_tells():
    """Finding 13, a run of the old kind: 14 of 160 totals held one other party's part only."""
    found = outcome(stale())
    assert found.outcome == "FAIL"
    assert found.score > 0
    assert "first: step 0 of party 'b'" in found.reason


@pytest.mark.parametrize("lookahead", [0, 1, 3])
@pytest.mark.parametrize("staleness", [1, 2, 5])
def test_a_blind_server_at_staleness_shows_no_single_party(staleness, lookahead):
    """Finding 13: no total is served before every party has pushed that block once."""
    found = outcome(stale(BLIND, staleness=staleness, lookahead=lookahead))
    assert (found.outcome, found.score, found.details["incomplete"]) == ("PASS", 0, 0)


@pytest.mark.parametrize(
    ("recording", "reason"), [(lambda: stale(parties="ab"), "of two parties"), (lambda: small("abc"), "staleness 0")]
)
def test_where_nothing_can_be_seen_it_does_not_apply(recording, reason):
    found = outcome(recording())
    assert found.outcome == "NOT APPLICABLE"
    assert reason in found.reason


def test_what_was_in_a_total_follows_from_the_order_of_the_log():
    """With lookahead 1 a push of step 2 means that the total of step 0 had come."""
    run = stale(BLIND)
    log = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("a", 2), ("c", 0), ("c", 1), ("b", 2), ("c", 2)]
    assert parts_seen(with_log(run, *log)) == {
        ("a", 0): frozenset("b"),
        ("b", 0): frozenset("ac"),
        ("c", 0): frozenset("ab"),
    }
    assert outcome(with_log(run, *log)).outcome == "FAIL"


def test_a_push_that_comes_again_says_nothing_new():
    run = stale(BLIND)
    log = [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1), ("c", 1), ("a", 2)]
    assert parts_seen(with_log(run, *log, *log)) == parts_seen(with_log(run, *log))


def test_in_a_later_epoch_every_block_has_a_part_of_everyone():
    run = stale(BLIND)
    blocks = run.schedule.blocks
    log = [(party, step) for step in range(blocks) for party in PARTIES]
    ahead = [("a", blocks), ("a", blocks + 1), ("a", blocks + 2)]
    assert parts_seen(with_log(run, *log, *ahead))["a", blocks] == frozenset("bc")
