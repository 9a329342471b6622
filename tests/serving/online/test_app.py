"""The endpoint over a real socket: answers, every status with its message, and nothing hidden."""

import gzip
import json
import socket
import struct
import time

import numpy as np
import pytest

from fdml.errors import PrivacyBudgetSpent, ServerUnreachable
from fdml.models.calibration import Calibration
from fdml.serving.online import app
from fdml.settings.serving import ServingSettings
from tests.serving.online.served import INFER, Columns, OpenEndpoint, asked, ids_input, output
from tests.serving.published import IDS, VERSION, publication_of, run_of, values_of

TOKEN = b"0123456789abcdef0123"


@pytest.fixture(scope="module")
def served():
    with OpenEndpoint() as found:
        yield found


@pytest.fixture(scope="module")
def guarded():
    with OpenEndpoint(token=TOKEN) as found:
        yield found


def test_a_score_is_the_sum_of_all_parts(served):
    status, content = served.infer(asked("r7", "r3", "r3", id="abc"))
    assert status == 200
    assert output(content, "score") == served.total([7, 3, 3])[:, 0].tolist()
    assert output(content, "answered") == ["ann,bob,cid"] * 3
    assert output(content, "missing") == output(content, "why") == [""] * 3
    assert set(output(content, "prediction")) <= {"no", "yes"}
    assert (content["model_name"], content["model_version"], content["id"]) == ("first", VERSION, "abc")
    assert content["parameters"] == {"parties_missing": "", "rows_without_score": 0}


def test_an_unknown_id_has_a_row_that_says_so(served):
    status, content = served.infer(asked("r1", "stranger"))
    assert status == 200
    assert output(content, "score") == [served.total([1])[0, 0], None]
    assert output(content, "probability")[1] is None
    assert output(content, "prediction")[1] == ""
    assert output(content, "why")[1] == "ann: unknown id; bob: unknown id; cid: unknown id"
    assert content["parameters"] == {"parties_missing": "ann,bob,cid", "rows_without_score": 1}


def test_who_is_missing_is_told_where_only_a_score_is_wanted(served):
    _, content = served.infer(asked("stranger", outputs=[{"name": "score"}]))
    assert [each["name"] for each in content["outputs"]] == ["score", "missing"]
    _, content = served.infer(asked("r1", outputs=[{"name": "score"}]))
    assert [each["name"] for each in content["outputs"]] == ["score"]


def test_numbers_are_ids_too_and_the_only_column_may_be_called_id():
    with OpenEndpoint(ids=["7", "8"]) as served:
        wanted = served.total([1, 0])[:, 0].tolist()
        for datatype, data in (("INT64", [8, 7]), ("UINT8", [8, 7]), ("BYTES", ["8", "7"])):
            for name in ("user", "id"):
                given = {"name": name, "datatype": datatype, "shape": [2], "data": data}
                assert output(served.infer({"inputs": [given]})[1], "score") == wanted


def test_several_columns_of_ids_are_inputs_of_their_own():
    with OpenEndpoint(ids=["a|1", "b|2"], columns=Columns("user", "app")) as served:
        inputs = [ids_input("b", "a"), {"name": "app", "datatype": "INT32", "shape": [2], "data": [2, 1]}]
        status, content = served.infer({"inputs": inputs})
        assert status == 200
        assert output(content, "score") == served.total([1, 0])[:, 0].tolist()
        status, content = served.infer({"inputs": inputs[:1]})
        assert (status, content["error"]) == (400, "the request has no input 'app'; its inputs are user, app")
        assert served.infer({"inputs": [ids_input("a", name="id")]})[0] == 400


