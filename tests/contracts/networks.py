"""The three ways in which a party and the server are connected, as the contract of channels sees them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np

from benchmarks.proxy import Proxy
from fdml.data.rows import DenseRows
from fdml.settings import run_hash
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.in_process import InProcessServer
from simulator.channel import LineEnd, SimulatedChannel, Simulation
from simulator.clock import EventQueue
from simulator.invariants import InvariantChecker
from simulator.scenarios import Scenario
from simulator.server_node import ServerNode
from tests.transport.served import ServedSession, new_session, until

_RECONNECT = 0.01
_MOST_EVENTS = 100_000


class InProcessNetwork:
    """Parties and server in one process."""

    peer_timeout = 0.1
    can_wait = True
    can_break = False

    def __init__(self, settings, *, rows, held_out):
        self.session = new_session(settings)
        self._server = InProcessServer(self.session, run_hash(settings), settings.training.peer_timeout_seconds)

    def channel(self, party):
        return self._server.channel(party)

    def settle(self, condition):
        """Everything has happened when `send` returns."""
        assert condition()

    def raise_refusal(self, channel):
        """`send` has raised it already."""

    def close(self):
        """Nothing is left open."""


class GrpcNetwork:
    """Real sockets on loopback, with a proxy in between that can break every line."""

    peer_timeout = 2.5
    """The server sends for whom a party waits once a second."""
    can_wait = True
    can_break = True

    def __init__(self, settings, *, rows, held_out):
        self.session = new_session(settings)
        self._settings = settings
        self._served = ServedSession(self.session, settings).__enter__()
        self._proxy = Proxy(self._served.port)
        self._channels = []

    def channel(self, party):
        endpoint = self._served.endpoint(party, port=self._proxy.port)
        timeout = self._settings.training.peer_timeout_seconds
        self._channels.append(GrpcChannel(endpoint, self._settings, timeout, lambda _: None))
        return self._channels[-1]

    def settle(self, condition):
        until(condition)

    def break_lines(self):
        self._proxy.cut()
        self._proxy.heal()

    def raise_refusal(self, channel):
        channel.wait(lambda: False, "for {} to refuse a message")

    def close(self):
        for channel in self._channels:
            channel.close()
        self._served.stop()
        self._proxy.close()


class SimulatedNetwork:
    """Virtual time: something happens only when the test lets it."""

    can_wait = False
    can_break = True

    def __init__(self, settings, *, rows, held_out):
        every = rows + held_out
        scenario = replace(
            Scenario.draw(Random(0)),
            settings=settings,
            rows=rows,
            held_out=held_out,
            rotate_bytes=10**9,
            allowed={},
            features={party: DenseRows(np.zeros((every, 2), np.float32)) for party in settings.parties},
            ids={party: tuple(f"row {number}" for number in range(every)) for party in settings.parties},
        )
        self._queue = EventQueue(7)
        self._simulation = Simulation(self._queue, scenario, InvariantChecker(scenario))
        self._server = ServerNode(self._simulation)
        self._server.start()
        self._ends = []

    @property
    def session(self):
        return self._server.session

    def channel(self, party):
        end = SimulatedParty(party, self._simulation, self._server)
        self._ends.append(end)
        return end.channel

    def settle(self, condition):
        for _ in range(_MOST_EVENTS):
            if condition():
                return
            assert self._queue.next(), "nothing is planned any more"
        raise AssertionError("it has not come about")

    def break_lines(self):
        for end in self._ends:
            if end.connection is not None:
                end.connection.disconnect()

    def raise_refusal(self, channel):
        self.settle(lambda: any(end.refused for end in self._ends if end.channel is channel))
        raise next(end.refused for end in self._ends if end.channel is channel)

    def close(self):
        """Nothing is left open."""


class SimulatedParty:
    """A party's end of simulated lines, without a session."""

    def __init__(self, name, simulation, server):
        self.name = name
        self.refused = None
        self.channel = SimulatedChannel(simulation, self, server)
        self._queue = simulation.queue

    @property
    def connection(self):
        return self.channel.connection

    def receive(self, connection, item):
        if connection is not self.channel.connection:
            return
        if not isinstance(item, LineEnd):
            self.channel.receive(item)
        elif item.refused is not None:
            self.refused = item.refused
        else:
            self.channel.connection = None
            self._queue.after(_RECONNECT, self.channel.reconnect)


NETWORKS = {"in process": InProcessNetwork, "gRPC": GrpcNetwork, "simulated": SimulatedNetwork}
