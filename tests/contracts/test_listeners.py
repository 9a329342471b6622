"""What every listener must pass: every kind of event, in any order, from several threads, without an error."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.events import Event
from fdml.monitor.history import HistoryFile
from fdml.monitor.json_log import JsonLog
from fdml.monitor.listeners import all_of, ignore_events
from fdml.monitor.run_displays import epoch_progress, live_terminal, run_terminal
from fdml.monitor.terminal import RunTerminal
from fdml.monitor.tracking import Tracked
from tests.monitor.sample_events import ANY_EVENT, SAMPLES, plain_console, terminal_console
from tests.monitor.test_tracking import InMemory

EPOCHS = 10


@contextmanager
def _all_together(folder):
    with ExitStack() as stack:
        names = [name for name in LISTENERS if name != "all_of"]
        yield all_of(*(stack.enter_context(LISTENERS[name](folder)) for name in names))


@contextmanager
def _just(listener):
    yield listener


LISTENERS = {
    "plain lines of a party": lambda _: run_terminal(plain_console()[0], "ann"),
    "terminal of a party": lambda _: run_terminal(terminal_console()[0], "ann"),
    "plain lines of the server": lambda _: _just(RunTerminal(plain_console()[0])),
    "live view of the server": lambda _: live_terminal(terminal_console()[0]),
    "plain progress of a comparison": lambda _: epoch_progress(plain_console()[0], EPOCHS, "training"),
    "progress bar of a comparison": lambda _: epoch_progress(terminal_console()[0], EPOCHS, "training"),
    "history file": lambda folder: _just(HistoryFile(folder / "history.json")),
    "figures for a tracker": lambda _: Tracked("memory", InMemory, lambda _: None),
    "JSON log": lambda folder: JsonLog(folder / "events.jsonl"),
    "none": lambda _: _just(ignore_events),
    "all_of": _all_together,
}


every_listener = pytest.mark.parametrize("opened", LISTENERS.values(), ids=LISTENERS)


def test_the_samples_have_every_kind_of_event():
    assert {type(event) for event in SAMPLES} == set(get_args(Event))


@every_listener
def test_every_kind_of_event_is_taken(opened, tmp_path):
    with opened(tmp_path) as listener:
        for event in SAMPLES:
            assert listener(event) is None


@every_listener
@given(events=st.lists(ANY_EVENT, max_size=12))
@settings(max_examples=15)
def test_any_events_are_taken_in_any_order(opened, tmp_path_factory, events):
    with opened(tmp_path_factory.mktemp("any")) as listener:
        for event in events:
            listener(event)


@every_listener
def test_events_of_several_threads_are_taken(opened, tmp_path):
    orders = [SAMPLES, SAMPLES[::-1], SAMPLES[5:] + SAMPLES[:5], SAMPLES * 2]
    with opened(tmp_path) as listener, ThreadPoolExecutor(len(orders)) as pool:
        done = [pool.submit(lambda order=order: [listener(event) for event in order]) for order in orders]
        assert [len(each.result(30)) for each in done] == [len(order) for order in orders]