@pytest.mark.parametrize("task", ["multiclass", "regression"])
def test_other_tasks_have_their_own_outputs(task):
    with OpenEndpoint(run=run_of(task=task)) as served:
        status, content = served.infer(asked("r1", "r2", "stranger"))
        assert status == 200
        listed = {each["name"]: (each["datatype"], each["shape"]) for each in content["outputs"]}
        described = json.loads(served.call("GET", "/v2/models/first")[2])["outputs"]
        assert {each["name"]: (each["datatype"], each["shape"]) for each in described} == {
            name: (datatype, [-1, *shape[1:]]) for name, (datatype, shape) in listed.items()
        }
        assert listed["score"][1] == ([3, 3] if task == "multiclass" else [3])
        assert ("probability" in listed) == (task == "multiclass")
        assert output(content, "prediction")[-1] in ("", None)


def test_health_metadata_and_readiness(served):
    def get(path):
        status, _, body = served.call("GET", path)
        return status, json.loads(body)

    assert get("/v2/health/live") == (200, {"live": True})
    assert get("/v2/health/ready") == (200, {"ready": True})
    assert get("/v2")[1]["extensions"] == ["binary_tensor_data"]
    assert get("/v2/models/first/ready") == (200, {"name": "first", "ready": True})
    for path in (
        "/v2/models/first",
        f"/v2/models/first/versions/{VERSION}",
        f"/v2/models/first/versions/{VERSION[:8]}",
    ):
        status, content = get(path)
        assert status == 200
        assert content["versions"] == [VERSION]
        assert content["inputs"] == [{"name": "user", "datatype": "BYTES", "shape": [-1]}]
    assert output(served.infer(asked("r1"), f"/v2/models/first/versions/{VERSION[:8]}/infer")[1], "answered")


def test_the_page_and_the_description_load_nothing_from_elsewhere(served):
    status, headers, page = served.call("GET", "/docs")
    assert status == 200
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert b"<script" not in page
    assert b"http" not in page.replace(b"/v2/", b"")
    status, _, described = served.call("GET", "/openapi.json")
    assert status == 200
    assert "/v2/models/{name}/infer" in json.loads(described)["paths"]


# Refusals


def test_an_empty_request_is_400(served):
    for body in (b"", b"{}", {"inputs": []}, {"inputs": [ids_input()]}):
        status, content = served.infer(body)
        assert status == 400
        assert content["error"]


def test_a_wrong_type_is_400_with_the_row_and_without_the_value(served):
    status, content = served.infer({"inputs": [ids_input("r1", 4711)]})
    assert status == 400
    assert content["error"] == "row 2 of input 'user' is a whole number, not of type BYTES"
    status, content = served.infer({"inputs": [{"name": "user", "datatype": "FP32", "shape": [1], "data": [47.11]}]})
    assert status == 400
    assert "47" not in content["error"]
    assert served.infer(asked("r1", ""))[0] == 400


def test_an_input_or_output_that_there_is_none_of_is_400_by_name(served):
    assert served.infer({"inputs": [ids_input("r1"), ids_input("x", name="age")]}) == (
        400,
        {"error": "input 'age' is none of user"},
    )
    status, content = served.infer(asked("r1", outputs=[{"name": "scores"}]))
    assert status == 400
    assert "no output 'scores'; there are score, probability, prediction, answered" in content["error"]


def test_an_unknown_model_version_path_or_method_is_404_or_405_by_name(served):
    assert "'none'" in served.infer(asked("r1"), "/v2/models/none/infer")[1]["error"]
    for path in ("/v2/models/none/infer", "/v2/models/first/versions/ffff/infer"):
        assert served.infer(asked("r1"), path)[0] == 404
    status, _, body = served.call("GET", "/v2/nothing")
    assert (status, "'/v2/nothing'" in json.loads(body)["error"]) == (404, True)
    status, headers, body = served.call("GET", INFER)
    assert (status, headers["Allow"], "another method" in json.loads(body)["error"]) == (405, "POST", True)


