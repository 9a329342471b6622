"""Both ends of a TLS line know each other by the keys in federation.toml, whatever the authority signs (finding 12)."""

import itertools
from dataclasses import replace

import grpc
import pytest
from cryptography import x509

from fdml import events
from fdml.errors import ExchangeError, MessageRefused, Refusal, ServerUnreachable
from fdml.federation.certificates import Authority
from fdml.protocol.alignment_messages import KeyOffer, Post
from fdml.protocol.certificates import fingerprint
from fdml.protocol.messages import Labels, Total, Welcome
from fdml.protocol.prediction_messages import Question
from fdml.transport import grpc_known_server, grpc_server, run_lines
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.grpc_endpoint import ALIVE, CERTIFICATE, FETCH, POST, STATUS, Endpoint
from fdml.transport.grpc_relay import GrpcQuestions
from fdml.transport.grpc_status import ask_status
from tests.server.sessions import DIGEST, hello, labels, push, settings_of
from tests.transport.raw_stream import RawStream, raw_channel
from tests.transport.served import SECONDS, ServedSession, free_port, new_session, until

AUTHORITY = Authority("shop")
KNOWN = {name: AUTHORITY.issue("party", name) for name in ("ann", "bob")}
KNOWN["server"] = AUTHORITY.issue("server", "server")
MEMBERS = {name: fingerprint(x509.load_pem_x509_certificate(each.certificate)) for name, each in KNOWN.items()}
SETTINGS = settings_of().model_copy(update={"members": MEMBERS})


def serial(credentials):
    return x509.load_pem_x509_certificate(credentials.certificate).serial_number


class List:
    """What is revoked, as a file would say it."""

    def __init__(self):
        self.serials = frozenset()

    def __call__(self):
        return self.serials


def served(credentials=KNOWN["server"], port=0):
    return ServedSession(new_session(SETTINGS, digest=DIGEST), SETTINGS, credentials=credentials, port=port)


def channel_of(server, name="bob", credentials=None, heard=None, server_key=MEMBERS["server"], port=None):
    target = f"127.0.0.1:{port or server.port}"
    endpoint = Endpoint(target, "shop", name, credentials or KNOWN[name], server_key)
    return GrpcChannel(endpoint, SETTINGS, SECONDS, [].append if heard is None else heard.append)


def receive(channel, kind):
    while True:
        channel.wait(lambda: channel.has_message, "for {}")
        message = channel.poll()
        if isinstance(message, kind):
            return message


@pytest.fixture(scope="module")
def server():
    with served() as made:
        yield made


@pytest.fixture
def channel():
    """Makes channels that are closed in the end."""
    made = []

    def make(*args, **options):
        made.append(channel_of(*args, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


# The server's side.


@pytest.mark.parametrize("method", [STATUS, POST, FETCH, ALIVE, CERTIFICATE])
def test_a_second_certificate_for_a_party_is_refused_in_every_call(server, method):
    second = AUTHORITY.issue("party", "bob")
    with raw_channel(server.port, second) as line, pytest.raises(grpc.RpcError) as failed:
        line.unary_unary(method)(b"", timeout=SECONDS)
    assert failed.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "the certificate of 'bob' has another key" in failed.value.details()


def test_a_second_certificate_for_a_party_opens_no_stream(server):
    with RawStream(server.port, credentials=AUTHORITY.issue("party", "bob")) as stream:
        status, details = stream.send(hello(SETTINGS)).end()
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert "has another key" in details


def test_a_renewed_certificate_opens_a_stream(server):
    with RawStream(server.port, credentials=AUTHORITY.issue("party", "bob", key=KNOWN["bob"].key)) as stream:
        stream.send(hello(SETTINGS)).receive(Welcome)


def test_a_revoked_certificate_is_refused_and_its_open_stream_ends(monkeypatch):
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.05)
    revoked = List()
    with served(replace(KNOWN["server"], revoked=revoked)) as server:
        with (
            RawStream(server.port, credentials=KNOWN["ann"]) as ann,
            RawStream(server.port, credentials=KNOWN["bob"]) as bob,
        ):
            ann.send(hello(SETTINGS), labels())
            bob.send(hello(SETTINGS)).receive(Labels)
            revoked.serials = frozenset({serial(KNOWN["bob"])})
            status, details = bob.end()
            assert status is grpc.StatusCode.UNAUTHENTICATED
            assert "the certificate of 'bob' is revoked" in details
            until(lambda: server.session.joined == {"ann"}, "the end of bob's stream")
            with RawStream(server.port, credentials=KNOWN["bob"]) as again:
                assert "is revoked" in again.send(hello(SETTINGS)).end()[1]
            with RawStream(server.port, credentials=AUTHORITY.issue("party", "bob", key=KNOWN["bob"].key)) as renewed:
                renewed.send(hello(SETTINGS, incarnation=2)).receive(Welcome)
                ann.send(push(0))
                renewed.send(push(0))
                assert ann.receive(Total).step == renewed.receive(Total).step == 0
        assert next(each.reason for each in server.events if isinstance(each, events.Refused)).startswith("the certif")


@pytest.mark.slow
def test_an_open_stream_ends_when_its_certificate_runs_out(monkeypatch):
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.05)
    seconds = 4.0
    short = AUTHORITY.issue("party", "bob", days=seconds / 86400, key=KNOWN["bob"].key)
    with served() as server, RawStream(server.port, credentials=short) as bob:
        status, details = bob.send(hello(SETTINGS)).end()
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert "the certificate of 'bob' ran out on" in details


