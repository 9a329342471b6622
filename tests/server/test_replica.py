"""The session inside a party of a run without a server: fed by all, it serves one, and finds who tells two stories."""

import random

import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.fixed_point import decode
from fdml.protocol.messages import PART_DIGEST, Checkpointed, Labels, Push, Total, Waiting, Welcome
from fdml.server.replica import PartComparison, part_digest
from tests.server.meshes import PARTIES, STEPS, Member, everything, hello, part
from tests.server.sessions import answers
from tests.storage.memory_disk import MemoryDisk


def wanted(step):
    return sum(decode(part(party, step).values) for party in PARTIES)


@pytest.mark.parametrize("seed", range(20))
def test_every_party_sums_the_same_in_whatever_order_lines_deliver(seed):
    chance = random.Random(seed)
    for name in PARTIES:
        member = Member(name)
        for party in PARTIES:
            member.lines[party].extend(everything(party))
        while left := [party for party in PARTIES if member.may_deliver(party)]:
            member.deliver(chance.choice(left))
        assert not member.refusals
        assert [total.step for total in member.totals] == list(range(STEPS))
        for total in member.totals:
            np.testing.assert_array_equal(decode(total.values).reshape(-1), wanted(total.step))
        assert member.session.state.finished
        assert not [each for each in member.to_others() if isinstance(each, Total | Labels | Waiting)]


def test_a_push_that_is_ahead_of_the_labels_waits_and_is_not_acknowledged():
    member = Member("cat")
    member.lines["bob"].extend([hello(), Push(0, part("bob", 0)), Push(1, part("bob", 1))])
    member.deliver_all()
    assert answers(member.effects, member.streams["bob"], Welcome)
    assert (member.streams["bob"].taken, member.refusals) == (1, [])
    member.lines["ann"].extend(everything("ann")[:2])
    member.deliver_all()
    assert member.streams["bob"].taken == 3
    assert member.session.state.coordinator.pushed("bob") == 1


def test_what_waits_is_dropped_with_its_line_as_it_comes_again():
    member = Member("cat")
    member.lines["bob"].extend([hello(), Push(0, part("bob", 0))])
    member.deliver_all()
    member.session.close(member.streams["bob"])
    member.lines["ann"].extend(everything("ann")[:2])
    member.deliver_all()
    assert member.session.state.coordinator.pushed("bob") == -1


def test_the_own_party_is_refused_what_is_ahead_as_at_any_server():
    member = Member("bob")
    member.lines["bob"].extend([hello(), Push(0, part("bob", 0))])
    member.deliver_all()
    assert "the labels have not come yet" in member.refusals[0]


def test_another_party_may_be_further_than_this_session_knows():
    """It was served by its own; a server would take it for one that has lost its state."""
    member = Member("cat")
    member.lines["bob"].append(hello(done=3, incarnation=2))
    member.lines["cat"].append(hello(done=3, incarnation=2))
    member.deliver_all()
    assert "goes on at step 4, but the server knows it only up to step -1" in member.refusals[0]
    assert len(member.refusals) == 1
    assert answers(member.effects, member.streams["bob"], Welcome)


def test_a_session_that_is_opened_again_has_what_all_have_sent():
    disk = MemoryDisk()
    first = Member("cat", disk)
    for party in PARTIES:
        first.lines[party].extend(each for each in everything(party)[:6] if not isinstance(each, Checkpointed))
    first.deliver_all()
    first.session.state.commit()
    again = Member("cat", disk)
    assert again.session.state.fingerprint() == first.session.state.fingerprint()
    again.lines["cat"].append(hello(incarnation=2))
    again.deliver_all()
    assert [total.step for total in again.totals] == [total.step for total in first.totals]
    assert [total.parts for total in again.totals] == [b""] * len(again.totals)  # not compared again


# Who tells two parties different things.


def told(member, party, step, **different):
    """The digests that a party would send with its push after a step, if these parties had sent it something else."""
    return b"".join(part_digest(part(name, step, different.get(name, 0.0))) for name in PARTIES)


def begun(name):
    member = Member(name)
    for party in PARTIES:
        member.lines[party].extend(everything(party)[: 3 if party == "ann" else 2])
    member.deliver_all()
    return member


def test_a_total_carries_the_digests_of_its_parts():
    (total,) = begun("ann").totals
    assert total.parts == told(None, "ann", 0)
    assert len(total.parts) == PART_DIGEST * len(PARTIES)


@pytest.mark.parametrize(
    ("here", "sender", "different", "message"),
    [
        ("ann", "bob", "cat", "party 'cat' has sent 'ann' and 'bob' different predictions for step 0"),
        ("ann", "bob", "bob", "party 'bob' has sent 'ann' other predictions for step 0 than it sums itself"),
        ("bob", "cat", "bob", "party 'cat' says that 'bob' sent it other predictions for step 0 than it did"),
    ],
)
def test_who_tells_two_parties_different_things_is_named_within_one_step(here, sender, different, message):
    member = begun(here)
    member.lines[sender].append(Push(1, part(sender, 1), told(member, sender, 0, **{different: 0.5})))
    member.deliver_all()
    assert all(message in refusal for refusal in member.refusals)
    assert len(member.refusals) == len(PARTIES)  # the run ends for all whom this session knows
    assert member.session.state.coordinator.pushed(sender) == 0


def test_the_same_story_is_no_difference():
    member = begun("ann")
    for party in PARTIES:
        member.lines[party].append(Push(1, part(party, 1), told(member, party, 0)))
    member.deliver_all()
    assert not member.refusals
    assert [total.step for total in member.totals] == [0, 1]


def test_a_story_that_comes_before_the_part_it_is_about_is_compared_when_that_comes():
    comparison = PartComparison("ann", PARTIES, 0)
    seen = b"".join(part_digest(part(name, 0, 0.5 if name == "cat" else 0.0)) for name in PARTIES)
    for name in ("ann", "bob"):
        comparison.note(name, Push(0, part(name, 0)))
    comparison.note("bob", Push(1, part("bob", 1), seen))
    with pytest.raises(MessageRefused, match="'cat' has sent 'ann' and 'bob' different") as refused:
        comparison.note("cat", Push(0, part("cat", 0)))
    assert refused.value.refusal is Refusal.CONFLICT


def test_digests_of_another_number_of_parties_are_refused():
    with pytest.raises(MessageRefused, match="sent 5 bytes of digests; 3 parties take 24"):
        PartComparison("ann", PARTIES, 0).note("bob", Push(1, part("bob", 1), b"short"))


def test_old_digests_are_not_kept():
    comparison = PartComparison("ann", PARTIES, 1)
    for step in range(100):
        for name in PARTIES:
            comparison.note(name, Push(step, part(name, step)))
    assert comparison.digests(0) == b""
    assert len(comparison.digests(95)) == PART_DIGEST * len(PARTIES)


def test_a_push_that_comes_again_after_its_party_has_a_checkpoint_is_no_other_one():
    """One party had not stored it when the checkpoint was made, so it is sent to all again; here no digest is left."""
    member = begun("ann")
    member.lines["bob"].extend([Checkpointed(0), Push(0, part("bob", 0))])
    member.deliver_all()
    assert not member.refusals
    assert member.session.state.coordinator.checkpointed("bob") == 0
