"""What comes by a real socket and must not be let in: each with its status, nothing changed, nobody disturbed."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import grpc
import pytest

from fdml.errors import ExchangeError, MessageRefused, Refusal, ServerUnreachable
from fdml.federation.certificates import Authority
from fdml.protocol.identity import Credentials
from fdml.protocol.messages import Checkpointed, Finished, Labels, Metrics, Welcome
from fdml.server.limits import CEILING, HELLO, largest_message
from fdml.settings import TrainingSettings
from fdml.transport import grpc_server
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.grpc_endpoint import JOIN, PARTY_HEADER, Endpoint
from fdml.transport.grpc_status import ask_status
from tests.end_to_end.served import ROWS, Honest, RawLine, labels, push, raw_channel, served

STRANGER = Authority("e2e")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    with served(tmp_path_factory.mktemp("served")) as made:
        yield made


@pytest.fixture(scope="module")
def honest(run):
    made = Honest(run)
    made.advance()
    yield made
    made.close()


@pytest.fixture
def unchanged(run, honest):
    """The server's state must be the same before and after, and the honest parties go on."""
    before = run.state.fingerprint()
    yield run
    assert run.state.fingerprint() == before
    honest.advance()


# Who does not get through the handshake: the server's own code never sees them.

NOBODY = {
    "no certificate": lambda run: Credentials(b"", b"", run.authority.certificate),
    "another authority": lambda run: _trusting(run, STRANGER.issue("party", "bob")),
    "expired": lambda run: run.authority.issue("party", "bob", days=-1),
    "plain text": lambda run: None,
}


def _trusting(run, theirs):
    return Credentials(theirs.key, theirs.certificate, run.authority.certificate)


@pytest.mark.parametrize("who", NOBODY)
def test_whoever_the_handshake_does_not_know_is_never_heard(unchanged, who):
    before = unchanged.refused()
    with RawLine(unchanged.target, NOBODY[who](unchanged), "bob") as line:
        status, _ = line.say(unchanged.hello(9)).end()
    assert status is grpc.StatusCode.UNAVAILABLE
    assert unchanged.refused() == before


# Who is known, but may not be here.

SOMEBODY = {
    "another run": (lambda run: run.authority.issue("party", "bob", run="other"), "UNAUTHENTICATED", "fdml://other/"),
    "the server's role": (lambda run: run.authority.issue("server", "bob"), "UNAUTHENTICATED", "e2e/server/bob"),
    "no party of the run": (lambda run: run.authority.issue("party", "zed"), "PERMISSION_DENIED", "'zed' is not"),
}


@pytest.mark.parametrize("who", SOMEBODY)
def test_whoever_may_not_be_here_is_told_so(unchanged, who):
    make, status, words = SOMEBODY[who]
    before = sum(unchanged.refused().values())
    with RawLine(unchanged.target, make(unchanged)) as line:
        found, details = line.say(unchanged.hello(9)).end()
    assert found is grpc.StatusCode[status]
    assert words in details
    assert sum(unchanged.refused().values()) == before + 1


def test_who_a_party_is_stands_in_its_certificate_not_in_what_it_says(unchanged):
    zed = unchanged.authority.issue("party", "zed")
    with RawLine(unchanged.target, zed, party="bob") as line:
        assert line.say(unchanged.hello(9)).end()[0] is grpc.StatusCode.PERMISSION_DENIED


def test_the_server_s_own_certificate_may_ask_how_the_run_stands_but_strangers_may_not(unchanged):
    def asked(credentials):
        return ask_status(Endpoint(unchanged.target, "e2e", "server", credentials))

    assert asked(unchanged.authority.issue("server", "server")).run == "e2e"
    with pytest.raises(MessageRefused, match="only a party") as refused:
        asked(unchanged.authority.issue("party", "bob", run="other"))
    assert refused.value.refusal is Refusal.UNAUTHENTICATED
    with pytest.raises(ServerUnreachable):
        asked(_trusting(unchanged, STRANGER.issue("party", "bob")))


# What a party may not say. Each comes from bob's own certificate, on a line beside his honest one.

