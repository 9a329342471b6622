import pytest

from fdml.events import (
    EpochDone,
    Evaluated,
    Finished,
    Joined,
    PartyProgress,
    Remark,
    Scheduled,
    SchemeDone,
    StepDone,
)
from fdml.monitor.run_displays import epoch_progress, live_terminal, processes_terminal, run_terminal
from tests.monitor.sample_events import plain_console, terminal_console

ERASE_LINE = "\x1b[2K"
PROGRESS = PartyProgress("ann", 8, 40, 10, "training")


@pytest.fixture
def on_terminal(monkeypatch):
    """A console that takes itself for a terminal, and what it prints."""
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return terminal_console()


def test_the_epochs_of_all_trainings_are_counted_together():
    console, output = plain_console()
    with epoch_progress(console, 4, "training") as listener:
        for event in (EpochDone("ann", 1), StepDone("ann", 1, 0), EpochDone("bob", 1), EpochDone("ann", 2)):
            listener(event)
    assert [line.split(" of ")[0] for line in output.getvalue().splitlines()] == [
        f"training: {done}" for done in (1, 2, 3)
    ]


def test_a_party_that_goes_on_counts_from_where_it_was():
    console, output = plain_console()
    with run_terminal(console, "ann") as listener:
        listener(Scheduled("ann", 10, 100, 4, 1600, 64))
        listener(EpochDone("ann", 8))
    assert output.getvalue().splitlines()[1].startswith("ann: 8 of 10 epochs")


def test_a_line_of_progress_has_the_newest_figures():
    console, output = plain_console()
    with run_terminal(console, "ann") as listener:
        listener(Scheduled("ann", 10, 100, 4, 1600, 64))
        listener(EpochDone("ann", 1))
        listener(Evaluated("ann", 1, 1.0, 0.6, 0.5, 0.9))
        listener(EpochDone("ann", 2))
    schedule, first, second = output.getvalue().splitlines()
    assert schedule == "ann: 10 epochs over 1,600 rows in batches of 100, 4 exchanges an epoch, 64 bits a prediction"
    assert "test loss" not in first
    assert second.endswith("epoch 1: test loss 0.5000, test metric 0.9000")


def test_a_terminal_has_a_view_that_leaves_no_trace_and_keeps_the_lines(on_terminal):
    console, output = on_terminal
    with run_terminal(console, "ann") as listener:
        listener(Scheduled("ann", 10, 100, 4, 1600, 64))
        listener(StepDone("ann", 11, 0))
        listener(Remark("ann", "a remark"))
        listener(Finished("ann", 1.0))
    text = output.getvalue()
    assert "a remark\n" in text
    assert "epoch 4/10" in text
    assert text.endswith(ERASE_LINE)
    assert "of 10 epochs" not in text


def test_a_comparison_on_a_terminal_shows_what_is_done(on_terminal):
    console, output = on_terminal
    with epoch_progress(console, 4, "training") as listener:
        listener(SchemeDone("ann", "LR", "alone", 7, 0.5, 0.9))
        console.print("a line")
    text = output.getvalue()
    assert "LR alone, seed 7" in text
    assert "0/4 epochs" in text
    assert text.endswith(ERASE_LINE)


def test_a_server_has_the_same_lines_with_and_without_a_terminal(on_terminal):
    console, output = on_terminal
    plain, lines = plain_console()
    for each in (console, plain):
        with live_terminal(each) as listener:
            listener(PROGRESS)
            listener(Joined("ann", 0))
    assert lines.getvalue() == "ann: joined\n"
    assert "ann: joined\n" in output.getvalue()
    assert "epoch 3/10" in output.getvalue()


def test_a_run_of_processes_has_their_lines_and_a_view_of_all_on_a_terminal(on_terminal):
    console, output = on_terminal
    plain, lines = plain_console()
    for each, wanted in ((console, True), (plain, False)):
        with processes_terminal(each) as (listener, is_live):
            listener(PROGRESS)
            listener(Remark("ann", "hello"))
        assert is_live is wanted
    assert lines.getvalue() == "[ann] hello\n"
    assert "[ann] hello\n" in output.getvalue()
    assert "epoch 3/10" in output.getvalue()


def test_a_quiet_run_of_processes_prints_nothing(on_terminal):
    console, output = on_terminal
    with processes_terminal(console, quiet=True) as (listener, is_live):
        listener(Remark("ann", "hello"))
    assert not is_live
    assert output.getvalue() == ""
