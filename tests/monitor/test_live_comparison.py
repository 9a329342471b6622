import io

from rich.console import Console

from fdml.events import EpochDone, SchemeBegun, SchemeDone
from fdml.monitor.live_comparison import LiveComparison
from tests.monitor.sample_events import SAMPLES, Clock


def lines(view):
    console = Console(file=io.StringIO(), width=110, record=True)
    console.print(view)
    return [line.strip() for line in console.export_text().splitlines() if line.strip()]


def test_it_shows_what_is_trained_how_far_all_of_it_is_and_what_is_left():
    clock = Clock()
    view = LiveComparison(40, "training", clock)
    view(SchemeBegun("ann", "LR", "alone", 7))
    (line,) = lines(view)
    assert "0/40 epochs" in line
    assert line.endswith("LR alone, seed 7")
    for epoch in range(10):
        view(EpochDone("ann", epoch + 1))
    clock.now += 5.0
    (line,) = lines(view)
    assert line.startswith("training")
    assert "10/40 epochs" in line
    assert line.endswith("LR alone, seed 7  about 15 s left")


def test_trainings_that_are_done_have_their_figures():
    view = LiveComparison(40, "training", Clock())
    view(SchemeDone("ann", "LR", "late fusion", 7, 0.51234, 0.9))
    first, bar = lines(view)
    assert first.split("  ") == ["LR late fusion, seed 7", "test loss 0.5123", "metric 0.9000"]
    assert bar.startswith("training")


def test_many_trainings_do_not_fill_the_terminal():
    view = LiveComparison(40, "training", Clock())
    for seed in range(50):
        view(SchemeDone("ann", "LR", "joint", seed, 0.5, 0.9))
    found = lines(view)
    assert len(found) == 9
    assert "seed 49" in found[-2]


def test_nothing_is_left_at_the_end():
    view = LiveComparison(1, "training", Clock())
    view(EpochDone("ann", 1))
    assert "left" not in lines(view)[-1]


def test_any_event_is_taken():
    view = LiveComparison(40, "training")
    for event in SAMPLES:
        view(event)
    assert lines(view)
