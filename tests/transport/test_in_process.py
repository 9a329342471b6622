import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fdml import events
from fdml.errors import MessageRefused, PartyFailed, PeerTimeout, Refusal
from fdml.protocol.alignment_messages import Fetch, KeyCheck, KeyOffer, Post, RowCounts, SharedRowIndex, Tokens
from fdml.protocol.messages import Ack, Finished, Hello, Labels, Push, Total, Waiting, Welcome
from fdml.settings import run_hash
from fdml.transport.in_process import InProcessServer
from tests.server.sessions import DIGEST, STEPS, hello, labels, push, settings_of
from tests.storage.memory_disk import MemoryDisk
from tests.transport.served import SECONDS, new_session

OFFER = KeyOffer(b"p" * 32)


class Run:
    """An in-process server with a channel for each party, and all that passed."""

    def __init__(self, *, peer_timeout=SECONDS, digest=DIGEST, disk=None):
        self.settings = settings_of(peer_timeout_seconds=peer_timeout)
        self.events, self.tapped = [], []
        self.server = InProcessServer(
            new_session(self.settings, digest=digest, disk=disk),
            run_hash(self.settings),
            peer_timeout,
            on_event=self.events.append,
            tap=self._tap,
        )
        self.ann, self.bob = (self.server.channel(party) for party in self.settings.parties)

    def _tap(self, party, message):
        coordinator = self.server.session.state.coordinator
        self.tapped.append((party, type(message), None if coordinator is None else coordinator.pushed(party)))

    def hello(self, incarnation=1):
        return hello(self.settings, incarnation=incarnation)

    def join(self):
        self.ann.send(self.hello())
        self.bob.send(self.hello())
        self.ann.send(labels())
        for channel in (self.ann, self.bob):
            drain(channel)
        return self


def drain(channel):
    """All messages that have come."""
    found = []
    while (message := channel.poll()) is not None:
        found.append(message)
    return found


def test_a_message_is_acted_on_and_stored_when_send_returns():
    disk = MemoryDisk()
    run = Run(disk=disk).join()
    run.ann.send(push(0))
    run.bob.send(push(0))
    assert run.server.session.state.coordinator.served("ann") == 0
    assert run.ann.all_stored
    assert run.ann.unacknowledged() == []
    assert disk.writes > 0


def test_acknowledgements_and_waits_stay_inside():
    run = Run()
    run.bob.send(run.hello())
    assert [type(message) for message in drain(run.bob)] == [Welcome]
    assert not any(isinstance(message, Ack | Waiting) for message in drain(run.ann))


def test_nothing_travels():
    run = Run().join()
    run.ann.send(push(0))
    assert run.ann.traffic == (0, 0)
    assert run.server.session.status.traffic["ann"] == (0, 0)


def test_the_tap_sees_every_message_before_the_server_acts_on_it():
    run = Run().join()
    run.ann.send(push(0))
    run.ann.send(push(1))
    assert run.tapped == [
        ("ann", Hello, None),
        ("bob", Hello, None),
        ("ann", Labels, None),
        ("ann", Push, -1),
        ("ann", Push, 0),
    ]


def test_events_of_the_server_reach_the_listener():
    run = Run().join()
    assert run.events == [events.Joined("ann", 0), events.Joined("bob", 0)]


def test_parties_may_take_turns_in_one_thread():
    run = Run().join()
    for step in range(STEPS):
        for channel in (run.ann, run.bob):
            channel.send(push(step))
        for channel in (run.ann, run.bob):
            (total,) = drain(channel)
            assert (type(total), total.step) == (Total, step)
    for channel in (run.ann, run.bob):
        channel.send(Finished(b"m" * 32))
        channel.close()
    assert run.server.session.all_departed


def test_parties_may_be_threads():
    run = Run().join()

    def train(channel):
        steps = []
        for step in range(STEPS):
            channel.send(push(step))
            channel.wait(lambda: channel.has_message, f"at step {step} for {{}}")
            steps += [total.step for total in drain(channel)]
        return steps

    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(train, channel) for channel in (run.ann, run.bob)]
    assert [each.result(SECONDS) for each in found] == [list(range(STEPS))] * 2


def test_only_parties_of_the_run_have_a_channel():
    with pytest.raises(MessageRefused, match="'zed' is not a party of this run") as refused:
        Run().server.channel("zed")
    assert refused.value.refusal is Refusal.NOT_PERMITTED


# Refusals.


def test_after_a_refusal_every_send_raises_it_again():
    run = Run().join()
    for message in (push(7), push(0)):
        with pytest.raises(MessageRefused, match="pushed step 7; its next is 0"):
            run.bob.send(message)
    with pytest.raises(MessageRefused, match="pushed step 7"):
        run.bob.wait(lambda: False, "for {}")
    run.ann.send(push(0))
    assert run.server.session.state.coordinator.pushed("bob") == -1


