"""What comes by a real socket and must not be let in: each with its status, nothing changed, nobody disturbed."""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import grpc
import pytest

from fdml.errors import ExchangeError, MessageRefused, Refusal, ServerUnreachable
from fdml.federation.certificates import Authority
from fdml.monitor.listeners import ignore_events
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.alignment_messages import RowCounts
from fdml.protocol.identity import Credentials
from fdml.protocol.key_sets import position_digest
from fdml.protocol.limits import CEILING, HELLO, PIECE, largest_message
from fdml.protocol.messages import Checkpointed, Finished, Labels, SealedMetrics, Welcome
from fdml.protocol.row_pieces import LABEL_ROWS
from fdml.settings import TrainingSettings
from fdml.transport import grpc_server
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.grpc_endpoint import JOIN, PARTY_HEADER, Endpoint
from fdml.transport.grpc_status import ask_status
from tests.end_to_end.served import HELD_OUT, ROWS, Honest, RawStream, labels, push, raw_channel, served

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
def undisturbed_run(run, honest):
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
def test_whoever_the_handshake_does_not_know_never_gets_through(undisturbed_run, who):
    before = undisturbed_run.refused()
    with RawStream(undisturbed_run.target, NOBODY[who](undisturbed_run), "bob") as stream:
        status, _ = stream.send(undisturbed_run.hello(9)).end()
    assert status is grpc.StatusCode.UNAVAILABLE
    assert undisturbed_run.refused() == before


# Who is known, but may not be here.

SOMEBODY = {
    "another run": (
        lambda run: run.authority.issue("party", "bob", federation="other"),
        "UNAUTHENTICATED",
        "fdml://other/",
    ),
    "the server's role": (lambda run: run.authority.issue("server", "bob"), "UNAUTHENTICATED", "e2e/server/bob"),
    "no party of the run": (lambda run: run.authority.issue("party", "zed"), "PERMISSION_DENIED", "'zed' is not"),
    "another key": (lambda run: run.authority.issue("party", "bob"), "UNAUTHENTICATED", "has another key"),
}


@pytest.mark.parametrize("who", SOMEBODY)
def test_whoever_may_not_be_here_is_told_so(undisturbed_run, who):
    make, status, words = SOMEBODY[who]
    before = sum(undisturbed_run.refused().values())
    with RawStream(undisturbed_run.target, make(undisturbed_run)) as stream:
        found, details = stream.send(undisturbed_run.hello(9)).end()
    assert found is grpc.StatusCode[status]
    assert words in details
    assert sum(undisturbed_run.refused().values()) == before + 1


def test_who_a_party_is_comes_from_its_certificate_not_from_its_messages(undisturbed_run):
    zed = undisturbed_run.authority.issue("party", "zed")
    with RawStream(undisturbed_run.target, zed, party="bob") as stream:
        assert stream.send(undisturbed_run.hello(9)).end()[0] is grpc.StatusCode.PERMISSION_DENIED


def test_the_server_s_own_certificate_may_ask_for_the_status_but_strangers_may_not(undisturbed_run):
    def asked(credentials):
        return ask_status(Endpoint(undisturbed_run.target, "e2e", "server", credentials))

    assert asked(undisturbed_run.credentials("server")).run == "e2e"
    with pytest.raises(MessageRefused, match="only a party") as refused:
        asked(undisturbed_run.authority.issue("party", "bob", federation="other"))
    assert refused.value.refusal is Refusal.UNAUTHENTICATED
    with pytest.raises(ServerUnreachable):
        asked(_trusting(undisturbed_run, STRANGER.issue("party", "bob")))


# What a party may not send. Each comes from bob's own certificate, on a stream beside his honest one.

FIRST = {
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
    "an older start": (lambda run: [run.hello(0)], Refusal.FENCED, "an older process of it"),
    "state that the server never saw": (lambda run: [run.hello(9, done=10**6)], Refusal.MISMATCH, "a new name"),
}