def test_it_is_warned_of_certificates_that_end_soon(monkeypatch):
    monkeypatch.setattr(run_lines, "_TICK_SECONDS", 0.05)
    soon = [
        AUTHORITY.issue(role, name, days=5, key=KNOWN[name].key)
        for role, name in (("server", "server"), ("party", "bob"))
    ]
    with served(soon[0]) as server, RawStream(server.port, credentials=soon[1]) as bob:
        bob.send(hello(SETTINGS)).receive(Welcome)
        until(lambda: sum(isinstance(each, events.Remark) for each in server.events) == 2, "two warnings")
        texts = sorted(each.text for each in server.events if isinstance(each, events.Remark))
    assert texts[0].startswith("the certificate of 'bob' ends on 20")
    assert texts[1].startswith("the certificate of this side ends on 20")


# The party's side.


def test_with_the_keys_of_run_toml_both_sides_talk(server, channel):
    bob = channel(server)
    bob.send(hello(SETTINGS, incarnation=3))
    assert receive(bob, Welcome)
    assert (
        ask_status(Endpoint(f"127.0.0.1:{server.port}", "shop", "bob", KNOWN["bob"], MEMBERS["server"])).run == "shop"
    )


FALSE_SERVER = AUTHORITY.issue("server", "server")


@pytest.mark.parametrize("message", [hello(SETTINGS), Post(KeyOffer(b"x" * 32))], ids=["stream", "alignment"])
def test_a_second_server_that_the_authority_names_gets_nothing(channel, message):
    with served(FALSE_SERVER) as false:
        bob = channel(false)
        bob.send(message)
        with pytest.raises(ServerUnreachable, match=r"certificate of the server at .* has another key .* nothing more"):
            bob.wait(lambda: False, "for {}")
        assert false.session.joined == frozenset()
        assert not any(sum(bytes_) for bytes_ in false.session.status.traffic.values())


@pytest.mark.slow
@pytest.mark.parametrize("message", [hello(SETTINGS), Post(KeyOffer(b"x" * 32))], ids=["stream", "alignment"])
def test_one_that_shows_the_true_certificate_without_its_key_gets_nothing_either(channel, message, monkeypatch):
    """It answers the question for a certificate with the true server's: TLS itself then finds that it is another."""
    with served(FALSE_SERVER) as false:

        async def true_certificate(self, raw, context):
            return KNOWN["server"].certificate

        monkeypatch.setattr(grpc_server.GrpcServer, "_certificate", true_certificate)
        with served(FALSE_SERVER) as liar:
            bob = channel(liar)
            bob.send(message)
            with pytest.raises(
                ServerUnreachable, match=r"is no server of federation 'shop'.*check the address and the keys"
            ):
                bob.wait(lambda: False, "for {}")
            assert not any(sum(bytes_) for bytes_ in liar.session.status.traffic.values())
        assert false.session.joined == frozenset()


def test_a_server_that_comes_back_with_a_renewed_certificate_is_the_same_server(channel):
    port = free_port()
    renewed = AUTHORITY.issue("server", "server", key=KNOWN["server"].key)
    with served(port=port):
        bob = channel(None, port=port)
        bob.send(hello(SETTINGS))
        receive(bob, Welcome)
    with served(renewed, port=port) as again:
        until(lambda: again.session.joined == {"bob"}, "bob at the renewed server")


def test_questions_are_asked_again_at_a_server_with_a_renewed_certificate():
    """An endpoint stays for months; the server's certificate does not."""
    port = free_port()
    renewed = AUTHORITY.issue("server", "server", key=KNOWN["server"].key)
    endpoint = Endpoint(f"127.0.0.1:{port}", "shop", "bob", KNOWN["bob"], MEMBERS["server"])

    def is_answered(line, number):
        try:
            found = line.exchange([Question(number.to_bytes(16, "big"), "first", "ann", b"sealed")], SECONDS)
        except ExchangeError:
            return False
        return "not standing by" in found["ann"].absent

    with GrpcQuestions(endpoint) as line:
        numbers = itertools.count()
        with served(port=port):
            until(lambda: is_answered(line, next(numbers)), "an answer")
        with served(renewed, port=port):
            until(lambda: is_answered(line, next(numbers)), "an answer of the renewed server")


