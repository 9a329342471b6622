"""A standing server on a real socket: proposals, decisions, watching, and the sessions of several runs at once."""

import asyncio
import threading
import time

import grpc
import pytest

from benchmarks.ports import reserved_port
from fdml.errors import MessageRefused, Refusal, ServerUnreachable
from fdml.events import Remark
from fdml.protocol.messages import Ack, Finished, Labels, Total, Welcome
from fdml.protocol.run_messages import RunDecision, RunQuery
from fdml.protocol.signed_proposals import make_proposal
from fdml.server.host import RunHost
from fdml.settings import run_hash
from fdml.settings.federation import FederationSettings
from fdml.storage.memory import MemoryDisk
from fdml.transport import run_lines
from fdml.transport.grpc_endpoint import RUN_HEADER, STATUS_OF, Endpoint
from fdml.transport.grpc_runs import RunsClient
from fdml.transport.grpc_server import GrpcServer
from fdml.transport.grpc_status import ask_status
from tests.server.hosts import StoredRuns
from tests.server.sessions import DIGEST, STEPS, hello, labels, push, settings_of
from tests.transport.raw_stream import RawStream
from tests.transport.served import SECONDS, Opened, free_port, new_session, server_loop, until

FEDERATION = FederationSettings(name="shop", parties=("ann", "bob"))


def run_of(name="first", **training):
    return settings_of(**training).model_copy(update={"name": name})


class StandingServer:
    """A standing server whose runs are stored in memory; it can be stopped and started again at the same port."""

    def __init__(self, port):
        self.port = port
        self.store = StoredRuns()
        self.disks = {}
        self.opened = []
        self.closed = []
        self.events = []
        self.fail = {}
        self.start()

    def start(self):
        self._ready, self.ended = threading.Event(), threading.Event()
        self._future = asyncio.run_coroutine_threadsafe(self._run(), server_loop())
        assert self._ready.wait(SECONDS)

    def stop(self):
        self._future.cancel()
        assert self.ended.wait(SECONDS)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def client(self, party, **options):
        return RunsClient(Endpoint(f"127.0.0.1:{self.port}", "shop", party, None), **options)

    def accept(self, run):
        with self.client("ann") as ann, self.client("bob") as bob:
            ann.propose(make_proposal(run, "ann", None))
            return bob.propose(make_proposal(run, "bob", None))

    def stream(self, party, run):
        return RawStream(self.port, party, metadata=((RUN_HEADER, run.name.encode().hex()),))

    def _open(self, settings):
        if settings.name in self.fail:
            raise self.fail[settings.name]
        self.opened.append(settings.name)
        disk = self.disks.setdefault(settings.name, MemoryDisk())
        return Opened(new_session(settings, digest=DIGEST, disk=disk), lambda: self.closed.append(settings.name))

    async def _run(self):
        host = RunHost(FEDERATION, self.store, time.time)
        server = GrpcServer(host, self._open, FEDERATION, plain=True, on_event=self.events.append)
        try:
            await server.run(f"127.0.0.1:{self.port}", None, self._listening)
        finally:
            self.ended.set()

    def _listening(self, port):
        self.port = port
        self._ready.set()


@pytest.fixture
def standing():
    with reserved_port() as port, StandingServer(port) as server:
        yield server


def train(server, run, *, to_the_end=True):
    with server.stream("ann", run) as ann, server.stream("bob", run) as bob:
        ann.send(hello(run), labels())
        bob.send(hello(run)).receive(Labels)
        for step in range(STEPS):
            ann.send(push(step))
            bob.send(push(step))
        for stream in (ann, bob):
            while stream.receive(Total).step < STEPS - 1:
                pass
            if to_the_end:
                stream.send(Finished(b"m" * 32))
                while stream.receive(Ack).count < STEPS + 2:
                    pass
                stream.close_own_side()


def state_of(server, name):
    with server.client("ann") as client:
        return client.run(name).state


def test_a_run_is_proposed_decided_on_and_listed(standing):
    run = run_of()
    with standing.client("ann") as ann, standing.client("bob") as bob:
        assert ann.propose(make_proposal(run, "ann", None)).state == "waiting"
        assert bob.run("first").decision_of("ann").choice == "accepted"
        facts = bob.decide(RunDecision("first", run_hash(run), "accepted"))
        assert facts.state == "running"
        assert [each.name for each in ann.runs(RunQuery()).runs] == ["first"]
        assert ann.run("second") is None