@pytest.mark.parametrize("what", FIRST)
def test_what_a_party_may_not_send_first_is_refused(undisturbed_run, what):
    make, refusal, words = FIRST[what]
    name = refusal.name.lower()
    before = undisturbed_run.refused().get(name, 0)
    with RawStream(undisturbed_run.target, undisturbed_run.credentials("bob")) as stream:
        status, details = stream.send(*make(undisturbed_run)).end()
    assert status is grpc_server.STATUS_OF[refusal]
    assert words in details
    assert undisturbed_run.refused()[name] == before + 1


LATER = {
    "a second hello": (lambda run, step: run.hello(), Refusal.INVALID, "hello twice"),
    "random bytes": (lambda run, step: b"\xff\xff\xff", Refusal.INVALID, "no message"),
    "a step too far": (lambda run, step: push(step + 5), Refusal.GAP, "its next is"),
    "other values for a step": (lambda run, step: push(step - 1, value=9.0), Refusal.CONFLICT, "other values"),
    "a block too long": (lambda run, step: push(step, rows=21), Refusal.INVALID, "shape"),
    "a message over the limit": (lambda run, step: push(step, rows=10_000), Refusal.TOO_LARGE, "the largest has 2144"),
    "labels of someone else": (lambda run, step: labels(), Refusal.NOT_PERMITTED, "only 'ann' may"),
    "metrics of someone else": (lambda run, step: SealedMetrics(1), Refusal.NOT_PERMITTED, "only 'ann' may"),
    "a total it never got": (lambda run, step: Checkpointed(10**6), Refusal.GAP, "was served only"),
    "the end, too early": (lambda run, step: Finished(b"0" * 32), Refusal.GAP, "before the end"),
}


@pytest.mark.parametrize("what", LATER)
def test_what_a_party_may_not_send_later_is_refused_and_it_may_come_back(run, honest, what):
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


def test_after_a_refusal_nothing_of_that_stream_is_acted_on(run, honest):
    state = run.state.fingerprint()
    status, _ = honest.misbehave("bob", b"\xff\xff\xff", push(honest.step))
    after = run.state.fingerprint()
    honest.come_back("bob")
    honest.advance()
    assert status is grpc.StatusCode.INVALID_ARGUMENT
    assert after == state


def test_a_newer_start_takes_over_and_the_older_one_is_told(run, honest):
    with RawStream(run.target, run.credentials("bob")) as newer:
        newer.send(run.hello(2, done=honest.step - 1)).receive(Welcome)
        status, details = honest.streams["bob"].end()
        assert status is grpc.StatusCode.ABORTED
        assert "started again" in details
        with RawStream(run.target, run.credentials("bob")) as older:
            assert older.send(run.hello(1, done=honest.step - 1)).end()[0] is grpc.StatusCode.ABORTED
    honest.come_back("bob", incarnation=3)
    honest.advance()


def test_a_start_that_lost_what_it_had_saved_is_told_to_start_over_everywhere(run, honest):
    honest.streams["bob"].send(Checkpointed(honest.step - 1))
    honest.advance()
    with RawStream(run.target, run.credentials("bob")) as fresh:
        status, details = fresh.send(run.hello(9, done=-1)).end()
    assert status is grpc.StatusCode.FAILED_PRECONDITION
    assert "a new name" in details
    honest.advance()


# How large a message may be.


