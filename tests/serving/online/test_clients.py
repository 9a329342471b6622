"""Clients that were not written for fdml, and fdml's own, over real sockets and TLS."""

import ssl
import struct
import threading

import numpy as np
import pytest
import tritonclient.http as triton

from fdml.errors import ExchangeError, RequestRefused, SettingsError
from fdml.federation.certificates import Authority
from fdml.serving.client import EndpointClient
from fdml.serving.online.access import Access
from tests.serving.online.served import OpenEndpoint, output
from tests.serving.published import IDS, VERSION, run_of

TOKEN = b"0123456789abcdef0123"


@pytest.fixture(scope="module")
def served():
    with OpenEndpoint() as found:
        yield found


@pytest.fixture
def client(served):
    with served.client() as found:
        yield found


# tritonclient


@pytest.fixture
def unmodified(served):
    found = triton.InferenceServerClient(f"127.0.0.1:{served.port}")
    yield found
    found.close()


def triton_input(*ids, name="user"):
    found = triton.InferInput(name, [len(ids)], "BYTES")
    found.set_data_from_numpy(np.array([each.encode() for each in ids], object))
    return found


def test_tritonclient_with_its_defaults_gets_right_answers(served, unmodified):
    assert unmodified.is_server_live()
    assert unmodified.is_server_ready()
    assert unmodified.is_model_ready("first")
    assert unmodified.is_model_ready("first", VERSION[:12])
    assert unmodified.get_server_metadata()["extensions"] == ["binary_tensor_data"]
    assert unmodified.get_model_metadata("first")["inputs"][0]["name"] == "user"
    result = unmodified.infer("first", [triton_input(*IDS)])
    assert result.as_numpy("score").tolist() == served.total(slice(0, 40))[:, 0].tolist()
    assert set(result.as_numpy("answered").tolist()) == {b"ann,bob,cid"}
    assert set(result.as_numpy("prediction").tolist()) <= {b"no", b"yes"}
    assert result.get_response()["parameters"]["parties_missing"] == ""


def test_tritonclient_sees_who_is_missing(unmodified):
    result = unmodified.infer("first", [triton_input("r1", "stranger")])
    assert np.isnan(result.as_numpy("score")).tolist() == [False, True]
    assert result.as_numpy("missing").tolist() == [b"", b"ann,bob,cid"]


def test_tritonclient_with_json_wanted_outputs_version_and_deadline(served, unmodified):
    asked = triton.InferInput("user", [2], "BYTES")
    asked.set_data_from_numpy(np.array(["r1", "r2"], object), binary_data=False)
    outputs = [triton.InferRequestedOutput("score", binary_data=False), triton.InferRequestedOutput("why")]
    result = unmodified.infer(
        "first", [asked], outputs=outputs, model_version=VERSION, request_id="7", timeout=4_000_000
    )
    assert result.as_numpy("score").tolist() == served.total([1, 2])[:, 0].tolist()
    assert result.as_numpy("why").tolist() == [b"", b""]
    assert result.get_response()["id"] == "7"


def test_tritonclient_raises_what_the_endpoint_says(unmodified):
    with pytest.raises(triton.InferenceServerException, match="there is no model 'none'"):
        unmodified.infer("none", [triton_input("r1")])
    with pytest.raises(triton.InferenceServerException, match="no input 'user'"):
        unmodified.infer("first", [triton_input("r1", name="usr")])


def test_tritonclient_sends_a_token_as_a_header():
    with OpenEndpoint(token=TOKEN) as served:
        found = triton.InferenceServerClient(f"127.0.0.1:{served.port}")
        with pytest.raises(triton.InferenceServerException, match="no token"):
            found.infer("first", [triton_input("r1")])
        headers = {"Authorization": f"Bearer {TOKEN.decode()}"}
        assert found.infer("first", [triton_input("r1")], headers=headers).as_numpy("answered").tolist() == [
            b"ann,bob,cid"
        ]
        found.close()


# KServe: the bodies that InferenceRESTClient of kserve 0.21 sends


def test_the_json_that_kserve_sends_gets_right_answers(served):
    given = {
        "id": "4be4e82f-5500-420a-a5c5-ac86841e271b",
        "model_name": "first",
        "inputs": [{"name": "user", "shape": [2], "datatype": "BYTES", "data": ["r1", "r2"]}],
    }
    status, content = served.infer(given)
    assert status == 200
    assert output(content, "score") == served.total([1, 2])[:, 0].tolist()
    assert content["id"] == given["id"]


def test_the_binary_tensors_that_kserve_sends_get_right_answers(served):
    raw = b"".join(struct.pack("<I", 2) + each for each in (b"r1", b"r2"))
    head = (
        b'{"id":"4be4e82f","model_name":"first","inputs":[{"name":"user","shape":[2],"datatype":"BYTES",'
        b'"parameters":{"binary_data_size":12}}],"outputs":[{"name":"score","parameters":{"binary_data":true}}],'
        b'"parameters":{"binary_data_output":true}}'
    )
    headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
    status, found, body = served.call("POST", "/v2/models/first/infer", head + raw, headers)
    assert status == 200
    length = int(found["inference-header-content-length"])
    assert np.frombuffer(body[length:], "<f8").tolist() == served.total([1, 2])[:, 0].tolist()


