"""The server's session as a plain object: messages, ticks and ends of streams in, effects out."""

import numpy as np
import pytest

from fdml import events
from fdml.errors import MessageRefused, PeerTimeout, Refusal
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.fixed_point import decode
from fdml.protocol.limits import CEILING, HELLO, largest_message
from fdml.protocol.messages import (
    Ack,
    Checkpointed,
    Finished,
    Gradient,
    HeldOutTotal,
    Labels,
    Release,
    SealedMetrics,
    Stop,
    Stopped,
    Total,
    Waiting,
    Welcome,
)
from fdml.protocol.row_pieces import LABEL_ROWS
from fdml.protocol.waited_for import NEVER_SEEN, WaitedFor
from fdml.server.session import Answer, Commit, Stream
from fdml.settings import TrainingSettings
from tests.server.sessions import (
    BLOCK,
    DIGEST,
    EPOCHS,
    PARTIES,
    ROWS,
    STEPS,
    Server,
    answers,
    closed,
    emitted,
    held_out,
    push,
)
from tests.storage.memory_disk import MemoryDisk

# The order of effects.


def test_everything_is_committed_before_anyone_is_answered():
    server = Server(disk=MemoryDisk())
    ann, bob = server.training()
    server.to_the_end(ann, bob, 2)
    server.send(ann, held_out(1))
    server.send(bob, held_out(1))
    kinds = [type(effect) for effect in server.effects]
    for at, kind in enumerate(kinds):
        if kind is Answer:
            assert Commit in kinds[:at], "an answer before any commit"
    for stream, raw in ((ann, push(2)), (bob, push(2))):
        effects = server.send(stream, raw)
        answered = [at for at, effect in enumerate(effects) if isinstance(effect, Answer)]
        assert not answered or Commit in map(type, effects[: answered[0]])


def test_what_was_answered_is_on_the_disk():
    disk = MemoryDisk()
    server = Server(disk=disk)
    ann, bob = server.training()
    server.to_the_end(ann, bob, 3)
    again = Server(disk=disk.copy())
    assert again.session.state.coordinator.served("ann") == 2
    assert again.session.state.fingerprint() == server.session.state.fingerprint()


def test_a_push_that_nobody_can_be_served_for_waits_for_the_next_commit():
    disk = MemoryDisk()
    server = Server(disk=disk)
    ann, bob = server.training()
    server.carry_out(server.session.acknowledge())
    writes = disk.writes
    assert server.send(ann, push(0)) == []
    assert disk.writes == writes
    assert [type(effect) for effect in server.send(bob, push(0))] == [Commit, Answer, Answer]
    assert disk.writes == writes + 1


def test_all_that_has_come_is_acted_on_at_once_and_committed_once():
    disk = MemoryDisk()
    server = Server(disk=disk)
    ann, bob = server.training()
    writes = disk.writes
    for step in range(3):
        server.session.receive(ann, push(step))
        server.session.receive(bob, push(step))
    assert server.session.has_messages
    effects = server.carry_out(server.session.process())
    assert not server.session.has_messages
    assert [total.step for total in answers(effects, ann, Total)] == [0, 1, 2]
    assert disk.writes == writes + 1


def test_nothing_to_do_gives_no_effects():
    session = Server().session
    assert session.process() == []
    assert session.acknowledge() == []
    assert session.tick() == []


# A run.


def test_a_party_is_welcomed_and_gets_the_labels_and_the_sum_of_all_pushes():
    server = Server()
    ann, bob = server.join("ann"), server.join("bob")
    assert answers(server.effects, bob)[0] == Welcome(-1)
    effects = server.send(ann, server.labels())
    assert answers(effects, bob, Labels) == [server.labels()]
    server.send(ann, push(0, 0.5))
    effects = server.send(bob, push(0, 0.25))
    for stream in (ann, bob):
        (total,) = answers(effects, stream, Total)
        np.testing.assert_array_equal(decode(total.values).ravel(), np.full(BLOCK, 0.75))


def test_held_out_predictions_of_all_go_to_the_label_party_only():
    server = Server()
    ann, bob = server.training()
    server.send(bob, held_out(1))
    effects = server.send(ann, held_out(1))
    (total,) = answers(effects, ann, HeldOutTotal)
    np.testing.assert_array_equal(decode(total.values), [0.5, 0.5])
    assert answers(effects, bob, HeldOutTotal) == []