def test_alignment_calls_go_on_at_a_server_with_a_renewed_certificate(channel):
    port = free_port()
    renewed = AUTHORITY.issue("server", "server", key=KNOWN["server"].key)
    with served(port=port):
        bob = channel(None, port=port)
        bob.send(Post(KeyOffer(b"x" * 32)))
        bob.wait(lambda: bob.all_stored, "for {}")
    with served(renewed, port=port):
        bob.send(Post(KeyOffer(b"x" * 32)))
        bob.wait(lambda: bob.all_stored, "for {}")


@pytest.mark.parametrize("message", [hello(SETTINGS), Post(KeyOffer(b"x" * 32))], ids=["stream", "alignment"])
def test_a_server_whose_certificate_is_revoked_is_left(server, channel, message):
    revoked = List()
    revoked.serials = frozenset({serial(KNOWN["server"])})
    bob = channel(server, credentials=replace(KNOWN["bob"], revoked=revoked))
    bob.send(message)
    with pytest.raises(ServerUnreachable, match=r"certificate of the server at .* is revoked"):
        bob.wait(lambda: False, "for {}")


def test_an_open_stream_is_left_when_the_servers_certificate_is_revoked(channel, monkeypatch):
    monkeypatch.setattr(grpc_known_server, "_LOOK_SECONDS", 0.0)
    revoked = List()
    with served() as server:
        bob = channel(server, credentials=replace(KNOWN["bob"], revoked=revoked))
        bob.send(hello(SETTINGS))
        receive(bob, Welcome)
        revoked.serials = frozenset({serial(KNOWN["server"])})
        with pytest.raises(ServerUnreachable, match="is revoked; nothing more is sent to it"):
            bob.wait(lambda: False, "for {}")


def test_nothing_more_is_asked_over_a_server_whose_certificate_is_revoked(monkeypatch):
    monkeypatch.setattr(grpc_known_server, "_LOOK_SECONDS", 0.0)
    revoked = List()
    with served() as server:
        credentials = replace(KNOWN["bob"], revoked=revoked)
        endpoint = Endpoint(f"127.0.0.1:{server.port}", "shop", "bob", credentials, MEMBERS["server"])
        with GrpcQuestions(endpoint) as line:
            found = line.exchange([Question(b"1" * 16, "first", "ann", b"sealed")], SECONDS)
            assert "not standing by" in found["ann"].absent
            revoked.serials = frozenset({serial(KNOWN["server"])})
            with pytest.raises(ServerUnreachable, match="is revoked; nothing more is sent to it"):
                line.exchange([Question(b"2" * 16, "first", "ann", b"sealed")], SECONDS)


def test_a_party_that_was_revoked_is_told_so(channel):
    revoked = List()
    revoked.serials = frozenset({serial(KNOWN["bob"])})
    with served(replace(KNOWN["server"], revoked=revoked)) as server:
        bob = channel(server)
        bob.send(hello(SETTINGS))
        with pytest.raises(
            MessageRefused, match=r"the certificate of 'bob' is revoked; .* `fdml keys renew`"
        ) as refused:
            bob.wait(lambda: False, "for {}")
    assert refused.value.refusal is Refusal.UNAUTHENTICATED


def test_a_party_whose_own_certificate_ran_out_says_so_itself(server, channel):
    """A server that it cannot reach would never tell it."""
    expired = AUTHORITY.issue("party", "bob", days=-1, key=KNOWN["bob"].key)
    bob = channel(server, credentials=replace(KNOWN["bob"], certificate=expired.certificate))
    bob.send(hello(SETTINGS))
    with pytest.raises(ExchangeError, match=r"the certificate of 'bob' ran out on .* `fdml keys renew`"):
        bob.wait(lambda: False, "for {}")


def test_a_party_is_warned_of_its_own_certificate_and_the_servers(channel):
    ending = AUTHORITY.issue("server", "server", days=9, key=KNOWN["server"].key)
    heard = []
    with served(ending) as server:
        bob = channel(server, credentials=AUTHORITY.issue("party", "bob", days=3, key=KNOWN["bob"].key), heard=heard)
        bob.send(hello(SETTINGS))
        receive(bob, Welcome)
    texts = [each.text.split(" ends on ")[0] for each in heard if isinstance(each, events.Remark)]
    assert texts == ["the certificate of this side", "the certificate of 'server'"]
