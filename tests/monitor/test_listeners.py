from fdml.events import Joined, OfRun, Remark
from fdml.monitor.listeners import all_of, ignore_events, of_run, remarks_of
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


class OfSome:
    """A listener that says what it hears."""

    kinds = frozenset((Joined, Remark))

    def __init__(self):
        self.events = []

    def __call__(self, event):
        self.events.append(event)


def test_a_listener_that_says_what_it_hears_gets_nothing_else():
    some, everything = OfSome(), []
    listener = all_of(some, everything.append)
    for event in (*SAMPLES, *SAMPLES):
        listener(event)
    assert some.events == [each for each in (*SAMPLES, *SAMPLES) if isinstance(each, (Joined, Remark))]
    assert everything == [*SAMPLES, *SAMPLES]


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


def test_events_of_one_of_many_runs_have_its_name_where_they_have_a_place_for_it():
    events = []
    listener = of_run("second", events.append)
    for event in SAMPLES:
        listener(event)
    assert [type(each) for each in events] == [type(each) for each in SAMPLES]
    assert {each.run for each in events if isinstance(each, OfRun)} == {"second"}
    assert any(isinstance(each, Joined) for each in events)
    assert [each for each in events if not isinstance(each, OfRun)] == [
        each for each in SAMPLES if not isinstance(each, OfRun)
    ]