def test_two_runs_at_once_and_both_are_finished(standing, monkeypatch):
    monkeypatch.setattr(run_lines, "_LINGER_SECONDS", 0.5)  # a stream that is cancelled may not have told its end
    runs = [run_of("one"), run_of("two", epochs=3)]
    for run in runs:
        standing.accept(run)
    threads = [threading.Thread(target=train, args=(standing, run)) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    until(lambda: state_of(standing, "one") == state_of(standing, "two") == "finished", "the end of both")
    until(lambda: sorted(standing.closed) == ["one", "two"], "both being closed")


def test_a_call_without_a_run_or_for_an_unknown_one_is_refused(standing):
    for name in ("", "none"):
        with standing.stream("ann", run_of(name or "x").model_copy(update={"name": name})) as stream:
            status, details = stream.send(hello()).end()
        assert status is STATUS_OF[Refusal.NO_RUN]
        assert "there is no run" in details


def test_sessions_wait_for_all_decisions(standing):
    run = run_of()
    with standing.client("ann") as ann:
        ann.propose(make_proposal(run, "ann", None))
    with standing.stream("ann", run) as stream:
        status, details = stream.send(hello(run)).end()
    assert status is STATUS_OF[Refusal.GAP]
    assert "waits for bob to accept it" in details
    assert standing.opened == []


def test_a_question_is_answered_as_soon_as_anything_changes(standing):
    with standing.client("bob") as bob:
        version = bob.runs(RunQuery(wait_seconds=0.1)).version
        with standing.client("ann") as ann:
            proposing = threading.Timer(0.3, ann.propose, (make_proposal(run_of(), "ann", None),))
            proposing.start()
            began = time.monotonic()
            found = bob.runs(RunQuery(version, wait_seconds=15.0))
            proposing.join(SECONDS)
    assert [each.name for each in found.runs] == ["first"]
    assert time.monotonic() - began < 10


def test_a_question_without_news_is_answered_in_the_end(standing):
    with standing.client("bob") as bob:
        bob.runs(RunQuery(wait_seconds=0.1))
        version = bob.runs(RunQuery()).version
        found = bob.runs(RunQuery(version, wait_seconds=0.3))
    assert (found.version, found.runs, found.here) == (version, (), ("bob",))


def test_a_stopped_run_ends_its_streams_and_stays_closed(standing):
    run = run_of()
    standing.accept(run)
    with standing.stream("ann", run) as stream, standing.client("bob") as bob:
        stream.send(hello(run)).receive(Welcome)
        bob.decide(RunDecision("first", run_hash(run), "stopped", reason="wrong file"))
        status, details = stream.end()
    assert status is STATUS_OF[Refusal.NO_RUN]
    assert "run 'first' was stopped by bob (wrong file)" in details
    until(lambda: standing.closed == ["first"], "the run being closed")
    with standing.stream("ann", run) as stream:
        assert stream.send(hello(run)).end()[0] is STATUS_OF[Refusal.NO_RUN]


def test_a_server_that_is_started_again_goes_on_with_its_runs(standing):
    run = run_of()
    standing.accept(run)
    train(standing, run, to_the_end=False)
    standing.stop()
    standing.start()
    assert state_of(standing, "first") == "running"
    with standing.stream("bob", run) as bob:
        assert bob.send(hello(run, done=STEPS - 1, incarnation=2)).receive(Welcome).pushed == STEPS - 1


def test_an_idle_run_is_closed_and_the_next_call_opens_it_again(standing, monkeypatch):
    monkeypatch.setattr(run_lines, "_IDLE_SECONDS", 0.1)
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.05)
    run = run_of()
    standing.accept(run)
    with standing.stream("ann", run) as stream:
        stream.send(hello(run)).receive(Welcome)
        time.sleep(0.5)
        assert standing.closed == []
    until(lambda: standing.closed == ["first"], "the run being closed")
    with standing.stream("ann", run) as stream:
        stream.send(hello(run, incarnation=2)).receive(Welcome)
    assert standing.opened == ["first", "first"]


def test_a_run_that_nobody_speaks_to_is_closed_not_the_server(standing, monkeypatch):
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.02)
    run = run_of(peer_timeout_seconds=0.02)
    standing.accept(run)
    with standing.stream("ann", run) as stream:
        stream.send(hello(run), labels()).end()
    until(lambda: "first" in standing.closed, "the run being closed")
    assert state_of(standing, "first") == "running"