def test_with_private_labels_the_others_get_the_gradient_of_the_label_party():
    server = Server(private=True)
    ann, bob = server.training()
    server.send(ann, push(0))
    effects = server.send(bob, push(0))
    assert len(answers(effects, ann, Total)) == 1
    assert answers(effects, bob) == []
    release = Release(np.arange(BLOCK).reshape(-1, 1), mask_id=3)
    effects = server.send(ann, Gradient(0, release))
    (gradient,) = answers(effects, bob, Gradient)
    np.testing.assert_array_equal(gradient.release.values, release.values)


def test_a_party_that_stops_ends_the_run_for_all():
    server = Server()
    ann, bob = server.training()
    effects = server.send(bob, Stop(0))
    assert answers(effects, ann, Stopped) == answers(effects, bob, Stopped) == [Stopped("bob", 0)]


def test_joining_evaluating_and_finishing_are_events():
    server = Server()
    ann, bob = server.training()
    assert emitted(server.effects) == [events.Joined("ann", 0), events.Joined("bob", 0)]
    server.to_the_end(ann, bob)
    effects = server.send(ann, SealedMetrics(1, b"s" * 60), Finished(b"m" * 32))
    assert emitted(effects) == [events.Evaluated("ann", 1), events.Finished("ann")]
    server.join("bob", incarnation=2, done=4)
    assert emitted(server.effects)[-1] == events.Joined("bob", 5)


# Acknowledgements.


def test_hello_labels_and_the_end_are_acknowledged_at_once():
    server = Server()
    ann = Stream("ann")
    assert answers(server.send(ann, server.hello()), ann, Ack) == [Ack(1)]
    assert answers(server.send(ann, server.labels()), ann, Ack) == [Ack(2)]
    bob = server.join("bob")
    server.to_the_end(ann, bob)
    effects = server.send(ann, Finished(b"m" * 32))
    assert answers(effects, ann, Ack)[-1] == Ack(2 + STEPS + 1)
    assert not server.session.has_unacknowledged


def test_other_messages_are_acknowledged_sixteen_at_a_time():
    server = Server(epochs=20)
    ann, bob = server.training()
    server.to_the_end(ann, bob, 40)
    assert [ack.count for ack in answers(server.effects, ann, Ack)] == [1, 2, 18, 33]
    assert [ack.count for ack in answers(server.effects, bob, Ack)] == [1, 16, 32]


def test_messages_that_no_answer_carries_along_are_acknowledged_when_asked_for():
    disk = MemoryDisk()
    server = Server(disk=disk)
    ann, bob = server.training()
    server.send(bob, push(0), push(1))
    assert server.session.has_unacknowledged
    writes = disk.writes
    effects = server.carry_out(server.session.acknowledge())
    assert effects[0] == Commit()
    assert answers(effects, bob) == [Ack(3)]
    assert answers(effects, ann) == []
    assert disk.writes == writes + 1
    assert not server.session.has_unacknowledged
    assert server.session.acknowledge() == []


def test_every_stream_counts_its_own_messages():
    server = Server()
    server.training()
    again = server.join("bob", done=-1)
    assert answers(server.effects, again, Ack) == [Ack(1)]


# Streams.


def test_the_newest_stream_of_a_party_takes_the_place_of_the_older_one():
    server = Server()
    ann, older = server.training()
    effects = server.send(newer := Stream("bob"), server.hello())
    assert closed(effects) == [(older, None)]
    server.send(newer, push(0))
    effects = server.send(ann, push(0))
    assert len(answers(effects, newer, Total)) == 1
    assert answers(effects, older) == []


def test_what_still_comes_by_a_replaced_stream_of_the_same_start_is_taken():
    server = Server()
    ann, older = server.training()
    server.session.receive(newer := Stream("bob"), server.hello())
    server.session.receive(older, push(0))
    server.carry_out(server.session.process())
    effects = server.send(ann, push(0))
    assert len(answers(effects, newer, Total)) == 1


def test_a_newer_start_takes_over_and_the_older_one_is_fenced():
    server = Server()
    _, older = server.training()
    effects = server.send(Stream("bob"), server.hello(incarnation=2))
    (stream, refused), *_ = closed(effects)
    assert stream is older
    assert refused.refusal is Refusal.FENCED
    before = server.session.state.fingerprint()
    (_, refused), *_ = closed(server.send(older, push(0)))
    assert refused.refusal is Refusal.FENCED
    assert "party 'bob' was started again since" in str(refused)
    assert server.session.state.fingerprint() == before


def test_an_older_start_is_not_let_in_again():
    server = Server()
    server.join("bob", incarnation=5)
    (_, refused), *_ = closed(server.send(Stream("bob"), server.hello(incarnation=4)))
    assert refused.refusal is Refusal.FENCED