def test_the_limit_follows_from_the_run():
    def limit(rows, width=1, **training):
        hello = SimpleNamespace(rows=rows, held_out=rows // 4)
        return largest_message(
            agreed_training(TrainingSettings(**{"batch_size": 100, **training}), hello.rows, 2), hello, width
        )

    assert limit(1000) - HELLO == 2 * 8 * 1250, "labels and weights of all rows"
    assert limit(1000, 10, batches_per_block=4) - HELLO == 8 * 10 * 400, "a block of 400 rows of 10 floats"
    assert limit(1000, 10, batches_per_block="all") - HELLO == 8 * 10 * 1000
    assert limit(10**12) - HELLO == 2 * 8 * LABEL_ROWS, "a piece of the labels"
    assert limit(10**12, batches_per_block="all") == CEILING, "a block is one message"


def test_labels_right_after_hello_are_not_too_large(tmp_path):
    rows = RowCounts(HELLO + HELD_OUT)
    with served(tmp_path, rows=rows) as run, RawStream(run.target, run.credentials("bob")) as bob:
        hello, given = run.hello(rows=HELLO, alignment_hash=position_digest(rows)), labels(rows.train)
        bob.send(hello).receive(Welcome)
        with RawStream(run.target, run.credentials("ann")) as ann:
            ann.send(hello, given)
            assert bob.receive(Labels) == given
        assert run.refused() == {}


def test_what_is_longer_than_a_piece_is_not_even_read(undisturbed_run):
    with RawStream(undisturbed_run.target, undisturbed_run.credentials("bob")) as stream:
        status, details = stream.send(bytes(PIECE + 1)).end()
    assert status is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "larger than max" in details


# Plain lines.


def test_a_plain_line_is_known_by_its_header_and_nonsense_there_is_refused(tmp_path):
    with served(tmp_path, plain=True) as run:
        with RawStream(run.target, None, "bob") as stream:
            stream.send(run.hello()).receive(Welcome)
        with RawStream(run.target, None, "zed") as stream:
            assert stream.send(run.hello()).end()[0] is grpc.StatusCode.PERMISSION_DENIED
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


@contextmanager
def joining(run, endpoint):
    """The channel of a party that has just said hello and waits for a message."""
    channel = GrpcChannel(endpoint, run.settings, 60.0, ignore_events)
    try:
        channel.send(run.hello())
        yield channel
    finally:
        channel.close()


def wait_for_message(channel):
    channel.wait(lambda: channel.has_message, "for {}")


@pytest.mark.parametrize(
    "made",
    [
        lambda run: Endpoint(run.target, "e2e", "bob", STRANGER.issue("party", "bob")),
        lambda run: Endpoint(run.target, "other", "bob", run.authority.issue("party", "bob", federation="other")),
    ],
    ids=["another authority", "another run"],
)
def test_a_party_does_not_talk_to_a_server_it_has_no_reason_to_trust(undisturbed_run, made):
    with (
        joining(undisturbed_run, made(undisturbed_run)) as channel,
        pytest.raises(ServerUnreachable, match="check the address and the keys"),
    ):
        wait_for_message(channel)


def test_a_party_s_certificate_does_not_make_a_server(run):
    bob = run.credentials("bob")
    with fake_server(bob) as port:
        endpoint = Endpoint(f"127.0.0.1:{port}", "e2e", "ann", run.credentials("ann"))
        with (
            joining(run, endpoint) as channel,
            pytest.raises(ServerUnreachable, match="check the address and the keys"),
        ):
            wait_for_message(channel)


def test_a_party_whose_server_sends_nonsense_says_so_and_does_not_hang(run):
    with fake_server(run.credentials("server"), answer=b"\xff\xff") as port:
        endpoint = Endpoint(f"127.0.0.1:{port}", "e2e", "ann", run.credentials("ann"))
        with joining(run, endpoint) as channel, pytest.raises(ExchangeError, match="not one of ours"):
            wait_for_message(channel)


@contextmanager
def fake_server(credentials, answer=b""):
    """A gRPC server that answers every join with the same bytes; gives its port."""
    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.stream_stream_rpc_method_handler(lambda requests, context: iter([answer]))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("fdml.Exchange", {"Join": handler}),))
    keys = grpc.ssl_server_credentials([(credentials.key, credentials.certificate)])
    port = server.add_secure_port("127.0.0.1:0", keys)
    server.start()
    yield port
    server.stop(0).wait()
