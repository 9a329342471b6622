"""The party's end of a line to Ray, without Ray: what comes back, and what is made of it."""

import os
import socket
import threading
from contextlib import contextmanager

import numpy as np
import pytest

from fdml.cluster.frames import Frame, read_frame, to_bytes, write_frame
from fdml.cluster.lines import LineLost
from fdml.cluster.ray_workers import RayGateway, RayLine, _environment
from fdml.errors import SettingsError, TrainingDiverged

SETUP = Frame({"job": "shards"})


def content(frame):
    return {"content": np.frombuffer(to_bytes(frame), np.uint8)}


@contextmanager
def line_to(*answers):
    """A line whose other end gives these answers by turns, and then is gone."""
    ours, theirs = socket.socketpair()

    def answer():
        with theirs, theirs.makefile("rwb") as file:
            for each in answers:
                if read_frame(file) is not None:
                    write_frame(file, each)

    thread = threading.Thread(target=answer)
    thread.start()
    line = RayLine(ours, 3)
    yield line
    line.end()
    thread.join(10)


def test_an_answer_is_what_the_actor_has_said():
    said = Frame({"fence": 5}, {"x": np.arange(3)})
    with line_to(Frame({}, content(said))) as line:
        answer = line.ask(Frame({"fence": 5}), 10.0)
    assert answer.facts == {"fence": 5}
    np.testing.assert_array_equal(answer.arrays["x"], np.arange(3))


def test_an_actor_that_is_lost_is_so_with_what_is_known():
    gone = "is gone: its node does not answer any more"
    with line_to(Frame({"lost": gone})) as line, pytest.raises(LineLost, match=rf"^{gone}$"):
        line.ask(Frame({"fence": 1}), 10.0)


def test_a_process_that_has_ended_is_remarked():
    with line_to() as line, pytest.raises(LineLost, match="the process that speaks to Ray has ended"):
        line.ask(Frame({"fence": 1}), 10.0)


def test_a_process_that_says_nothing_is_not_waited_for_beyond_its_deadline(monkeypatch):
    monkeypatch.setattr("fdml.cluster.ray_workers._GRACE", 0.05)
    ours, theirs = socket.socketpair()
    with theirs:
        line = RayLine(ours, 0)
        with pytest.raises(LineLost, match=r"not answered within 0\.05 s, nor the process that speaks to Ray"):
            line.ask(Frame({"fence": 1}), 0.05)
        line.end()


def test_a_line_that_has_begun_is_called_by_its_machine():
    with line_to(Frame({"machine": "gpu at 10.0.0.7, process 9"}, content(Frame({})))) as line:
        assert line.machine == "worker 3"
        line.begun(to_bytes(SETUP), 10.0)
        assert line.machine == "worker 3 (gpu at 10.0.0.7, process 9)"


def test_a_machine_with_other_versions_is_refused_by_name():
    with (
        line_to(Frame({"refused": "gpu at 10.0.0.7 has numpy 2.3.0, not 2.4.6"})) as line,
        pytest.raises(SettingsError, match=r"^gpu at 10\.0\.0\.7 has numpy 2\.3\.0, not 2\.4\.6; install the same"),
    ):
        line.begun(to_bytes(SETUP), 10.0)


def test_an_error_of_the_set_up_is_raised_as_it_was():
    failed = Frame({"fence": 0, "error": "TrainingDiverged", "text": "no"})
    opened = Frame({"machine": "here, process 9"}, content(failed))
    with line_to(opened) as line, pytest.raises(TrainingDiverged, match=r"^no$"):
        line.begun(to_bytes(SETUP), 10.0)


def test_what_is_to_be_known_of_a_machine_is_remarked_once():
    gateway = RayGateway("10.0.0.1:6379", SETUP, 1.0)
    facts = {"machine": "gpu at 10.0.0.7, process 9", "other processor": "gpu at 10.0.0.7 (znver4)", "sent": 2_500_000}
    for process in (9, 10):
        gateway._remark_on(Frame({**facts, "machine": f"gpu at 10.0.0.7, process {process}"}))
    assert gateway.remarks == [
        "gpu at 10.0.0.7 (znver4) has another processor than this machine: the last bits of results may differ",
        "gpu at 10.0.0.7 does not see the party's block store: 2.5 MB of rows were sent to it",
    ]
    gateway.stop()


def test_ray_is_remarked_to_ask_for_a_token_and_to_report_nothing_unless_somebody_has_said_otherwise(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.delenv(name, raising=False)
    told = _environment("10.0.0.1:6379")
    assert (told["RAY_AUTH_MODE"], told["RAY_USAGE_STATS_ENABLED"]) == ("token", "0")
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in told.keys() - os.environ.keys()
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    assert _environment("10.0.0.1:6379")["RAY_AUTH_MODE"] == "disabled"
    assert _environment("127.0.0.1:6379")["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