def test_a_body_of_10_mb_is_413_whether_its_length_is_said_or_not(served):
    body = b" " * 10_000_000
    status, content = served.infer(body)
    assert status == 413
    assert content["error"].startswith("the body has 10000000 bytes")

    def pieces():
        yield from (body[:1_000_000] for _ in range(10))

    status, _, answer = served.call("POST", INFER, pieces())
    assert status == 413
    assert b"over 8388608 bytes" in answer


def test_too_many_ids_are_413(served):
    status, content = served.infer({"inputs": [ids_input(shape=[65_537])]})
    assert status == 413
    assert content["error"].startswith("input 'user' has 65537 rows; 65536 is the most")


def test_compressed_bodies_and_other_types_are_415(served):
    body = gzip.compress(json.dumps(asked("r1")).encode())
    assert served.infer(body, Content_Encoding="gzip")[0] == 415
    status, _, answer = served.call("POST", INFER, b"a=1", {"Content-Type": "application/x-www-form-urlencoded"})
    assert status == 415
    assert b"x-www-form-urlencoded" in answer


def test_a_web_page_may_not_ask(served):
    assert served.infer(asked("r1"), Origin="https://evil.example")[0] == 403
    assert served.call("GET", "/v2/models/first", headers={"Origin": "null"})[0] == 403


def test_a_page_whose_name_leads_to_this_machine_learns_nothing(served, guarded):
    """After such a page has changed its address to 127.0.0.1, its requests are of its own origin and have no Origin."""
    for path in ("/v2/models/first", "/v2/models/first/ready", "/v2"):
        status, _, body = served.call("GET", path, headers={"Host": "evil.example:8080"})
        assert status == 403
        assert b"'evil.example:8080'" in body
    assert served.call("POST", INFER, b"{}", {"Host": "evil.example"})[0] == 403
    for name in ("localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080", "[::1]"):
        assert served.call("GET", "/v2", headers={"Host": name})[0] == 200
    token = {"Authorization": f"Bearer {TOKEN.decode()}", "Host": "scores.example"}
    assert guarded.call("GET", "/v2", headers=token)[0] == 200, "who has the token may call it by any name"