class FullDisk(MemoryDisk):
    is_full = False

    def append(self, name, content, **options):
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().append(name, content, **options)


def test_a_full_disk_closes_one_run_and_the_others_go_on(standing):
    first, second = run_of("first"), run_of("second")
    disk = standing.disks["first"] = FullDisk()
    standing.accept(first)
    standing.accept(second)
    with standing.stream("ann", first) as stream:
        stream.send(hello(first)).receive(Welcome)
        disk.is_full = True
        status, details = stream.send(labels()).end()
    assert status is STATUS_OF[Refusal.NOT_STORED]
    assert "No space left on device" in details
    train(standing, second)
    disk.is_full = False
    train(standing, first)
    until(lambda: state_of(standing, "first") == state_of(standing, "second") == "finished", "the end of both")


def test_a_run_that_cannot_be_opened_is_refused_for_now_and_the_operator_is_told_why(standing):
    run = run_of()
    standing.accept(run)
    standing.fail["first"] = OSError("a broken disk")
    with standing.stream("ann", run) as stream:
        status, details = stream.send(hello(run)).end()
    assert status is STATUS_OF[Refusal.NOT_STORED]
    assert "broken" not in details
    assert Remark("server", "run 'first' cannot be opened: a broken disk") in standing.events
    standing.fail.clear()
    train(standing, run)


def test_a_record_that_the_disk_does_not_take_is_not_answered(standing):
    def full(_):
        raise OSError(28, "No space left on device")

    standing.store.save = full
    with standing.client("ann", seconds=0.0) as ann, pytest.raises(MessageRefused, match="No space left") as refused:
        ann.propose(make_proposal(run_of(), "ann", None))
    assert refused.value.refusal is Refusal.NOT_STORED


def test_the_status_is_that_of_the_run_that_was_asked_for(standing):
    for name in ("one", "two"):
        standing.accept(run_of(name))
    for name in ("one", "two"):
        assert ask_status(Endpoint(f"127.0.0.1:{standing.port}", "shop", "bob", None, run=name)).run == name


def test_refusals_of_proposals_are_raised_as_they_are(standing):
    with standing.client("ann") as ann, pytest.raises(MessageRefused, match="label_party") as refused:
        ann.propose(make_proposal(run_of(), "ann", None).__class__(b'{"parties": ["ann"]}'))
    assert refused.value.refusal is Refusal.INVALID


def test_a_server_that_is_not_there_is_told_after_some_time():
    endpoint = Endpoint(f"127.0.0.1:{free_port()}", "shop", "ann", None)
    with RunsClient(endpoint, seconds=0.3) as client, pytest.raises(ServerUnreachable, match="no server at"):
        client.runs(RunQuery())


def test_a_client_goes_on_with_a_server_that_was_started_again(standing):
    with standing.client("ann", seconds=SECONDS) as client:
        version = client.runs(RunQuery()).version
        standing.stop()
        threading.Timer(0.3, standing.start).start()
        assert client.runs(RunQuery()).version != version


def test_calls_about_runs_of_strangers_are_refused(standing):
    with standing.client("zed") as client, pytest.raises(MessageRefused, match="'zed' is not a party") as refused:
        client.runs(RunQuery())
    assert refused.value.refusal is Refusal.NOT_PERMITTED
    assert grpc.StatusCode.PERMISSION_DENIED is STATUS_OF[refused.value.refusal]


class FaultyDisk(MemoryDisk):
    """A disk with a bug."""

    def append(self, name, content, **options):
        raise ZeroDivisionError("planted")


def test_a_bug_closes_one_run_with_a_traceback_and_the_others_go_on(standing):
    first, second = run_of("first"), run_of("second")
    standing.disks["first"] = FaultyDisk()
    standing.accept(first)
    standing.accept(second)
    with standing.stream("ann", first) as stream:
        status, details = stream.send(hello(first)).end()
    assert status is STATUS_OF[Refusal.NOT_STORED]
    assert "the server has closed the run for now (ZeroDivisionError)" in details
    (told,) = [event.text for event in standing.events if isinstance(event, Remark)]
    assert told.startswith("run 'first' is closed for now, by a bug of fdml; please report it:\nTraceback")
    assert told.endswith("ZeroDivisionError: planted")
    train(standing, second)
    until(lambda: state_of(standing, "second") == "finished", "the end of the other run")
