import json
import stat
import threading
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.events import Evaluated, Finished, Joined, Refused, Remark, StepDone, Waiting
from fdml.monitor.json_log import JsonLog
from tests.monitor.sample_events import ANY_EVENT, SAMPLES, Clock


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def strict(constant):
    raise AssertionError(f"{constant} is not JSON")


def test_every_event_is_one_line_with_its_kind_time_and_fields(tmp_path):
    clock = Clock()
    with JsonLog(tmp_path / "log", clock) as log:
        log(StepDone("ann", 3, 1))
        clock.now = 101.5
        log(Waiting("ann", ("bob", "cyd")))
    assert lines(tmp_path / "log") == [
        {"kind": "StepDone", "time": 100.0, "party": "ann", "step": 3, "lag": 1},
        {"kind": "Waiting", "time": 101.5, "party": "ann", "waits_for": ["bob", "cyd"], "why": "", "seconds": 0.0},
    ]


def test_nothing_is_left_out_however_often_it_comes(tmp_path):
    with JsonLog(tmp_path / "log") as log:
        for _ in range(50):
            for event in SAMPLES:
                log(event)
    assert [line["kind"] for line in lines(tmp_path / "log")] == [type(event).__name__ for event in SAMPLES] * 50


def test_the_kind_of_a_refused_message_does_not_hide_the_kind_of_the_event(tmp_path):
    with JsonLog(tmp_path / "log", Clock()) as log:
        log(Refused("bob", "gap", "step 4 before step 3"))
    (line,) = lines(tmp_path / "log")
    assert line == {
        "kind": "Refused",
        "time": 100.0,
        "party": "bob",
        "refusal": "gap",
        "reason": "step 4 before step 3",
    }


def test_a_line_of_one_of_many_runs_names_it(tmp_path):
    with JsonLog(tmp_path / "log", Clock()) as log:
        log(Joined("bob", 0, run="second"))
        log(Joined("bob", 0))
    assert [line.get("run") for line in lines(tmp_path / "log")] == ["second", None]


@given(events=st.lists(ANY_EVENT, max_size=8))
def test_each_line_holds_the_fields_of_its_event_as_strict_json(tmp_path_factory, events):
    path = tmp_path_factory.mktemp("log") / "log"
    with JsonLog(path, Clock()) as log:
        for event in events:
            log(event)
    written = [json.loads(line, parse_constant=strict) for line in path.read_text().split("\n")[:-1]]
    assert len(written) == len(events)
    for line, event in zip(written, events, strict=True):
        fields = [name for name, value in asdict(event).items() if name != "run" or value]
        assert len(line) == len(fields) + 2
        assert line["party"] == event.party


def test_numbers_that_json_has_no_word_for_are_null(tmp_path):
    with JsonLog(tmp_path / "log") as log:
        log(Evaluated("ann", 1, 2.0, float("nan"), float("inf"), 0.5))
    (line,) = lines(tmp_path / "log")
    assert (line["train_loss"], line["test_loss"], line["test_metric"]) == (None, None, 0.5)


def test_a_line_is_there_as_soon_as_the_event_was_taken(tmp_path):
    with JsonLog(tmp_path / "log") as log:
        log(Remark("ann", "one\ntwo"))
        assert [line["text"] for line in lines(tmp_path / "log")] == ["one\ntwo"]


def test_a_later_start_appends(tmp_path):
    for text in ("first", "second"):
        with JsonLog(tmp_path / "log") as log:
            log(Remark("ann", text))
    assert [line["text"] for line in lines(tmp_path / "log")] == ["first", "second"]


def test_only_the_owner_may_read_it(tmp_path):
    path = tmp_path / "log"
    path.touch(0o644)
    with JsonLog(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with JsonLog(tmp_path / "new"):
        assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o600


def test_lines_of_several_threads_do_not_mix(tmp_path):
    with JsonLog(tmp_path / "log") as log:
        texts = [character * 5000 for character in "abcd"]
        threads = [
            threading.Thread(target=lambda text=text: [log(Remark("ann", text)) for _ in range(20)]) for text in texts
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert sorted(line["text"] for line in lines(tmp_path / "log")) == sorted(texts * 20)


def test_events_after_the_end_are_dropped(tmp_path):
    with JsonLog(tmp_path / "log") as log:
        log(Finished("ann", 1.0))
    log(Finished("ann", 2.0))
    assert len(lines(tmp_path / "log")) == 1


@pytest.mark.parametrize("path", ["no/such/log", "."])
def test_a_file_that_cannot_be_written_is_named_at_once(tmp_path, path):
    with pytest.raises(SettingsError, match=r"cannot write the log .*; choose another file with --log"):
        JsonLog(tmp_path / path)