def test_a_stream_that_has_ended_takes_nobody_s_place():
    server = Server()
    dead = Stream("bob")
    server.session.receive(dead, server.hello())
    server.session.close(dead)
    server.carry_out(server.session.process())
    assert server.session.joined == frozenset()
    assert answers(server.effects, dead, Welcome) == []


def test_who_has_an_open_stream_is_known():
    server = Server()
    ann, bob = server.training()
    assert server.session.joined == {"ann", "bob"}
    server.session.close(ann)
    assert server.session.joined == {"bob"}
    server.session.close(Stream("bob"))
    assert server.session.joined == {"bob"}, "another stream of bob has ended, not this one"
    assert bob.is_open


def test_answers_for_a_party_without_a_stream_are_given_when_it_is_back():
    server = Server()
    ann, bob = server.training()
    server.send(bob, push(0))
    server.session.close(bob)
    effects = server.send(ann, push(0))
    assert len(answers(effects, ann, Total)) == 1
    again = server.join("bob")
    assert [total.step for total in answers(server.effects, again, Total)] == [0]
    assert answers(server.effects, again, Welcome) == [Welcome(0)]
    assert answers(server.effects, again, Labels) == [server.labels()]


def test_a_party_has_departed_once_it_has_finished_and_closed_its_stream():
    server = Server()
    ann, bob = server.training()
    server.to_the_end(ann, bob)
    server.session.close(ann, by_party=True)
    server.send(bob, Finished(b"m" * 32))
    server.session.close(bob)
    assert not server.session.all_departed, "ann has not finished, and bob's line only broke"
    for party in PARTIES:
        stream = server.join(party, done=STEPS - 1)
        server.send(stream, Finished(b"m" * 32))
        server.session.close(stream, by_party=True)
    assert server.session.state.finished
    assert server.session.all_departed


# What is refused. Every refusal ends its stream, changes nothing and leaves the others alone.


def refusal_of(server, stream, *messages):
    """The one refusal of these messages; the state is as before."""
    before = server.session.state.fingerprint()
    ((ended, refused),) = closed(server.send(stream, *messages))
    assert ended is stream
    assert server.session.state.fingerprint() == before
    return refused


FIRST = {
    "bytes that are no message": (lambda server: b"\xff\xff", Refusal.INVALID, "no message"),
    "an empty message": (lambda server: b"", Refusal.INVALID, "without content"),
    "a push before hello": (lambda server: push(0), Refusal.INVALID, "'bob' did not send hello first"),
    "labels before hello": (lambda server: server.labels(), Refusal.INVALID, "hello first"),
    "more bytes than a hello has": (lambda server: bytes(HELLO + 1), Refusal.TOO_LARGE, "1025 bytes; here the .* 1024"),
    "another run.toml": (lambda server: server.hello(9, run_hash=b"x" * 32), Refusal.MISMATCH, "run.toml with hash"),
    "another protocol": (lambda server: server.hello(9, protocol=99), Refusal.MISMATCH, "protocol 99"),
    "more rows": (lambda server: server.hello(9, rows=ROWS + 1), Refusal.MISMATCH, "13 rows"),
    "other rows": (lambda server: server.hello(9, alignment_hash=b"x" * 32), Refusal.MISMATCH, "has seen another one"),
    "an older start": (lambda server: server.hello(0), Refusal.FENCED, "is at its start 0"),
    "state the server never saw": (
        lambda server: server.hello(9, done=0),
        Refusal.MISMATCH,
        "lost its state.*a new name",
    ),
}


@pytest.mark.parametrize("what", FIRST)
def test_what_a_party_may_not_send_first_is_refused(what):
    make, refusal, text = FIRST[what]
    server = Server()
    ann, bob = server.training()
    refused = refusal_of(server, Stream("bob"), make(server))
    assert refused.refusal is refusal
    with pytest.raises(MessageRefused, match=text):
        raise refused
    server.send(ann, push(0))
    assert len(answers(server.send(bob, push(0)), bob, Total)) == 1, "bob's honest stream goes on"