# fdml's own


def test_the_client_gives_arrays(served, client):
    found = client.predict("first", ["r1", "stranger", "r2"])
    assert found.score[[0, 2]].tolist() == served.total([1, 2])[:, 0].tolist()
    assert np.isnan(found.score[1])
    assert np.isnan(found.probability[1])
    assert found.prediction[1] == ""
    assert found.answered.tolist() == ["ann,bob,cid", "", "ann,bob,cid"]
    assert found.missing.tolist() == ["", "ann,bob,cid", ""]
    assert "unknown id" in found.why[1]
    assert (found.version, len(found)) == (VERSION, 3)


def test_the_client_knows_models_versions_and_readiness(client):
    assert client.is_ready("first")
    assert client.model("first", VERSION[:6])["versions"] == [VERSION]
    assert client.predict("first", ["r1"], version=VERSION, deadline=2.0).answered.tolist() == ["ann,bob,cid"]
    with pytest.raises(RequestRefused, match="no model 'a b'") as found:
        client.model("a b")
    assert found.value.status == 404
    with pytest.raises(RequestRefused, match="no model"):
        client.is_ready("none")


def test_the_client_says_that_a_model_is_not_ready():
    with OpenEndpoint() as served, served.client() as client:
        served.line.away.add("bob")
        with pytest.raises(RequestRefused, match="bob: it is not standing by") as found:
            client.predict("first", ["r1"])
        assert found.value.status == 503
        assert not client.is_ready("first")


def test_the_client_takes_several_columns_by_name(client):
    assert len(client.predict("first", {"user": ["r1", "r2"]})) == 2
    with pytest.raises(RequestRefused, match="'app' is none of user"):
        client.predict("first", {"user": ["r1"], "app": [7]})


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_the_client_reads_other_tasks(task):
    with OpenEndpoint(run=run_of(task=task)) as served, served.client() as client:
        found = client.predict("first", ["r1", "stranger"])
        assert found.score.shape == ((2, 3) if task == "multiclass" else (2,))
        assert (found.probability is None) == (task == "regression")


def test_the_client_opens_a_connection_again_that_was_idle_too_long(served, client):
    client.predict("first", ["r1"])
    client._line.sock.close()
    assert len(client.predict("first", ["r1"])) == 1


def test_the_client_names_an_endpoint_that_is_not_there():
    with (
        EndpointClient("http://127.0.0.1:1", seconds=2.0) as client,
        pytest.raises(ExchangeError, match=r"127\.0\.0\.1:1"),
    ):
        client.predict("first", ["r1"])


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://a", "http://", "http://a/v2"])
def test_the_client_wants_an_address(url):
    with pytest.raises(SettingsError, match="write it like"):
        EndpointClient(url)


def test_many_callers_at_once_each_get_their_own_rows(served):
    found = {}

    def call(number):
        with served.client() as client:
            for turn in range(10):
                rows = [(number * 7 + turn) % 40, number % 40]
                scores = client.predict("first", [IDS[row] for row in rows]).score.tolist()
                assert scores == served.total(rows)[:, 0].tolist()
        found[number] = True

    threads = [threading.Thread(target=call, args=(number,)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 12


# TLS


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Certificates of an endpoint and of a caller, and of a caller of another authority."""
    folder = tmp_path_factory.mktemp("tls")
    own, foreign = Authority("own"), Authority("foreign")
    issued = {
        "endpoint": own.issue("server", "server"),
        "caller": own.issue("party", "caller"),
        "stranger": foreign.issue("party", "caller"),
    }
    for name, each in issued.items():
        for ending, raw in (("pem", each.certificate), ("key", each.key), ("ca", each.authority)):
            (folder / f"{name}.{ending}").write_bytes(raw)
    return folder


def caller_context(files, name=None):
    context = ssl.create_default_context(cafile=files / "endpoint.ca")
    context.check_hostname = False  # the certificate is one for any machine
    if name is not None:
        context.load_cert_chain(files / f"{name}.pem", files / f"{name}.key")
    return context


def access(files, **more):
    return Access(certificate=files / "endpoint.pem", key=files / "endpoint.key", **more)


def test_over_tls_with_a_token(files):
    with OpenEndpoint(token=TOKEN, tls=access(files).tls()) as served:
        with served.client(tls=caller_context(files)) as client:
            assert len(client.predict("first", ["r1"])) == 1
        bare = served.client(tls=caller_context(files), token=None)
        with bare as client, pytest.raises(RequestRefused, match="no token"):
            client.predict("first", ["r1"])


def test_mutual_tls_lets_nobody_in_without_a_certificate_of_the_authority(files):
    with OpenEndpoint(tls=access(files, clients=files / "endpoint.ca").tls()) as served:
        with served.client(tls=caller_context(files, "caller")) as client:
            assert len(client.predict("first", ["r1"])) == 1
        for name in (None, "stranger"):
            with served.client(tls=caller_context(files, name)) as client, pytest.raises(ExchangeError):
                client.predict("first", ["r1"])


def test_tls_older_than_1_2_is_refused(files):
    context = access(files).tls()
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
