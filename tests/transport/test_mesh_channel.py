"""A party's lines to all parties, where there is no server: what goes to whom, and who is named when it does not."""

from contextlib import ExitStack

import numpy as np
import pytest

from benchmarks.ports import reserved_port
from fdml.errors import MessageRefused, PeerTimeout
from fdml.privacy.pairwise_masks import PAIRWISE_ID
from fdml.protocol.fixed_point import decode, encode
from fdml.protocol.messages import (
    Checkpointed,
    Finished,
    HeldOutPredictions,
    HeldOutTotal,
    Hello,
    Labels,
    Push,
    Release,
    SealedMetrics,
    Stop,
    Total,
)
from fdml.settings import RunSettings, run_hash
from fdml.transport.grpc_channel import GrpcChannel, Wakeup
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.mesh_channel import MeshChannel
from tests.server.meshes import BLOCK, PARTIES, ROWS, SETTINGS, Member, part
from tests.transport.served import ServedSession, until

pytestmark = pytest.mark.slow  # each waits for lines and servers to end
HELD_OUT = 3


def silent(_):
    pass


class Net:
    """The sessions of all parties but those that are away, and a channel of each."""

    def __init__(self, away=(), settings=SETTINGS):
        self.settings = settings
        self._held = ExitStack()
        self.ports = {name: self._held.enter_context(reserved_port()) for name in PARTIES}
        self.members, self.channels = {}, {}
        for name in PARTIES:
            if name not in away:
                self.start(name)

    def start(self, name):
        self.members[name] = Member(name).session
        self._held.enter_context(ServedSession(self.members[name], self.settings, port=self.ports[name]))

    def channel(self, party):
        wakeup, lines = Wakeup(), {}
        for name, port in self.ports.items():
            endpoint = Endpoint(f"127.0.0.1:{port}", self.settings.federation, party, None, answers_as=name)
            lines[name] = GrpcChannel(
                endpoint, self.settings, self.settings.training.peer_timeout_seconds, silent, wakeup=wakeup
            )
        channel = MeshChannel(self.settings, party, lines)
        self._held.callback(channel.close)
        self.channels[party] = channel
        return channel

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._held.close()


def hello():
    return Hello(run_hash(SETTINGS), b"d" * 32, ROWS, HELD_OUT, 1)


def labels():
    return Labels(2, bytes(Labels.sealed_size("binary", 2, ROWS + HELD_OUT)))


def begin(net, *parties):
    for party in parties:
        net.channel(party).send(hello())
    net.channels["ann"].send(labels())
    for party in parties:
        if party != "ann":
            assert isinstance(received(net.channels[party], Labels), Labels)


def received(channel, kind):
    """The next message of a kind."""
    found = []

    def came():
        while channel.has_message:
            found.append(channel.poll())
        return any(isinstance(each, kind) for each in found)

    until(came, kind.__name__)
    return next(each for each in found if isinstance(each, kind))


def send_and_wait(channel, message):
    channel.send(message)
    channel.wait(lambda: False, "for {}")


def test_every_party_has_the_total_from_its_own_session():
    with Net() as net:
        begin(net, *PARTIES)
        for step in range(2):
            for party in PARTIES:
                net.channels[party].send(Push(step, part(party, step)))
            totals = {party: received(net.channels[party], Total) for party in PARTIES}
            for total in totals.values():
                values = decode(total.values).reshape(-1)
                np.testing.assert_array_equal(values, sum(decode(part(party, step).values) for party in PARTIES))
        until(lambda: all(channel.all_stored for channel in net.channels.values()), "all stored")
        assert all(net.channels[party].bytes_sent > 0 for party in PARTIES)
        assert net.channels["ann"].traffic == (0, 0)


def test_held_out_predictions_go_to_the_label_party_alone():
    with Net() as net:
        begin(net, *PARTIES)
        sent = HeldOutPredictions(1, Release(encode(np.full(HELD_OUT, 1.0)), PAIRWISE_ID))
        for party in PARTIES:
            net.channels[party].send(sent)
        total = received(net.channels["ann"], HeldOutTotal)
        np.testing.assert_array_equal(decode(total.values), np.full(HELD_OUT, 3.0))
        for name in ("bob", "cat"):
            held_out = net.members[name].state._held_out
            assert not any(held_out.has_part(party, sent) for party in PARTIES)


