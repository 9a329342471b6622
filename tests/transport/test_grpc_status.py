import pytest

from fdml.errors import MessageRefused, Refusal, ServerUnreachable
from fdml.federation.certificates import Authority
from fdml.protocol.messages import Labels
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_status import ask_status
from tests.server.sessions import DIGEST, hello, labels, settings_of
from tests.transport.raw_stream import RawStream
from tests.transport.served import ServedSession, free_port, new_session

AUTHORITY = Authority("shop")


def serve(credentials=None):
    return ServedSession(new_session(settings_of(), digest=DIGEST), settings_of(), credentials=credentials)


@pytest.fixture(scope="module")
def plain():
    with serve() as server:
        yield server


@pytest.fixture(scope="module")
def secure():
    with serve(credentials=AUTHORITY.issue("server", "server")) as server:
        yield server


def test_a_party_sees_the_whole_run(plain):
    with RawStream(plain.port, "ann") as ann, RawStream(plain.port, "bob") as bob:
        ann.send(hello(), labels())
        bob.send(hello()).receive(Labels)
        status = ask_status(plain.endpoint("bob"))
    assert status.run == "shop"
    assert [(party.name, party.state) for party in status.parties] == [("ann", "training"), ("bob", "training")]
    assert status.parties[0].bytes_in > 0


def test_the_server_s_own_certificate_may_ask(secure):
    credentials = AUTHORITY.issue("server", "server")
    assert ask_status(secure.endpoint("server", credentials=credentials)).run == "shop"


def test_a_party_of_another_run_may_not(secure):
    credentials = AUTHORITY.issue("party", "bob", federation="other")
    with pytest.raises(MessageRefused, match=r"the server at .* refuses: .*only a party") as refused:
        ask_status(secure.endpoint("bob", credentials=credentials))
    assert refused.value.refusal is Refusal.UNAUTHENTICATED


def test_a_server_of_another_authority_is_no_server(secure):
    with pytest.raises(ServerUnreachable, match="no server of federation 'shop' answers at"):
        ask_status(secure.endpoint("bob", credentials=Authority("shop").issue("party", "bob")))


def test_nobody_there_is_an_error_with_the_address():
    port = free_port()
    with pytest.raises(ServerUnreachable, match=rf"at 127.0.0.1:{port} .*is `fdml serve` running\?"):
        ask_status(Endpoint(f"127.0.0.1:{port}", "shop", "bob", None))


def test_a_proxy_for_the_web_is_not_asked_for_the_way_to_this_machine(plain, monkeypatch):
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ask_status(plain.endpoint("ann")).run == "shop"
