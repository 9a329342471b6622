"""Findings 8, 9, 14: what one party says of the run is compared with what the server knows; one line ends, no more."""

from collections import Counter

import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.events import Refused
from fdml.protocol.alignment_calls import FetchCall, PostCall
from fdml.protocol.alignment_messages import Consent, RowCounts, Tokens
from fdml.protocol.alignment_wire import encode_alignment
from fdml.protocol.key_sets import position_digest
from fdml.protocol.messages import (
    PROTOCOL,
    Checkpointed,
    Finished,
    Gradient,
    Hello,
    Labels,
    Release,
    SealedMetrics,
    Welcome,
)
from fdml.server.alignment import AlignmentPhase
from fdml.server.bulletin import BulletinStore
from fdml.server.refusals import Refusals
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession, Stream
from fdml.settings import PrivacySettings, RunSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from tests.monitor.sample_events import Clock
from tests.server.sessions import Server, answers, closed, emitted, held_out, push
from tests.storage.memory_disk import MemoryDisk

PARTIES = ("ann", "bob")


class AlignedServer(Server):
    """A server that has found the shared rows itself."""

    def __init__(self, rows, *, task="binary", largest_matrix=2**30, labels="shared"):
        self.settings = RunSettings(
            parties=PARTIES,
            label_party="ann",
            task=task,
            evaluation=EvaluationSettings(holdout=0.2),
            privacy=PrivacySettings(labels=labels),
        )
        self.clock, self.effects = Clock(), []
        self.disk, own = MemoryDisk(), run_hash(self.settings)
        bulletin = BulletinStore(PARTIES, "tokens", MemoryDisk())
        self.definition = RunDefinition(self.settings, own, largest_matrix)
        self.digest = position_digest(rows)
        alignment = AlignmentPhase(bulletin, PARTIES, own, self.clock)
        for message in (Tokens(by_position=rows), Consent(True)):
            for party in PARTIES:
                alignment.post(party, PostCall("", "", encode_alignment(message), own))
        state = RunState.open(self.definition, self.disk)
        self.session = ServerSession(state, alignment, self.settings, self.clock)

    def hello(self, incarnation=1, done=-1, rows=240, held_out=60, **other):
        return Hello(run_hash(self.settings), self.digest, rows, held_out, incarnation, done, **other)


def refusal_of(effects, stream):
    ((ended, refused),) = closed(effects)
    assert ended is stream
    return refused


@pytest.mark.parametrize("files", [RowCounts(300), RowCounts(240, 60)], ids=["held out", "test files"])
@pytest.mark.parametrize(("rows", "out"), [(1, 0), (239, 61), (240, 59), (2**40, 60), (300, 0)])
def test_the_first_hello_is_not_believed(files, rows, out):
    """Finding 8: one hello with another number of rows shut all honest parties out for good."""
    server, stream = AlignedServer(files), Stream("bob")
    refused = refusal_of(server.send(stream, server.hello(rows=rows, held_out=out)), stream)
    assert refused.refusal is Refusal.MISMATCH
    assert f"'bob' has {rows} rows and {out} held out; the server has found 240 and 60" in str(refused)
    assert server.disk.files == {}, "nothing is logged"
    for party in PARTIES:
        assert answers(server.send(honest := Stream(party), server.hello()), honest, Welcome)


def test_the_label_party_cannot_make_the_server_allocate_without_bound():
    """Finding 8: a multiclass label party with honest rows and 65,536 classes ended the server."""
    server = AlignedServer(RowCounts(300), task="multiclass", labels="private", largest_matrix=2**20)
    ann, bob = server.join("ann"), server.join("bob")
    refused = refusal_of(server.send(ann, Labels(2**16)), ann)
    assert refused.refusal is Refusal.TOO_LARGE
    assert "this server has memory for 0.0 GiB" in str(refused)
    assert server.session.state.coordinator is None
    again = server.join("ann", incarnation=2)
    server.send(again, Labels(3))
    assert server.session.state.width == 3
    assert not bob.refused


def test_classes_that_no_block_could_travel_with_are_refused():
    server = AlignedServer(RowCounts(300_000), task="multiclass", labels="private", largest_matrix=2**60)
    ann = server.join("ann", rows=240_000, held_out=60_000)
    refused = refusal_of(server.send(ann, Labels(2**16)), ann)
    assert refused.refusal is Refusal.TOO_LARGE
    assert "can travel with 1115 at most" in str(refused)


def private_definition(largest_matrix):
    settings = RunSettings(parties=PARTIES, label_party="ann", privacy=PrivacySettings(labels="private"))
    return RunDefinition(settings, b"r" * 32, largest_matrix)


def test_an_error_that_nobody_thought_of_ends_one_line_and_leaves_the_state_as_it_was():
    """Finding 8: 16 TiB that cannot be allocated ended the server, and again after every restart."""
    disk, hello = MemoryDisk(), Hello(b"r" * 32, b"d" * 32, 2**40, 5, 1)
    state = RunState.open(private_definition(2**70), disk)
    state.take("bob", hello)
    before = state.fingerprint()
    with pytest.raises(MessageRefused, match=r"'ann' sent a Labels that the server could not act on \(.*MemoryError"):
        state.take("ann", Labels(2))
    assert state.fingerprint() == before
    assert state.incarnation("bob") == 1, "what had come before and was not stored yet is not lost"
    state.take("ann", hello)
    state.commit()
    assert RunState.open(private_definition(2**70), disk.copy()).fingerprint() == state.fingerprint()