def test_metrics_and_ends_reach_everybody():
    with Net() as net:
        begin(net, *PARTIES)
        net.channels["ann"].send(SealedMetrics(1))
        until(lambda: all(1 in member.state.history for member in net.members.values()), "metrics")
        net.channels["bob"].send(Stop(0))
        until(lambda: all(member.state.coordinator.end == 0 for member in net.members.values()), "stop")
        for party in PARTIES:
            net.channels[party].send(Finished(b"m" * 32))
        until(lambda: all(member.state.finished for member in net.members.values()), "the end")


def test_a_push_that_a_party_has_not_stored_is_in_the_checkpoint():
    """The total may be served here while the push is still on its way: a restarted party would not make it again."""
    with Net(away=("cat",)) as net:
        ann, bob = net.channel("ann"), net.channel("bob")
        ann.send(hello())
        bob.send(hello())
        ann.send(labels())
        ann.send(Push(0, part("ann", 0)))
        ann.send(SealedMetrics(1))
        until(lambda: net.members["ann"].state.coordinator is not None, "labels")
        until(lambda: net.members["ann"].state.coordinator.pushed("ann") == 0, "the own session has it")
        kept = ann.unacknowledged()
        assert [type(each) for each in kept] == [Push, SealedMetrics]
        assert not ann.all_stored
        net.start("cat")
        until(lambda: ann.all_stored, "cat has come")
        assert ann.unacknowledged() == []


def test_a_push_says_what_its_sender_was_sent_for_the_step_before():
    with Net() as net:
        begin(net, *PARTIES)
        for party in PARTIES:
            net.channels[party].send(Push(0, part(party, 0)))
        totals = {party: received(net.channels[party], Total) for party in PARTIES}
        assert len({total.parts for total in totals.values()}) == 1
        assert totals["ann"].parts
        net.channels["ann"].send(Push(1, part("ann", 1)))
        until(lambda: all(each.state.coordinator.pushed("ann") == 1 for each in net.members.values()), "the next push")


def test_a_party_that_tells_two_others_different_things_is_named_to_both():
    with Net() as net:
        begin(net, *PARTIES)
        net.channels["ann"].send(Push(0, part("ann", 0)))
        net.channels["bob"].send(Push(0, part("bob", 0)))
        for name, line in net.channels["cat"]._lines.items():
            line.send(Push(0, part("cat", 0, 0.5 if name == "bob" else 0.0)))
        for party in ("ann", "bob"):
            received(net.channels[party], Total)
        for party in ("ann", "bob"):
            with pytest.raises(MessageRefused, match=r"party 'cat' has sent '(ann|bob)' and '(bob|ann)' different"):
                send_and_wait(net.channels[party], Push(1, part(party, 1)))


def test_a_party_that_does_not_store_is_named_after_the_deadline():
    settings = RunSettings(**{**SETTINGS.model_dump(exclude_unset=True), "name": "short"})
    settings = settings.model_copy(
        update={"training": settings.training.model_copy(update={"peer_timeout_seconds": 1.5})}
    )
    with Net(away=("cat",)) as net:
        net.settings = settings
        begin(net, "ann", "bob")
        ann = net.channels["ann"]
        ann.send(Push(0, part("ann", 0)))
        ann._lines["ann"]._delivery.under_way = True
        with pytest.raises(PeerTimeout, match=r"party 'ann' waited 1\.5 s at step 0 for 'cat'"):
            ann.wait(lambda: False, "at step 0 for {}")


def test_a_checkpoint_is_told_to_all_as_their_sessions_keep_totals_for_nobody_else():
    with Net() as net:
        begin(net, *PARTIES)
        for party in PARTIES:
            net.channels[party].send(Push(0, part(party, 0)))
        for party in PARTIES:
            received(net.channels[party], Total)
            net.channels[party].send(Checkpointed(0))
        until(
            lambda: all(
                member.state.coordinator.checkpointed(party) == 0
                for member in net.members.values()
                for party in PARTIES
            ),
            "checkpoints",
        )
        assert BLOCK * 3 == ROWS
