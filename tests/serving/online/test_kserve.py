"""KServe's own client, unmodified. It needs other versions than fdml's tests, so it has an environment: `make kserve`."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.serving.online.served import OpenEndpoint

ROOT = Path(__file__).parents[3]
PYTHON = Path(os.environ.get("FDML_KSERVE_PYTHON", ROOT / ".venv" / "kserve" / "bin" / "python"))
TOKEN = b"0123456789abcdef0123"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON.exists(), reason="KServe's client has an environment of its own: `make kserve`"),
]


def called(served, *ids, model="first", binary=False, headers=None):
    given = {"url": f"http://127.0.0.1:{served.port}", "model": model, "ids": ids, "binary": binary}
    caller = Path(__file__).with_name("kserve_caller.py")
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [PYTHON, "-W", "ignore", caller],
        input=json.dumps({**given, "headers": headers or {}}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=bare,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("binary", [False, True])
def test_kserves_client_gets_right_answers_and_sees_who_is_missing(binary):
    with OpenEndpoint() as served:
        found = called(served, "r1", "stranger", "r2", binary=binary)
        assert found["health"] == [True, True, True]
        score = np.array(found["outputs"]["score"], float)
        assert score[[0, 2]].tolist() == served.total([1, 2])[:, 0].tolist()
        assert np.isnan(score[1])
        assert found["outputs"]["missing"] == ["", "ann,bob,cid", ""]
        assert found["parameters"]["parties_missing"] == "ann,bob,cid"


def test_kserves_client_raises_what_the_endpoint_says_and_sends_a_token():
    with OpenEndpoint(token=TOKEN) as served:
        headers = {"Authorization": f"Bearer {TOKEN.decode()}"}
        assert "score" in called(served, "r1", headers=headers)["outputs"]
        wrong = called(served, "r1", headers={"Authorization": "Bearer no"})
        assert "'403 Forbidden'" in wrong["error"]
