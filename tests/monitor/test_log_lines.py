"""Lines for collectors of logs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.events import (
    EpochDone,
    Evaluated,
    Finished,
    Joined,
    LargestPart,
    Refused,
    Released,
    Remark,
    StepDone,
    Stopped,
    Waiting,
)
from fdml.monitor.log_lines import LEVELS, JsonLines, from_level, level_of
from tests.monitor.sample_events import ANY_EVENT, SAMPLES, plain_console


def lines(*events, run="first"):
    console, output = plain_console()
    log = JsonLines(console, run, clock=lambda: 1_794_982_014.427)
    for event in events:
        log(event)
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_line_has_time_level_event_run_party_and_step():
    (line,) = lines(EpochDone("ann", 3))
    assert line == {
        "time": "2026-11-18T06:06:54.427+00:00",
        "level": "debug",
        "event": "EpochDone",
        "run": "first",
        "party": "ann",
        "step": None,
        "epoch": 3,
    }


def test_the_step_is_the_last_that_the_party_has_done():
    found = lines(StepDone("ann", 7, 0), EpochDone("ann", 1), EpochDone("bob", 1), Stopped("ann", 9, "spent"))
    assert [line["step"] for line in found] == [7, 7, None, 9]


def test_a_line_of_one_of_many_runs_names_it():
    found = lines(Joined("bob", 0, run="second"), Joined("bob", 0), run="")
    assert [line["run"] for line in found] == ["second", ""]


@given(events=st.lists(ANY_EVENT, max_size=6))
def test_every_event_is_one_line_of_strict_json(events):
    found = lines(*events)
    assert [line["event"] for line in found] == [type(event).__name__ for event in events]
    assert all(line["level"] in LEVELS for line in found)


def test_numbers_that_json_has_no_word_for_are_null():
    (line,) = lines(Evaluated("ann", 1, 2.0, float("nan"), float("inf"), 0.5))
    assert (line["train_loss"], line["test_loss"], line["test_metric"]) == (None, None, 0.5)


@pytest.mark.parametrize(
    ("event", "level"),
    [
        (StepDone("ann", 1, 0), "debug"),
        (Released("ann", "push", 1), "debug"),
        (EpochDone("ann", 1), "debug"),
        (LargestPart("server", ("bob",), 2, 3.5), "debug"),
        (Waiting("ann", ("bob",)), "debug"),
        (Waiting("ann", ("bob",), "bob is gone", 10.0), "warning"),
        (Refused("bob", "gap", "step 4 before step 3"), "warning"),
        (Stopped("ann", 80, "spent"), "warning"),
        (Joined("ann", 0), "info"),
        (Remark("ann", "one"), "info"),
        (Finished("ann", 2.0), "info"),
    ],
)
def test_how_much_an_event_matters(event, level):
    assert level_of(event) == level


@pytest.mark.parametrize("least", LEVELS)
def test_a_listener_hears_what_matters_at_least_so_much(least):
    heard = []
    listener = from_level(least, heard.append)
    for event in SAMPLES:
        listener(event)
    wanted = LEVELS[LEVELS.index(least) :]
    assert heard == [event for event in SAMPLES if level_of(event) in wanted]
    assert heard
