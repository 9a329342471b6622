import io
import threading

import pytest
from rich.console import Console
from rich.live import Live

from fdml.events import Evaluated, Finished, Joined, PartyProgress, Scheduled, StepDone, Waiting
from fdml.monitor import live_terminal as module
from fdml.monitor.live_terminal import DRAWN_EACH_SECOND, LiveTerminal, can_be_redrawn, drawn
from tests.monitor.sample_events import SAMPLES, Clock, terminal_console

PLAN = Scheduled("ann", 10, 100, 4, 1600, 64)


class Viewed:
    """A view whose clock a test moves; `lines` is what a person reads."""

    def __init__(self, *events, width=100):
        self.clock = Clock()
        self.view = LiveTerminal(self.clock)
        self._width = width
        self.take(*events)

    def take(self, *events):
        for event in events:
            self.view(event)

    @property
    def lines(self):
        output = io.StringIO()
        Console(file=output, width=self._width, force_terminal=True, no_color=True).print(self.view)
        plain = Console(file=io.StringIO(), width=self._width, record=True)
        plain.print(self.view)
        return [line.rstrip() for line in plain.export_text().splitlines() if line.strip()]


def test_a_party_is_shown_with_its_epoch():
    seen = Viewed(PLAN, Joined("ann", 0), *(StepDone("ann", step, 0) for step in range(9)))
    (line,) = seen.lines
    assert line.startswith("ann ")
    assert line.endswith("epoch 3/10  training")


def test_a_party_that_goes_on_is_shown_where_it_was():
    assert "epoch 6/10" in Viewed(PLAN, Joined("ann", 21)).lines[0]


def test_who_waits_for_whom_and_since_when():
    seen = Viewed(PLAN, Joined("ann", 0), Waiting("ann", ("bob", "cyd")))
    assert seen.lines[0].endswith("training"), "every step has a short wait"
    seen.clock.now += 3.2
    assert seen.lines[0].endswith("waits for bob, cyd, 3.2 s")
    seen.take(StepDone("ann", 0, 0))
    assert seen.lines[0].endswith("training")


def test_a_wait_that_is_told_again_goes_on():
    seen = Viewed(PLAN, Waiting("ann", ("bob",)))
    seen.clock.now += 10
    seen.take(Waiting("ann", ("bob",), "bob is gone", 10.0))
    seen.clock.now += 2
    assert seen.lines[0].endswith("waits for bob, 12 s")


def test_a_long_wait_is_red():
    clock = Clock()
    view = LiveTerminal(clock)
    view(Waiting("ann", ("bob",)))
    styles = []
    for seconds in (2, 60):
        clock.now += seconds
        console, output = terminal_console()
        console.print(view)
        styles.append("\x1b[31m" in output.getvalue())
    assert styles == [False, True]


def test_the_newest_figures_and_the_time_left_are_in_the_last_line():
    seen = Viewed(PLAN, Joined("ann", 0), Evaluated("ann", 1, 1.0, 0.6, 0.5, 0.9, {"auc": 0.9}))
    assert seen.lines[-1] == "epoch 1: test loss 0.5000, test AUC 0.9000"
    seen.take(StepDone("ann", 7, 0))
    assert len(seen.lines) == 2
    seen.clock.now += 4
    seen.take(StepDone("ann", 23, 0))
    assert seen.lines[-1].endswith("; about 4.0 s left"), "16 steps took 4 s, 16 are left"


def test_time_before_the_first_step_says_nothing_of_the_speed():
    seen = Viewed(PLAN, Joined("ann", 0))
    assert len(seen.lines) == 1
    seen.clock.now += 1000
    seen.take(StepDone("ann", 0, 0))
    assert len(seen.lines) == 1
    seen.clock.now += 3
    seen.take(StepDone("ann", 3, 0))
    assert seen.lines[-1] == "about 36 s left"


