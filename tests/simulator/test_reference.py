from random import Random

import pytest

from fdml.errors import InvariantBroken
from fdml.protocol.alignment_messages import Post, RowCounts, Tokens
from fdml.protocol.messages import Hello
from fdml.storage.arrays import hash_arrays
from simulator.reference import ScriptedChannel, alignment_of, fault_free_run, replay
from simulator.scenarios import Scenario


def drawn(fits):
    """The first scenario that fits."""
    scenarios = (Scenario.draw(Random(seed)) for seed in range(1000))
    return next(scenario for scenario in scenarios if fits(scenario))


def ends_early(scenario):
    return scenario.settings.evaluation.stop_after is not None


@pytest.fixture(scope="module")
def in_step():
    return drawn(lambda each: each.settings.training.staleness == 0 and not each.allowed and each.has_ids)


def test_a_run_without_faults_ends_the_same_every_time(in_step):
    one, other = fault_free_run(in_step), fault_free_run(in_step)
    assert {name: hash_arrays(state) for name, state in one.models.items()} == {
        name: hash_arrays(state) for name, state in other.models.items()
    }
    assert one.metrics == other.metrics
    assert set(one.models) == set(in_step.settings.parties)


@pytest.mark.parametrize("every", ["epoch", "end"])
def test_every_epoch_that_is_due_has_metrics(every):
    scenario = drawn(lambda each: each.settings.evaluation.every == every and not (each.allowed or ends_early(each)))
    epochs = scenario.schedule.epochs
    assert set(fault_free_run(scenario).metrics) == (set(range(1, epochs + 1)) if every == "epoch" else {epochs})


def test_row_i_is_the_same_person_at_every_party(in_step):
    found = alignment_of(in_step)
    people = {
        party: [in_step.ids[party][row] for row in (*shared.train, *shared.held_out)] for party, shared in found.items()
    }
    first = people[in_step.settings.parties[0]]
    assert all(each == first for each in people.values())
    assert len(first) == in_step.rows + in_step.held_out
    assert len({shared.digest for shared in found.values()}) == 1


def test_a_party_that_is_sent_too_little_would_wait(in_step):
    party = next(name for name in in_step.settings.parties if name != in_step.settings.label_party)
    with pytest.raises(InvariantBroken, match=f"{party} would wait"):
        replay(in_step, party, alignment_of(in_step)[party], [])


def test_a_scripted_channel_keeps_what_is_sent_and_does_not_align():
    channel = ScriptedChannel([])
    hello = Hello(bytes(32), bytes(32), 1, 0, 1)
    channel.send(hello)
    assert channel.sent == [hello]
    assert channel.poll() is None
    assert not channel.has_message
    with pytest.raises(InvariantBroken, match="aligned again"):
        channel.send(Post(Tokens(by_position=RowCounts(3, None))))


def test_a_run_whose_held_out_rows_gain_nothing_ends_early():
    """Some of the scenarios do; all of a step, as without faults every party is as far as the others."""
    scenarios = [each for each in (Scenario.draw(Random(seed)) for seed in range(60)) if ends_early(each)]
    in_step = [each for each in scenarios if each.settings.training.staleness == 0 and not each.allowed]
    ends = [(fault_free_run(each).end, each.schedule.steps) for each in in_step]
    assert any(end < steps for end, steps in ends)
    assert all(end <= steps for end, steps in ends)