def test_such_an_error_is_reported_once_with_its_place_and_without_what_it_says():
    state = RunState.open(private_definition(2**70), MemoryDisk())
    state.take("bob", Hello(b"r" * 32, b"d" * 32, 2**40, 5, 1))
    refusals = Refusals(Counter())
    for expected in (["Refused", "Remark"], []):
        with pytest.raises(MessageRefused) as refused:
            state.take("ann", Labels(2))
        told = refusals.note(refused.value, "ann")
        assert [type(event).__name__ for event in told] == expected
        if told:
            assert told[1].text.startswith("a bug of fdml, please report it: ")
            assert "in _take_labels" in told[1].text
            assert "TiB" not in told[1].text
    assert refusals.note(MessageRefused("as it should be", Refusal.INVALID)) == [
        Refused("", "invalid", "as it should be")
    ]


def test_a_server_that_stores_nothing_cannot_go_on_after_such_an_error():
    state = RunState(private_definition(2**70))
    state.take("bob", Hello(b"r" * 32, b"d" * 32, 2**40, 5, 1))
    with pytest.raises(MemoryError):
        state.take("ann", Labels(2))


# Finding 9: text.


def test_a_long_refusal_is_cut_before_it_is_remembered_and_emitted():
    server = Server()
    for number in range(300):
        refused = MessageRefused(f"party 'bob' {number} \x1b[2J[/x] " + "y" * 10_000, Refusal.INVALID)
        server.effects += server.session.refusal_events(refused, "bob")
    reports = [event for event in emitted(server.effects) if isinstance(event, Refused)]
    assert len(reports) == 100
    assert max(len(report.reason) for report in reports) < 420
    assert all(report.reason.isprintable() for report in reports)
    assert server.session.status.refused == {"invalid": 300}


@pytest.mark.parametrize(
    "refuse",
    [
        lambda session: session.check_party("x" * 10_000),
        lambda session: session.alignment.fetch("bob", FetchCall("k" * 10_000, "ann", "", b"")),
        lambda session: session.alignment.fetch("bob", FetchCall("key_offer", "s" * 10_000, "", b"")),
        lambda session: session.alignment.post("bob", PostCall("t" * 10_000, "", encode_alignment(Tokens()), b"")),
    ],
    ids=["name", "kind", "sender", "to"],
)
def test_no_refusal_quotes_more_than_eighty_letters_of_a_peer(refuse):
    with pytest.raises(MessageRefused) as refused:
        refuse(Server().session)
    assert len(str(refused.value)) < 400


# Finding 14: what changes nothing is not logged.


def test_a_message_that_comes_again_is_acknowledged_but_not_logged():
    disk = MemoryDisk()
    server = Server(disk=disk)
    ann, bob = server.training()
    server.to_the_end(ann, bob)
    for stream in (ann, bob):
        server.send(stream, held_out(1), Finished(b"m" * 32))
    server.send(ann, SealedMetrics(1))
    server.carry_out(server.session.acknowledge())
    size = len(disk.files["journal"])
    ann, bob = server.join("ann", done=0), server.join("bob", done=0)
    server.send(ann, server.labels(), push(0), held_out(1), SealedMetrics(1), Finished(b"m" * 32))
    server.send(bob, push(1), push(2), Checkpointed(0), held_out(1))
    server.carry_out(server.session.acknowledge())
    assert not ann.refused
    assert not bob.refused
    assert (ann.acknowledged, bob.acknowledged) == (6, 5)
    assert len(disk.files["journal"]) == size


def test_a_gradient_taken_after_a_checkpoint_does_not_spoil_the_log():
    """Finding 14, as it was found."""
    disk = MemoryDisk()
    server = Server(disk=disk, private=True)
    ann, bob = server.training()
    server.to_the_end(ann, bob, steps=1)
    gradient = Gradient(0, Release(push(0).release.values, 5))
    server.send(ann, gradient, Checkpointed(0))
    effects = server.send(ann, Gradient(0, Release(push(1).release.values, 5)))
    assert refusal_of(effects, ann).refusal is Refusal.CONFLICT
    ann = server.join("ann", done=0)
    server.send(ann, gradient, Gradient(0, Release(push(1).release.values, 6)), push(1))
    assert not ann.refused, "the same again, and another mask after a restart, are in order"
    server.carry_out(server.session.acknowledge())
    Server(disk=disk.copy(), private=True)


# Chaos 12: versions.


@pytest.mark.parametrize("moment", ["before the labels", "in training"])
def test_another_version_is_refused_for_its_version_at_any_moment(moment):
    server = Server()
    if moment == "in training":
        server.to_the_end(*server.training(), steps=2)
    stream = Stream("bob")
    refused = refusal_of(server.send(stream, server.hello(protocol=99, incarnation=2, done=7)), stream)
    assert refused.refusal is Refusal.MISMATCH
    assert f"party 'bob' speaks protocol 99, the server {PROTOCOL}" in str(refused)