def test_a_server_shows_all_parties_and_who_waits():
    seen = Viewed(
        PartyProgress("ann", 8, 40, 10, "waiting", ("bob",)),
        PartyProgress("bob", 7, 40, 10, "training"),
        Waiting("server", ("cyd",), "cyd has not joined", 10.0),
    )
    seen.clock.now += 5
    ann, bob = seen.lines
    assert ann.startswith("ann")
    assert ann.endswith("waits for bob, 5.0 s")
    assert bob.endswith("epoch 2/10  training")


def test_a_standing_server_names_runs_and_drops_those_that_are_over():
    seen = Viewed(
        *(PartyProgress(name, 8, 40, 10, "training", run=run) for run in ("one", "two") for name in ("ann", "bob"))
    )
    assert [line for line in seen.lines if line.startswith("run")] == ["run one", "run two"]
    seen.take(Finished("ann", run="one"), Finished("bob", run="one"))
    seen.take(PartyProgress("ann", 40, 40, 10, "finished", run="one"))
    assert [line for line in seen.lines if line.startswith("run")] == ["run two"]


def test_many_runs_and_parties_do_not_fill_the_terminal():
    seen = Viewed(*(PartyProgress("ann", 8, 40, 10, "training", run=f"run{number}") for number in range(9)))
    assert seen.lines[-1] == "and 5 more runs"
    seen = Viewed(*(PartyProgress(f"party{number}", 8, 40, 10, "training") for number in range(40)))
    assert "and 28 more parties" in seen.lines
    assert len(seen.lines) < 16


def test_a_narrow_terminal_has_one_line_for_each_party():
    seen = Viewed(PLAN, Waiting("ann", tuple(f"party-{number}" for number in range(30))), width=60)
    seen.clock.now += 5
    assert len(seen.lines) == 1


def test_names_are_neither_markup_nor_control_characters():
    seen = Viewed(Waiting("ann[/x]", ("bob\x1b[2J [bold]",)))
    seen.clock.now += 5
    assert seen.lines[0].startswith("ann[/x]")
    assert r"waits for bob\x1b[2J [bold]" in seen.lines[0]


def test_any_event_is_taken():
    assert Viewed(*SAMPLES).lines


def test_steps_are_only_counted_and_drawn_at_most_four_times_a_second(monkeypatch):
    """A listener that drew would cost the run something at every step."""
    console, output = terminal_console()
    kept = {}

    class Seen(Live):
        def __init__(self, **options):
            kept.update(options)
            super().__init__(**options)

    monkeypatch.setattr(module, "Live", Seen)
    view = LiveTerminal()
    with drawn(console, view.__rich__):
        before = len(output.getvalue())
        for step in range(1000):
            view(StepDone("ann", step, 0))
        drawn_meanwhile = output.getvalue()[before:].count("ann")
    assert kept["refresh_per_second"] == DRAWN_EACH_SECOND == 4
    assert drawn_meanwhile <= 4
    assert output.getvalue().endswith("\x1b[2K"), "it leaves no trace"


@pytest.mark.parametrize(
    ("options", "environment", "found"),
    [
        ({"force_terminal": True}, {}, True),
        ({"force_terminal": True}, {"TERM": "dumb"}, False),
        ({"force_terminal": True}, {"CI": "true"}, False),
        ({"force_terminal": False}, {}, False),
        ({"force_jupyter": True}, {}, False),
    ],
)
def test_only_a_terminal_that_can_move_its_cursor_is_redrawn(options, environment, found, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert can_be_redrawn(Console(file=io.StringIO(), **options)) is found


def test_events_may_come_from_several_threads_while_it_is_drawn():
    view = Viewed(PLAN)
    threads = [
        threading.Thread(target=lambda name=name: [view.view(StepDone(name, step, 0)) for step in range(300)])
        for name in ("ann", "bob")
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        assert view.lines
    assert len([line for line in view.lines if line.startswith(("ann", "bob"))]) == 2
