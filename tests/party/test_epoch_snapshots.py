from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import ExchangeError
from fdml.party.epoch_snapshots import EpochSnapshots
from fdml.protocol.schedule import schedule_for


def snapshots(stop_after, *, blocks=4, lookahead=1, staleness=0):
    schedule = schedule_for(blocks, 1, 1, 1, 99, 7)
    return EpochSnapshots(stop_after, schedule, lookahead=lookahead, staleness=staleness)


def state(epoch):
    return {"weights": np.full(2, float(epoch))}


def test_only_the_models_that_may_be_the_best_are_kept():
    found = snapshots(3)
    for epoch in range(1, 20):
        found.add(epoch, state(epoch))
    assert sorted(found.states) == [16, 17, 18, 19]
    assert found.of(17)["weights"].tolist() == [17.0, 17.0]


def test_an_epoch_that_is_not_there_is_named():
    found = snapshots(1)
    found.add(5, state(5))
    with pytest.raises(ExchangeError, match="named epoch 9 as the best, and this party has the models of 5"):
        found.of(9)


def test_those_of_an_earlier_start_are_gone_on_with():
    found = snapshots(2)
    found.restore({4: state(4)})
    found.add(5, state(5))
    assert sorted(found.states) == [4, 5]


@given(st.integers(1, 3), st.integers(1, 4), st.integers(0, 3), st.integers(0, 3), st.data())
def test_the_best_epoch_is_always_there_however_late_the_label_party_is(stop_after, blocks, lookahead, staleness, data):
    """The label party stops pushing where it decides; another party learns only up to what was pushed by all."""
    best = data.draw(st.integers(1, 5), "best")
    schedule = schedule_for(blocks, 1, 1, 1, 99, 7)
    decided = best + stop_after
    decided_at = next(step for step in count() if schedule.epochs_scored(step, lookahead) == decided)
    last_pushed = decided_at + lookahead
    found = snapshots(stop_after, blocks=blocks, lookahead=lookahead, staleness=staleness)
    for step in range(last_pushed + staleness + 1):  # as far ahead as the gate lets a party be
        if schedule.ends_epoch(step):
            found.add((step + 1) // blocks, state((step + 1) // blocks))
    assert found.of(best)
    assert len(found.states) <= stop_after + 2 + (2 * lookahead + staleness + 2) // blocks + 1