SAID = {
    "random bytes": (lambda run: [os.urandom(40) + b"\xff"], Refusal.INVALID, "no message"),
    "an empty message": (lambda run: [b""], Refusal.INVALID, "without content"),
    "a push before hello": (lambda run: [push(0)], Refusal.INVALID, "hello first"),
    "labels before hello": (lambda run: [labels()], Refusal.INVALID, "hello first"),
    "labels larger than a hello before it": (lambda run: [labels(HELLO)], Refusal.TOO_LARGE, "bytes"),
    "another run.toml": (lambda run: [run.hello(9, run_hash=b"x" * 32)], Refusal.MISMATCH, "run.toml with hash"),
    "other rows": (
        lambda run: [run.hello(9, alignment_hash=b"x" * 32)],
        Refusal.MISMATCH,
        "this server has seen another one",
    ),
    "more rows": (lambda run: [run.hello(9, rows=ROWS + 1)], Refusal.MISMATCH, f"{ROWS + 1} rows"),
    "another protocol": (lambda run: [run.hello(9, protocol=99)], Refusal.MISMATCH, "protocol 99"),
    "an older start": (lambda run: [run.hello(0)], Refusal.FENCED, "started again"),
    "state that the server never saw": (lambda run: [run.hello(9, done=10**6)], Refusal.MISMATCH, "--fresh"),
}


@pytest.mark.parametrize("what", SAID)
def test_what_a_party_may_not_say_first_is_refused(unchanged, what):
    make, refusal, words = SAID[what]
    name = refusal.name.lower()
    before = unchanged.refused().get(name, 0)
    with RawLine(unchanged.target, unchanged.credentials("bob")) as line:
        status, details = line.say(*make(unchanged)).end()
    assert status is grpc_server.STATUS_OF[refusal]
    assert words in details
    assert unchanged.refused()[name] == before + 1


LATER = {
    "a second hello": (lambda run, step: run.hello(), Refusal.INVALID, "hello twice"),
    "random bytes": (lambda run, step: b"\xff\xff\xff", Refusal.INVALID, "no message"),
    "a step too far": (lambda run, step: push(step + 5), Refusal.GAP, "its next is"),
    "other values for a step": (lambda run, step: push(step - 1, value=9.0), Refusal.CONFLICT, "other values"),
    "a block too long": (lambda run, step: push(step, rows=21), Refusal.INVALID, "shape"),
    "a message over the limit": (lambda run, step: push(step, rows=10_000), Refusal.TOO_LARGE, "the largest has 2144"),
    "labels of someone else": (lambda run, step: labels(), Refusal.NOT_PERMITTED, "only 'ann' may"),
    "metrics of someone else": (lambda run, step: Metrics(1, 1, 1, 1, 1), Refusal.NOT_PERMITTED, "only 'ann' may"),
    "a total it never got": (lambda run, step: Checkpointed(10**6), Refusal.GAP, "was served only"),
    "the end, too early": (lambda run, step: Finished(b"0" * 32), Refusal.GAP, "before the end"),
}


@pytest.mark.parametrize("what", LATER)
def test_what_a_party_may_not_say_later_is_refused_and_it_may_come_back(run, honest, what):
    make, refusal, words = LATER[what]
    name = refusal.name.lower()
    before, state = run.refused().get(name, 0), run.state.fingerprint()
    status, details = honest.misbehave("bob", make(run, honest.step))
    after = run.state.fingerprint()
    honest.come_back("bob")
    honest.advance()
    assert status is grpc_server.STATUS_OF[refusal]
    assert words in details
    assert run.refused()[name] == before + 1
    assert after == state


def test_after_a_refusal_nothing_of_that_line_is_acted_on(run, honest):
    state = run.state.fingerprint()
    status, _ = honest.misbehave("bob", b"\xff\xff\xff", push(honest.step))
    after = run.state.fingerprint()
    honest.come_back("bob")
    honest.advance()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert after == state


def test_a_newer_start_takes_over_and_the_older_one_is_told(run, honest):
    with RawLine(run.target, run.credentials("bob")) as newer:
        newer.say(run.hello(2, done=honest.step - 1)).hear(Welcome)
        status, details = honest.lines["bob"].end()
        assert status is grpc.StatusCode.ABORTED
        assert "started again" in details
        with RawLine(run.target, run.credentials("bob")) as older:
            assert older.say(run.hello(1, done=honest.step - 1)).end()[0] is grpc.StatusCode.ABORTED
    honest.come_back("bob", incarnation=3)
    honest.advance()


def test_a_start_that_lost_what_it_had_said_to_be_safe_is_told_to_start_over_everywhere(run, honest):
    honest.lines["bob"].say(Checkpointed(honest.step - 1))
    honest.advance()
    with RawLine(run.target, run.credentials("bob")) as fresh:
        status, details = fresh.say(run.hello(9, done=-1)).end()
    assert status is grpc.StatusCode.FAILED_PRECONDITION
    assert "--fresh" in details
    honest.advance()