LATER = {
    "a second hello": (lambda server: server.hello(), Refusal.INVALID, "hello twice"),
    "bytes that are no message": (lambda server: b"\xff\xff", Refusal.INVALID, "no message"),
    "a step too far": (lambda server: push(5), Refusal.GAP, "its next is 1"),
    "other values for a step": (lambda server: push(0, 9.0), Refusal.CONFLICT, "other values"),
    "a block too long": (lambda server: push(1, rows=BLOCK + 1), Refusal.INVALID, "shape"),
    "a masked push": (lambda server: push(1, mask_id=5), Refusal.MISMATCH, "masked values"),
    "more bytes than the run has use for": (lambda server: push(1, rows=1000), Refusal.TOO_LARGE, "the largest has"),
    "labels of someone else": (lambda server: server.labels(), Refusal.NOT_PERMITTED, "only 'ann' may"),
    "metrics of someone else": (lambda server: SealedMetrics(1), Refusal.NOT_PERMITTED, "only 'ann' may"),
    "a checkpoint of a total it never got": (lambda server: Checkpointed(7), Refusal.GAP, "was served only 0"),
    "the end, too early": (lambda server: Finished(b"0" * 32), Refusal.GAP, "before the end"),
    "an epoch too many": (lambda server: held_out(EPOCHS + 1), Refusal.GAP, "epoch 4 of 3"),
    "a gradient of shared labels": (
        lambda server: Gradient(0, Release(np.zeros((BLOCK, 1), np.int64), 1)),
        Refusal.NOT_PERMITTED,
        "sent a gradient",
    ),
}


@pytest.mark.parametrize("what", LATER)
def test_what_a_party_may_not_send_later_is_refused_and_it_may_come_back(what):
    make, refusal, text = LATER[what]
    server = Server()
    ann, bob = server.training()
    server.to_the_end(ann, bob, 1)
    refused = refusal_of(server, bob, make(server))
    assert refused.refusal is refusal
    with pytest.raises(MessageRefused, match=text):
        raise refused
    server.session.close(bob)
    again = server.join("bob", done=0)
    server.send(ann, push(1))
    assert len(answers(server.send(again, push(1)), again, Total)) == 1


def test_after_a_refusal_nothing_of_that_stream_is_acted_on():
    server = Server()
    _, bob = server.training()
    refusal_of(server, bob, b"\xff\xff", push(0))
    assert server.session.state.coordinator.pushed("bob") == -1
    assert server.send(bob, push(0)) == []


def test_a_start_that_lost_its_checkpoint_has_to_start_over_everywhere():
    server = Server()
    ann, bob = server.training()
    server.to_the_end(ann, bob, 3)
    server.send(bob, Checkpointed(1))
    refused = refusal_of(server, Stream("bob"), server.hello(incarnation=2, done=0))
    assert refused.refusal is Refusal.MISMATCH
    with pytest.raises(MessageRefused, match=r"goes on at step 1, but has had a checkpoint after step 1.*a new name"):
        raise refused
    ((ended, _),) = closed(server.send(Stream("bob"), server.hello(incarnation=2, done=1)))
    assert ended is bob, "from its checkpoint it may go on"


def test_rows_that_were_aligned_elsewhere_are_refused():
    server = Server(digest=None)
    refused = refusal_of(server, Stream("bob"), server.hello())
    assert refused.refusal is Refusal.MISMATCH
    assert "this server has seen no alignment" in str(refused)
    assert DIGEST.hex() not in str(refused)


@pytest.mark.slow
def test_the_same_refusal_is_an_event_once_and_counted_every_time():
    server = Server()
    server.training()
    refused = [emitted(server.send(Stream("bob"), push(0))) for _ in range(3)]
    (event,) = refused[0]
    assert (event.party, event.kind) == ("bob", "invalid")
    assert "hello first" in event.reason
    assert refused[1:] == [[], []]
    assert server.session.status.refused == {"invalid": 3}


def test_no_more_than_a_hundred_different_refusals_are_events():
    server = Server()
    found = []
    for number in range(120):
        effects = server.session.refusal_events(MessageRefused(f"refusal {number}", Refusal.GAP))
        found += emitted(effects)
    assert len(found) == 100
    assert server.session.status.refused == {"gap": 120}


def test_bytes_are_counted_by_party():
    server = Server()
    server.send(Stream("ann"), b"12345", b"67")
    assert server.session.status.traffic == {"ann": (7, 0), "bob": (0, 0)}


# How large a message may be.


