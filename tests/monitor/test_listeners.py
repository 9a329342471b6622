from fdml.events import Remark
from fdml.monitor.listeners import all_of, ignore_events, remarks_of
from tests.monitor.sample_events import SAMPLES


def test_every_listener_gets_every_event_in_order():
    first, second = [], []
    listener = all_of(first.append, second.append)
    for event in SAMPLES:
        listener(event)
    assert first == second == list(SAMPLES)


def test_listeners_are_called_in_the_order_they_were_given():
    calls = []
    all_of(lambda _: calls.append("log"), lambda _: calls.append("terminal"))(SAMPLES[0])
    assert calls == ["log", "terminal"]


def test_no_listeners_are_a_listener_too():
    for event in SAMPLES:
        assert all_of()(event) is None
        assert ignore_events(event) is None


def test_sentences_become_remarks_of_their_side():
    events = []
    remark = remarks_of("server", events.append)
    remark("listening")
    remark("going on")
    assert events == [Remark("server", "listening"), Remark("server", "going on")]
