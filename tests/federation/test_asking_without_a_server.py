"""Prediction among parties that stand by without a server: the same numbers, somebody missing, who may use a relay."""

import contextlib
import secrets
import threading

import pyarrow as pa
import pytest

import fdml
from fdml.errors import MessageRefused, ServerUnreachable
from fdml.federation.endpoint import serve_endpoint
from fdml.federation.predicting import asking
from fdml.protocol.prediction_messages import NUMBER_BYTES, Question
from fdml.serving.asking import AskedRows
from fdml.serving.client import EndpointClient
from fdml.serving.online.access import Access
from fdml.transport.grpc_relay import GrpcQuestions
from tests.federation.standing_mesh import StandingMesh
from tests.transport.served import SECONDS, until

pytestmark = pytest.mark.slow
IDS = ["r1", "r2", "r3", "stranger"]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory):
    """Bob accepts no connections."""
    with StandingMesh(tmp_path_factory.mktemp("mesh") / "run", hidden="bob") as found:
        found.train()
        found.up(*found.parties)
        until(lambda: "stands by" in " ".join(found.told("ann")), "ann")
        all_answer(found)
        yield found


def scores(mesh, ids=IDS):
    with asking(mesh.party("ann"), plain=True) as asker:
        return asker.ask(AskedRows(pa.array(ids, pa.large_string())))


def all_answer(mesh):
    until(lambda: scores(mesh, ids=["r1"]).has_score.all(), "answers of all parties")


def local(mesh):
    return fdml.predict(mesh.folder / "federation.toml", IDS).column("score").to_pylist()


def test_a_score_is_the_same_number_as_in_process(mesh):
    answers = scores(mesh)
    assert [None if value != value else value for value in answers.score[:, 0].tolist()] == local(mesh)
    assert answers.has_score.tolist() == [True, True, True, False]


def test_a_party_that_stops_is_named_and_used_again_when_it_is_back(mesh):
    mesh.down("cid")
    until(lambda: "cid" in scores(mesh, ids=["r1"]).absent, "cid to be missed")
    answers = scores(mesh, ids=["r1"])
    assert answers.absent["cid"] == "it is not standing by (`fdml up`)"
    assert not answers.has_score.any()
    mesh.up("cid")
    all_answer(mesh)


def test_a_third_party_can_ask_nobody_over_another_party_s_session(mesh):
    """So nobody learns whom another party asks: each question goes over the asker's own session."""
    at_ann = mesh.home("cid").mesh.endpoint("ann")
    question = Question(secrets.token_bytes(NUMBER_BYTES), "first", "bob", b"sealed")
    with (
        GrpcQuestions(at_ann) as line,
        pytest.raises(MessageRefused, match="'cid' asks at 'ann', which passes on its own questions alone"),
    ):
        line.exchange([question], SECONDS)
    all_answer(mesh)


def test_an_asker_that_does_not_stand_by_is_told_what_to_start(mesh):
    mesh.down("ann")
    with pytest.raises(ServerUnreachable, match=r"no party 'ann' at 127\.0\.0\.1:\d+.*`fdml join` or `fdml up`"):
        scores(mesh)
    mesh.up("ann")
    until(lambda: "stands by" in " ".join(mesh.told("ann")), "ann")
    all_answer(mesh)


def test_an_endpoint_gives_the_same_numbers(mesh):
    with endpoint(mesh) as client:
        found = client.predict("first", IDS)
        assert [None if value != value else value for value in found.score.tolist()] == local(mesh)
        assert found.missing[-1] == "ann,bob,cid"


@contextlib.contextmanager
def endpoint(mesh):
    """An endpoint of ann in a thread."""
    ready, found = threading.Event(), []

    def started(port, stop):
        found.extend((port, stop))
        ready.set()

    def live():
        serve_endpoint(mesh.party("ann"), Access(), port=0, plain=True, on_start=started)

    thread = threading.Thread(target=live, daemon=True)
    thread.start()
    assert ready.wait(SECONDS)
    try:
        with EndpointClient(f"http://127.0.0.1:{found[0]}") as client:
            yield client
    finally:
        found[1]()
        thread.join(SECONDS)
        assert not thread.is_alive()
