import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.events import Evaluated, Finished, PartyProgress, Remark
from fdml.monitor.event_lines import EventLines, is_told, told_to
from fdml.monitor.json_log import JsonLog
from tests.monitor.sample_events import ANY_EVENT, SAMPLES

TOLD = (
    PartyProgress("ann", 8, 40, 10, "waiting", ("bob", "cyd"), run="shop"),
    PartyProgress("bob", 7, 40, 10, "training"),
    Evaluated("ann", 1, 1.0, 0.6, 0.5, 0.9, {"auc": 0.9}),
    Finished("ann", 2.5),
)


def test_what_is_handed_on_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "events"
    reader = EventLines(path)
    assert reader.new() == [], "the other process has not begun"
    with JsonLog(path) as log:
        listener = told_to(log)
        for event in TOLD[:2]:
            listener(event)
        assert reader.new() == list(TOLD[:2])
        assert reader.new() == []
        for event in (*TOLD[2:], Remark("ann", "hello")):
            listener(event)
        assert reader.new() == list(TOLD[2:])


def test_little_is_handed_on():
    kinds = {type(event).__name__ for event in SAMPLES if is_told(event)}
    assert kinds == {"PartyProgress", "Evaluated", "Finished"}
    assert not is_told(Evaluated("ann", 1)), "figures of others say nothing"


def test_a_line_that_is_half_written_is_read_once_it_is_whole(tmp_path):
    path = tmp_path / "events"
    with JsonLog(path) as log:
        log(TOLD[1])
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    reader = EventLines(path)
    assert reader.new() == []
    path.write_bytes(whole)
    assert reader.new() == [TOLD[1]]


@pytest.mark.parametrize("line", ["", "{", "[]", "3", '{"kind": "Os"}', '{"kind": "Finished", "time": 1, "rank": 2}'])
def test_a_line_that_is_no_event_is_left_out(line, tmp_path):
    (tmp_path / "events").write_text(line + "\n")
    assert EventLines(tmp_path / "events").new() == []


@given(st.lists(ANY_EVENT, max_size=3))
def test_any_event_can_be_offered(events):
    written = []
    listener = told_to(lambda event: written.append(json.dumps(type(event).__name__)))
    for event in events:
        listener(event)
    assert len(written) == sum(map(is_told, events))