def test_a_refused_fetch_is_its_own_party_s_trouble():
    run = Run(digest=None)
    with pytest.raises(MessageRefused, match="which is not for it") as refused:
        run.bob.send(Fetch(Tokens, "ann"))
    assert refused.value.refusal is Refusal.NOT_PERMITTED
    run.ann.send(Post(OFFER))
    run.ann.send(Fetch(KeyOffer, "ann"))
    assert drain(run.ann) == [OFFER]
    assert run.server.session.status.refused == {"not_permitted": 1}
    assert [event.party for event in run.events] == ["bob"]


def test_a_refused_post_is_counted_and_raised_at_its_sender():
    run = Run(digest=None)
    with pytest.raises(MessageRefused, match="has a file without rows"):
        run.bob.send(Post(Tokens(by_position=RowCounts(0))))
    run.ann.send(Post(OFFER))
    assert run.server.session.status.refused == {"invalid": 1}


def test_a_newer_channel_of_a_party_takes_the_place_of_the_older_one():
    run = Run().join()
    newer = run.server.channel("bob")
    newer.send(run.hello())
    run.ann.send(push(0))
    newer.send(push(0))
    assert [type(message) for message in drain(newer)] == [Welcome, Labels, Total]
    assert drain(run.bob) == []


def test_a_newer_start_of_a_party_shuts_the_older_one_out():
    run = Run().join()
    run.server.channel("bob").send(run.hello(incarnation=2))
    with pytest.raises(MessageRefused, match="'bob' was started again since") as refused:
        run.bob.send(push(0))
    assert refused.value.refusal is Refusal.FENCED


# Failures.


def test_a_failed_party_wakes_all_who_wait():
    run = Run().join()
    run.ann.send(push(0))
    waiting = threading.Event()

    def wait():
        waiting.set()
        run.ann.wait(lambda: run.ann.has_message, "at step 0 for {}")

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(wait)
        assert waiting.wait(SECONDS)
        run.server.fail("bob")
        assert isinstance(found.exception(SECONDS), PartyFailed)
    assert "party 'bob' stopped with an error; see its own message" in str(found.exception())


def test_the_first_party_that_failed_is_named():
    run = Run().join()
    run.server.check_failed()
    run.server.fail("bob")
    run.server.fail("ann")
    with pytest.raises(PartyFailed, match="party 'bob' stopped"):
        run.ann.wait(lambda: False, "for {}")
    with pytest.raises(PartyFailed, match="party 'bob' stopped"):
        run.server.check_failed()


def test_what_has_come_is_given_even_after_a_failure():
    run = Run().join()
    for channel in (run.ann, run.bob):
        channel.send(push(0))
    run.server.fail("bob")
    run.ann.wait(lambda: run.ann.has_message, "for {}")
    assert drain(run.ann)[0].step == 0


# WaitReport.


def test_a_wait_for_labels_names_the_label_party():
    run = Run(peer_timeout=0.05)
    run.bob.send(run.hello())
    drain(run.bob)
    with pytest.raises(PeerTimeout, match=r"'bob' waited 0.05 s for 'ann' to give the labels; .*peer_timeout_seconds"):
        run.bob.wait(lambda: run.bob.has_message, "for {} to give the labels")


def test_a_wait_in_the_alignment_names_those_who_have_not_posted():
    run = Run(peer_timeout=0.05, digest=None)
    run.ann.send(Post(Tokens(by_position=RowCounts(9))))
    run.ann.send(Fetch(SharedRowIndex, ""))
    with pytest.raises(PeerTimeout, match=r"party 'ann' waited 0.05 s to align its rows with 'bob'"):
        run.ann.wait(lambda: run.ann.has_message, "to align its rows with {}")


def test_a_fetch_is_answered_when_the_message_is_posted():
    run = Run(digest=None)
    run.bob.send(Fetch(KeyOffer, "ann"))
    run.bob.send(Fetch(KeyCheck, "ann"))
    assert not run.bob.has_message
    run.ann.send(Post(OFFER))
    assert drain(run.bob) == [OFFER]
    run.ann.send(Post(KeyCheck(b"c" * 32)))
    assert drain(run.bob) == [KeyCheck(b"c" * 32)]


def test_a_closed_channel_gets_no_answers_any_more():
    run = Run(digest=None)
    run.bob.send(Fetch(KeyOffer, "ann"))
    run.bob.close()
    run.ann.send(Post(OFFER))
    assert drain(run.bob) == []