def test_a_body_that_does_not_come_is_408(served, monkeypatch):
    monkeypatch.setattr(app, "_BODY_SECONDS", 0.2)
    monkeypatch.setattr(app, "_PASSING_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", served.port)) as line:
        line.settimeout(20)
        line.sendall(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
        assert b" 408 " in line.recv(1000)


def test_a_caller_that_leaves_in_between_harms_nobody(served):
    for body in (b"{", b'{"inputs": ['):
        with socket.create_connection(("127.0.0.1", served.port)) as line:
            line.sendall(f"POST {INFER} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n".encode() + body)
    assert served.infer(asked("r1"))[0] == 200
    assert served.errors == []


def test_no_token_is_401_and_a_wrong_one_403_but_health_is_open(guarded):
    status, headers, body = guarded.call("POST", INFER, json.dumps(asked("r1")), {"Content-Type": "application/json"})
    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert b"no token" in body
    for path in ("/v2", "/v2/models/first", "/v2/models/none", "/v2/models/first/ready"):
        assert guarded.call("GET", path)[0] == 401
        assert guarded.call("GET", path, headers={"Authorization": "Bearer wrong-token-wrong"})[0] == 403
    for path in ("/v2/health/live", "/v2/health/ready", "/docs", "/openapi.json"):
        assert guarded.call("GET", path)[0] == 200
    assert guarded.infer(asked("r1"), Authorization=f"Bearer {TOKEN.decode()}")[0] == 200


def test_a_token_is_asked_for_before_a_body_is_looked_at(guarded):
    assert guarded.call("POST", INFER, b" " * 10_000_000)[0] == 401


def test_a_spent_budget_is_429_and_says_whose():
    class Spent:
        def count(self, publication):
            raise PrivacyBudgetSpent("over")

    with OpenEndpoint(releases=Spent()) as served:
        status, content = served.infer(asked("r1"))
        assert status == 429
        assert content["error"].startswith("bob: its privacy budget is spent; its operator")


def test_more_rows_than_a_party_tells_in_an_hour_are_429_and_the_rule_is_named():
    with OpenEndpoint(rules={"rows_per_hour": 2}) as served:
        assert served.infer(asked("r1", "r2"))[0] == 200
        status, content = served.infer(asked("r3"))
        assert status == 429
        assert "bob: its policy answers one asker for at most 2 rows an hour" in content["error"]


def test_an_asker_that_a_party_does_not_let_ask_is_403():
    with OpenEndpoint(rules={"askers": ("eve",)}) as served:
        status, content = served.infer(asked("r1"))
        assert (status, "bob: its policy does not answer ann" in content["error"]) == (403, True)


def test_a_mix_of_versions_is_409():
    with OpenEndpoint() as served:
        other = publication_of("cid", IDS, values_of()["cid"], version="f" * 32)
        object.__setattr__(served.publications["cid"], "facts", other.facts)
        status, content = served.infer(asked("r1"))
        assert status == 409
        assert "cid: " in content["error"]
        assert "version" in content["error"]


def test_a_server_that_is_away_is_503():
    with OpenEndpoint() as served:
        served.line.error = ServerUnreachable("the server at 127.0.0.1:7443 does not answer")
        status, content = served.infer(asked("r1"))
        assert (status, content["error"]) == (503, "the server at 127.0.0.1:7443 does not answer")


def test_an_error_that_nobody_foresaw_is_500_without_its_words():
    with OpenEndpoint() as served:
        served.line.error = ZeroDivisionError("user-4711")
        status, content = served.infer(asked("r1"))
        assert status == 500
        assert "4711" not in content["error"]
        assert ZeroDivisionError in {type(error) for error in served.errors}
        served.line.error = None
        assert served.infer(asked("r1"))[0] == 200


def test_errors_hold_at_most_a_little_of_a_callers_text(served):
    long = "x" * 100_000
    for content in ({"inputs": [ids_input("a", name=long)]}, asked("r1", outputs=[{"name": long}])):
        status, found = served.infer(content)
        assert status == 400
        assert len(found["error"]) < 400
    assert served.infer(asked("r1"), f"/v2/models/{long[:5000]}/infer")[0] == 404


# Somebody missing


def wait_for(true, seconds=5.0):
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_party_that_is_away_is_503_by_name_and_used_again_within_5_seconds():
    with OpenEndpoint() as served:
        served.line.away.add("cid")
        for _ in range(5):
            status, content = served.infer(asked("r1"))
            assert status == 503
            assert "cid: it is not standing by" in content["error"]
            assert "bob" not in content["error"]
        status, _, body = served.call("GET", "/v2/models/first/ready")
        assert (status, json.loads(body)["parameters"]["parties_missing"]) == (503, "cid")
        assert served.call("GET", "/v2/health/ready")[0] == 503
        served.line.away.clear()
        wait_for(lambda: served.infer(asked("r1"))[0] == 200)
        assert served.call("GET", "/v2/health/ready")[0] == 200


@pytest.mark.slow
def test_a_slow_party_is_504_within_the_deadline_and_then_told_at_once():
    with OpenEndpoint(seconds=0.3) as served:
        served.line.slow["bob"] = 2.0
        began = time.monotonic()
        status, content = served.infer(asked("r1"))
        assert status == 504
        assert content["error"].startswith("bob: no answer within 0.3 s")
        assert time.monotonic() - began < 2.0
        wait_for(lambda: "tried again" in served.infer(asked("r1"))[1]["error"])
        assert served.infer(asked("r1"))[0] == 504, "nobody waits for a party that is known to be late"
        served.line.slow.clear()
        wait_for(lambda: served.infer(asked("r1"))[0] == 200)


def test_a_party_that_flaps_never_makes_a_score_without_it():
    with OpenEndpoint(seconds=0.3) as served:
        right = served.total([1])[0, 0]
        for turn in range(8):
            (served.line.away.add if turn % 2 else served.line.away.discard)("cid")
            for _ in range(5):
                status, content = served.infer(asked("r1"))
                assert status in (200, 503)
                assert status == 503 or output(content, "score") == [right]
            time.sleep(0.1)
        served.line.away.clear()
        wait_for(lambda: served.infer(asked("r1"))[0] == 200)


def test_a_callers_own_deadline_is_kept():
    with OpenEndpoint(seconds=5.0) as served:
        served.line.slow["bob"] = 1.0
        began = time.monotonic()
        status, content = served.infer(asked("r1", parameters={"timeout": 200_000}))
        assert status == 504
        assert "bob" in content["error"]
        assert time.monotonic() - began < 1.0


def test_under_calibrated_the_others_answer_and_the_score_says_who_is_missing():
    run = run_of(serving=ServingSettings(absent="calibrated"))
    with OpenEndpoint(run=run, seconds=1.0) as served:
        served.asker.calibration_without = lambda missing: Calibration(2.0, np.zeros(1))
        served.line.away.add("cid")
        without = 2.0 * (served.values["ann"][1, 0] + served.values["bob"][1, 0])
        for _ in range(6):
            status, content = served.infer(asked("r1"))
            assert status == 200
            assert output(content, "score") == [without]
            assert output(content, "missing") == ["cid"]
            assert content["parameters"]["parties_missing"] == "cid"
        assert ("bob",) in served.line.asked, "a party that is away is not asked"
        assert served.call("GET", "/v2/health/ready")[0] == 200
        served.line.away.clear()
        wait_for(lambda: output(served.infer(asked("r1"))[1], "missing") == [""])
        served.line.away |= {"bob", "cid"}
        served.asker.calibration_without = lambda missing: None
        status, content = served.infer(asked("r1"))
        assert (status, "bob: " in content["error"]) == (503, True)


def test_rows_of_which_the_asker_is_sure_alone_are_not_asked_for_and_say_so():
    run = run_of(serving=ServingSettings(ask="unsure", band=(0.4, 0.6)))
    with OpenEndpoint(run=run) as served:
        served.asker.calibration_without = lambda missing: Calibration(50.0, np.zeros(1))
        questions = len(served.line.asked)
        served.line.away.add("cid")
        for _ in range(4):
            status, content = served.infer(asked("r1", "r2"))
            assert status == 200
            assert output(content, "asked") == [False, False]
            assert output(content, "answered") == ["ann", "ann"]
            assert output(content, "missing") == ["", ""]
            assert content["parameters"]["parties_missing"] == ""
        assert len(served.line.asked) - questions <= 2, "probes alone"
        assert "tried again" not in str(served.model.missing()), "nothing is learned of a party that is not asked"
        status, content = served.infer(asked("stranger"))
        assert (status, "cid" in content["error"]) == (503, True)
        described = json.loads(served.call("GET", "/v2/models/first")[2])["outputs"]
        assert {"name": "asked", "datatype": "BOOL", "shape": [-1]} in described


def test_binary_tensors_in_and_out(served):
    raw = b"".join(struct.pack("<I", 2) + each for each in (b"r1", b"r2"))
    head = json.dumps(
        {
            "inputs": [
                {"name": "user", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": len(raw)}}
            ],
            "outputs": [{"name": "score", "parameters": {"binary_data": True}}, {"name": "why"}],
        }
    ).encode()
    headers = {"Inference-Header-Content-Length": str(len(head)), "Content-Type": "application/octet-stream"}
    status, found, body = served.call("POST", INFER, head + raw, headers)
    assert status == 200
    length = int(found["Inference-Header-Content-Length"])
    assert output(json.loads(body[:length].decode().replace('"parameters"', '"data"')), "why") == ["", ""]
    assert np.frombuffer(body[length:], "<f8").tolist() == served.total([1, 2])[:, 0].tolist()