def limit(rows, width=1, **training):
    chosen = agreed_training(TrainingSettings(**{"batch_size": 100, **training}), rows, 2)
    return largest_message(chosen, Server().hello(rows=rows, held_out=rows // 4), width)


def test_the_limit_follows_from_the_run():
    assert limit(1000) - HELLO == 2 * 8 * 1250, "labels and weights of all rows"
    assert limit(1000, 10, batches_per_block=4) - HELLO == 8 * 10 * 400, "a block of 400 rows of 10 floats"
    assert limit(1000, 10, batches_per_block="all") - HELLO == 8 * 10 * 1000
    assert limit(1000, 10, exchanges=2) - HELLO == 8 * 10 * 1000
    assert limit(10**12) - HELLO == 16 * LABEL_ROWS, "a piece of the labels"
    assert limit(10**12, batches_per_block="all") == CEILING


def test_labels_right_after_hello_may_be_larger_than_a_hello():
    server = Server()
    ann = Stream("ann")
    many = server.hello(rows=HELLO, held_out=0)
    labels = Labels(2, bytes(Labels.sealed_size("binary", 2, HELLO)))
    effects = server.send(ann, many, labels)
    assert closed(effects) == []
    assert server.session.state.rows == HELLO


# Waits and silence.


def test_waiting_parties_are_sent_for_whom_at_every_tick():
    server = Server()
    bob = server.join("bob")
    assert server.session.tick() == [Answer(bob, Waiting((WaitedFor("ann", NEVER_SEEN),)))], "for the labels"
    ann = server.join("ann")
    server.send(ann, server.labels())
    assert server.session.tick() == []
    server.send(ann, push(0))
    assert server.session.tick() == [Answer(ann, Waiting((WaitedFor("bob"),)))]
    server.send(bob, push(0))
    assert server.session.tick() == []


def test_a_label_party_at_the_end_is_sent_who_has_not_finished():
    server = Server()
    ann, bob = server.training()
    server.to_the_end(ann, bob)
    assert server.session.tick() == [Answer(ann, Waiting((WaitedFor("bob"),)))]
    server.send(ann, Finished(b"m" * 32))
    assert server.session.tick() == []


def test_the_length_of_a_wait_is_measured_by_the_clock_that_was_given():
    server = Server()
    ann, _ = server.training()
    server.send(ann, push(0))
    server.session.note_waits()
    server.clock.now += 4.0
    report = server.session.status.report(server.session.joined)
    assert report.parties[0].waiting_seconds == 4.0


def test_a_run_of_which_nothing_is_heard_ends_with_the_names_of_those_who_are_missing():
    server = Server(peer_timeout_seconds=5.0)
    ann, bob = server.training()
    server.to_the_end(ann, bob)
    server.send(ann, Finished(b"m" * 32))
    server.clock.now += 50.0
    server.session.tick()
    server.clock.now += 0.5
    with pytest.raises(PeerTimeout, match="no message from any party for 50 s; bob has not finished; start the server"):
        server.session.tick()


def test_before_the_labels_a_server_waits_as_long_as_it_takes():
    server = Server(peer_timeout_seconds=5.0)
    server.join("bob")
    server.clock.now += 100_000.0
    assert len(server.session.tick()) == 1


def test_who_is_gone_or_was_refused_is_told_to_those_who_wait():
    server = Server()
    ann, bob = server.training()
    server.send(ann, push(0))
    server.session.close(bob)
    server.clock.now += 62.0
    assert server.session.tick() == [Answer(ann, Waiting((WaitedFor("bob", 62.0),)))]
    assert server.session.status.report(server.session.joined).parties[1].state == "gone for 62 s"
    server.join("bob", rows=7)
    ((to_ann,),) = [answers(server.session.tick(), ann)]
    assert to_ann.parties[0].refusal.startswith("party 'bob' has 7 rows")
    again = server.join("bob", incarnation=2)
    assert server.session.tick() == [Answer(ann, Waiting((WaitedFor("bob"),)))]
    assert again.hello is not None


@pytest.mark.parametrize("sign", ["a message", "a call"])
def test_any_sign_of_life_puts_the_end_off(sign):
    server = Server(peer_timeout_seconds=5.0)
    ann, _ = server.training()
    server.clock.now += 49.0
    if sign == "a message":
        server.send(ann, push(0))
    else:
        server.session.saw("bob")
        assert server.session.alignment.presence.is_here("bob")
    server.clock.now += 49.0
    server.session.tick()


def test_a_finished_run_may_be_silent():
    server = Server(peer_timeout_seconds=5.0)
    ann, bob = server.training()
    server.to_the_end(ann, bob)
    for stream in (ann, bob):
        server.send(stream, Finished(b"m" * 32))
    server.clock.now += 1000.0
    assert server.session.tick() == []


def test_listeners_are_told_who_is_where_and_who_waits():
    server = Server()
    ann, bob = server.training()
    assert {each.event.party for each in server.session.progress()} == {"ann", "bob"}
    assert server.session.progress() == []
    server.send(ann, push(0))
    server.session.tick()
    (told,) = server.session.progress()
    assert (told.event.party, told.event.waits_for) == ("ann", ("bob",))
    server.session.close(bob)
    (gone,) = server.session.progress()
    assert (gone.event.party, gone.event.state) == ("bob", "gone")
