"""`fdml endpoint` over a standing server: the same numbers as elsewhere, names and versions, changes while it runs."""

import contextlib
import socket
import threading

import numpy as np
import pytest

import fdml
from fdml.errors import RequestRefused, SettingsError
from fdml.federation.endpoint import _listening, serve_endpoint
from fdml.federation.versions import Promotions
from fdml.serving.client import EndpointClient
from fdml.serving.online.access import Access
from fdml.serving.publication import read_facts
from tests.federation.standing_models import StandingModels
from tests.transport.served import SECONDS, until

pytestmark = pytest.mark.slow


@contextlib.contextmanager
def endpoint(served, party="ann", access=None, **options):
    """An endpoint in a thread; gives a client and what it said."""
    ready, found, told, errors = threading.Event(), [], [], []

    def started(port, stop):
        found.extend((port, stop))
        ready.set()

    def live():
        try:
            serve_endpoint(
                served.party(party),
                access or Access(),
                port=0,
                plain=True,
                server=served.address,
                on_event=told.append,
                on_start=started,
                **options,
            )
        except BaseException as error:
            errors.append(error)
            ready.set()
            raise

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    assert ready.wait(SECONDS)
    assert not errors
    try:
        with EndpointClient(f"http://127.0.0.1:{found[0]}") as client:
            yield client, told
    finally:
        found[1]()
        thread.join(SECONDS)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with StandingModels(tmp_path_factory.mktemp("models"), kinds={"bob": "fm", "cid": "mlp"}) as found:
        found.train()
        found.up("bob", "cid")
        yield found


def version_of(served):
    return read_facts(served.folder / "ann" / "runs" / "first" / "serving").version


def test_a_score_over_http_is_the_same_number_as_in_process(served):
    ids = [f"r{number}" for number in range(100)] + ["stranger"]
    with endpoint(served) as (client, told):
        until(lambda: client.is_ready("first"), "all parties")
        found = client.predict("first", ids)
        one_by_one = [client.predict("first", [each]).score[0] for each in ids[:5]]
        assert any("can be asked" in event.text for event in told)
    local = fdml.predict(served.folder / "federation.toml", ids)
    assert found.score[:-1].tolist() == local.column("score").to_pylist()[:-1]
    assert found.probability[:-1].tolist() == local.column("probability").to_pylist()[:-1]
    assert found.prediction[:-1].tolist() == local.column("prediction").to_pylist()[:-1]
    assert np.isnan(found.score[-1])
    assert one_by_one == found.score[:5].tolist()


def test_a_model_goes_by_its_run_the_federation_and_the_beginning_of_its_version(served):
    version = version_of(served)
    with endpoint(served) as (client, _):
        until(lambda: client.is_ready("first"), "all parties")
        for name in ("first", "small"):
            for part in (None, version, version[:8]):
                assert client.predict(name, ["r1"], version=part).version == version
            assert client.model(name)["versions"] == [version]
        for name, part in (("second", None), ("first", "ffff"), ("first", version[:3]), ("small", "zzzz")):
            with pytest.raises(RequestRefused) as found:
                client.predict(name, ["r1"], version=part)
            assert found.value.status == 404
        with pytest.raises(RequestRefused, match="there are: first, small"):
            client.model("none")


def test_a_party_that_stops_is_named_and_used_again_when_it_is_back(served):
    with endpoint(served) as (client, _):
        until(lambda: client.is_ready("first"), "all parties")
        served.down("cid")
        until(lambda: not client.is_ready("first"), "cid to be missed")
        with pytest.raises(RequestRefused, match="cid: it is not standing by") as found:
            client.predict("first", ["r1"])
        assert found.value.status == 503
        served.up("cid")
        until(lambda: client.is_ready("first"), "cid again")
        assert client.predict("first", ["r1"]).answered.tolist() == ["ann,bob,cid"]


def test_new_rows_of_the_asker_can_be_asked_for_while_it_runs(served):
    file = served.folder / "ann" / "data.csv"
    before = file.read_text()
    with endpoint(served) as (client, _):
        until(lambda: client.is_ready("first"), "all parties")
        assert "ann: unknown id" in client.predict("first", ["new-row"]).why[0]
        file.write_text(f"{before}new-row,0.1,0.2,yes\n")
        try:
            until(lambda: "ann" in client.predict("first", ["new-row"]).answered[0], "the new row")
        finally:
            file.write_text(before)


def test_the_promoted_model_is_the_federations(served):
    with endpoint(served) as (client, _):
        until(lambda: client.is_ready("small"), "all parties")
        Promotions(served.folder / "ann").promote(version_of(served), "first", "person", "")
        assert client.model("small")["run"] == "first"


def test_a_party_that_may_not_ask_serves_nothing_and_says_why(served):
    with endpoint(served, "bob") as (client, told):
        with pytest.raises(RequestRefused, match="there are: none yet"):
            client.predict("first", ["r1"])
        assert any("may not ask" in event.text for event in told)


def test_the_server_may_be_away_when_the_endpoint_starts_or_while_it_runs(tmp_path):
    with StandingModels(tmp_path) as served:
        served.train()
        served.up("bob", "cid")
        with endpoint(served, seconds=2.0) as (client, _):
            until(lambda: client.is_ready("first"), "all parties")
            served.stop()
            until(lambda: not client.is_ready("first"), "the server to be missed")
            with pytest.raises(RequestRefused, match="server") as found:
                client.predict("first", ["r1"])
            assert found.value.status in (503, 504)
            served.start()
            until(lambda: client.is_ready("first"), "the server again")
            assert client.predict("first", ["r1"]).answered.tolist() == ["ann,bob,cid"]


def test_a_port_that_is_taken_is_told(served):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"cannot listen at '127\.0\.0\.1', port {port}"):
            serve_endpoint(served.party("ann"), Access(), port=port, plain=True, server=served.address)


def test_the_log_has_no_ids_and_no_tokens(served, tmp_path):
    token = tmp_path / "token"
    token.write_text("0123456789abcdef-secret")
    token.chmod(0o600)
    with endpoint(served, access=Access(token_file=token)) as (client, told):
        client._headers["Authorization"] = "Bearer 0123456789abcdef-secret"
        until(lambda: client.is_ready("first"), "all parties")
        client.predict("first", ["r1", "person-4711"])
        for wrong in ({"person-4711": ["r1"]}, {"id": [""]}, {"id": []}):
            with pytest.raises(RequestRefused):
                client.predict("first", wrong)
        client._headers["Authorization"] = "Bearer another-secret-token"
        with pytest.raises(RequestRefused) as found:
            client.predict("first", ["r1"])
        assert found.value.status == 403
        said = "\n".join(str(event) for event in told)
    assert "can be asked" in said
    assert "4711" not in said
    assert "secret" not in said


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_answers_do_not_wait_for_more_to_send(host):
    with _listening(host, 0) as listening, socket.create_connection(listening.getsockname()[:2]) as _:
        line, _ = listening.accept()
        with line:
            assert line.proto == socket.IPPROTO_TCP, "asyncio switches Nagle's algorithm off only then"