# How large a message may be.


def test_the_limit_follows_from_the_run():
    def limit(rows, width=1, **training):
        hello = SimpleNamespace(rows=rows, held_out=rows // 4)
        return largest_message(TrainingSettings(**training), hello, width)

    assert limit(1000) - HELLO == 2 * 8 * 1250, "labels and weights of all rows"
    assert limit(1000, 10, batches_per_block=4) - HELLO == 8 * 10 * 400, "a block of 400 rows of 10 floats"
    assert limit(1000, 10, batches_per_block="all") - HELLO == 8 * 10 * 1000
    assert limit(10**12) == CEILING


def test_labels_right_after_hello_are_not_too_large(tmp_path):
    with served(tmp_path) as run, RawLine(run.target, run.credentials("bob")) as bob:
        hello, given = run.hello(rows=HELLO, held_out=0), labels(HELLO)
        bob.say(hello).hear(Welcome)
        with RawLine(run.target, run.credentials("ann")) as ann:
            ann.say(hello, given)
            assert bob.hear(Labels) == given
        assert run.refused() == {}


def test_what_is_over_the_ceiling_is_not_even_read(tmp_path, monkeypatch):
    monkeypatch.setattr(grpc_server, "CEILING", 2**20)
    with served(tmp_path) as run, RawLine(run.target, run.credentials("bob")) as line:
        status, details = line.say(run.hello(), bytes(2**20 + 1)).end()
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in details


# Plain lines.


def test_a_plain_line_is_known_by_its_header_and_nonsense_there_is_refused(tmp_path):
    with served(tmp_path, plain=True) as run:
        with RawLine(run.target, None, "bob") as line:
            line.say(run.hello()).hear(Welcome)
        with RawLine(run.target, None, "zed") as line:
            assert line.say(run.hello()).end()[0] is grpc.StatusCode.PERMISSION_DENIED
        with raw_channel(run.target, None) as channel:
            for nonsense in ("no hex", "ff", ""):
                call = channel.stream_stream(JOIN)(iter([]), metadata=((PARTY_HEADER, nonsense),), timeout=5)
                with pytest.raises(grpc.RpcError) as refused:
                    next(call)
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert run.refused() == {"not_permitted": 4}


# The party's side of it.


def test_a_proxy_for_the_web_is_not_asked_for_the_way_to_this_machine(run, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask_status(run.address("ann")).run == "e2e"


def await_message(run, endpoint, peer_timeout=20.0):
    """Join over a party's own channel and wait for what the server sends."""
    channel = GrpcChannel(endpoint, run.hello().run_hash, peer_timeout, lambda _: None)
    try:
        channel.send(run.hello())
        channel.wait(lambda: channel.has_message, "for {}")
    finally:
        channel.close()


@pytest.mark.parametrize(
    "made",
    [
        lambda run: Endpoint(run.target, "e2e", "bob", STRANGER.issue("party", "bob")),
        lambda run: Endpoint(run.target, "other", "bob", run.authority.issue("party", "bob", run="other")),
    ],
    ids=["another authority", "another run"],
)
def test_a_party_does_not_talk_to_a_server_it_has_no_reason_to_trust(run, made):
    with pytest.raises(ServerUnreachable, match="check the address and the keys"):
        await_message(run, made(run))


def test_a_party_s_certificate_does_not_make_a_server(run):
    bob = run.credentials("bob")
    with fake_server(bob) as port, pytest.raises(ServerUnreachable, match="check the address and the keys"):
        await_message(run, Endpoint(f"127.0.0.1:{port}", "e2e", "ann", run.credentials("ann")))


def test_a_party_whose_server_talks_nonsense_says_so_and_does_not_hang(run):
    with fake_server(run.authority.issue("server", "server"), says=b"\xff\xff") as port:
        with pytest.raises(ExchangeError, match="not one of ours"):
            await_message(run, Endpoint(f"127.0.0.1:{port}", "e2e", "ann", run.credentials("ann")))


@contextmanager
def fake_server(credentials, says=b""):
    """A gRPC server that answers every join with the same bytes; gives its port."""
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(lambda requests, context: iter([says]))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fdml.Exchange", {"Join": handler}),))
    keys = grpc.ssl_server_credentials([(credentials.key, credentials.certificate)])
    port = server.add_secure_port("127.0.0.1:0", keys)
    server.start()
    yield port
    server.stop(0).wait()
