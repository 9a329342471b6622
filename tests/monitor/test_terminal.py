from dataclasses import replace

import pytest

from fdml.events import (
    Aligned,
    Compared,
    Convergence,
    EpochChosen,
    EpochDone,
    Evaluated,
    Finished,
    Joined,
    Refused,
    Released,
    Remark,
    StepDone,
    Stopped,
    Waiting,
)
from fdml.monitor.terminal import PlainProgress, RunTerminal, print_line, progress_display
from tests.monitor.sample_events import SAMPLES, Clock, plain_console, terminal_console


def lines_of(*events):
    """The plain lines that a side without progress prints of these events."""
    console, output = plain_console()
    terminal = RunTerminal(console)
    for event in events:
        terminal(event)
    return output.getvalue().splitlines()


# Lines.


def test_a_remark_is_printed_as_it_is_however_long_and_whatever_it_holds():
    text = "check [data.ids] and [bold]this[/bold] " + 20 * "word "
    assert lines_of(Remark("ann", text)) == [text]


def test_a_refusal_is_printed_once_with_its_reason():
    refused = Refused("bob", "gap", "step 4 before step 3")
    assert lines_of(refused, refused, Refused("bob", "gap", "step 9")) == [
        "refused: step 4 before step 3", "refused: step 9",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["[/x]", "[bold red]all parties have finished[/]", ":smile:", "a [link=x]b[/link]"])
def test_what_a_peer_sent_is_never_markup(text):
    """Finding 9: a kind of "[/x]" ended the call with rich's own error."""
    assert lines_of(Refused("bob", "invalid", text)) == [f"refused: {text}"]
    assert lines_of(Stopped("bob", 3, text)) == [f"training ended before step 3: {text}"]


def test_control_characters_are_written_out():
    """Finding 9: a peer's text cannot move the cursor, colour or clear the terminal."""
    found = lines_of(Refused("bob", "invalid", "\x1b[2J\x07\rdone"), Remark("bob", "two\nlines\x1b[1m"))
    assert found == [r"refused: \x1b[2J\x07\rdone", "two", r"lines\x1b[1m"]


def test_a_party_that_joins_again_and_again_does_not_fill_the_log():
    """Finding 9."""
    assert len(lines_of(*(Joined("bob", step) for step in range(3000)))) == 1000


def test_a_flood_of_different_refusals_ends():
    assert len(lines_of(*(Refused("bob", "gap", f"step {step}") for step in range(500)))) == 100


def test_the_shared_rows_are_counted():
    assert lines_of(Aligned("ann", 4000, 3200, 800)) == ["4,000 rows are shared by all, 3,200 of them to train on"]


def test_who_joined_and_from_where_it_goes_on():
    assert lines_of(Joined("ann", 0), Joined("bob", 17)) == ["ann: joined", "bob: going on at step 17"]


def test_an_early_end_has_its_step_and_its_reason():
    assert lines_of(Stopped("ann", 80, "the privacy budget of party 'bob' is spent")) == [
        "training ended before step 80: the privacy budget of party 'bob' is spent"
    ]


def test_what_joint_training_brings_is_printed_with_what_it_cost_to_know():
    (compared,) = [event for event in SAMPLES if isinstance(event, Compared)]
    assert lines_of(compared) == ["joint brings +0.100 (0.080 to 0.120) AUC over ann alone; that took 1.2 s"]


def test_steps_and_releases_are_not_printed():
    assert lines_of(StepDone("ann", 3, 0), Released("ann", "push", 3)) == []


def test_the_end_shows_the_figures_of_the_last_epoch():
    events = [Evaluated("ann", 1, 1.0, 0.7, 0.6, 0.8), Evaluated("ann", 2, 2.0, 0.6, 0.5, 0.9), Finished("ann", 2.25)]
    assert lines_of(*events) == ["ann: finished after 2.2 s; epoch 2: test loss 0.5000, test metric 0.9000"]
    assert lines_of(Finished("bob", 2.25)) == ["bob: finished after 2.2 s"]


def test_figures_that_are_not_for_this_side_are_not_printed_as_numbers():
    assert lines_of(Evaluated("ann", 3), Finished("ann", 1.0)) == [
        "ann: finished after 1.0 s; epoch 3: its figures are for the parties that have the labels"
    ]


def test_a_line_is_not_wrapped_where_there_is_no_terminal():
    console, output = plain_console()
    print_line(console, "x" * 500)
    assert output.getvalue() == "x" * 500 + "\n"


# Waits.


@pytest.fixture
def waiting():
    """A terminal on which bob and its clock can be looked at: waits(seconds, names) is one event of a wait."""
    console, output = plain_console()
    clock = Clock()
    terminal = RunTerminal(console, clock=clock)

    def wait(seconds, *names):
        clock.now += seconds
        terminal(Waiting("ann", names))
        return output.getvalue().splitlines()

    wait.terminal = terminal
    return wait


def test_a_short_wait_is_not_printed(waiting):
    assert waiting(0, "bob") == []
    assert waiting(4.9, "bob") == []


def test_a_long_wait_is_printed_once_with_whom_it_is_for(waiting):
    waiting(0, "bob")
    assert waiting(6, "bob") == ["ann: waits for bob, 6 s so far"]
    assert len(waiting(60, "bob")) == 1


def test_a_wait_with_its_reason_is_printed_every_time(waiting):
    why = "no server at x:7443 yet: connection refused"
    for seconds in (10.0, 20.0):
        waiting.terminal(Waiting("ann", ("server",), why, seconds))
    assert waiting(0, "server") == [f"ann: waiting for {seconds} s so far: {why}" for seconds in (10, 20)]


def test_a_long_wait_for_someone_else_is_printed_again(waiting):
    waiting(0, "bob", "cyd")
    waiting(5, "bob", "cyd")
    assert waiting(1, "cyd") == ["ann: waits for bob, cyd, 5 s so far", "ann: waits for cyd, 6 s so far"]


@pytest.mark.parametrize(
    "event", [StepDone("ann", 3, 0), EpochDone("ann", 1), Joined("ann", 4), Evaluated("ann", 1, 1.0)]
)
def test_progress_ends_a_wait(waiting, event):
    waiting(0, "bob")
    waiting.terminal(event)
    assert "waits" not in "".join(waiting(6, "bob"))


@pytest.mark.parametrize("event", [StepDone("bob", 3, 0), Remark("ann", "hello"), Released("ann", "push", 4)])
def test_what_is_no_progress_of_the_party_does_not_end_its_wait(waiting, event):
    waiting(0, "bob")
    waiting.terminal(event)
    assert "ann: waits for bob, 6 s so far" in waiting(6, "bob")


# Progress.


def test_plain_progress_is_ten_lines_at_most():
    console, output = plain_console()
    clock = Clock()
    progress = PlainProgress(console, 40, "training", "epochs", clock)
    for done in range(1, 41):
        clock.now += 0.5
        progress.move_to(done)
    lines = output.getvalue().splitlines()
    assert len(lines) == 10
    assert lines[0] == "training: 4 of 40 epochs, 2 s"
    assert lines[-1] == "training: 40 of 40 epochs, 20 s"


def test_a_short_job_has_a_line_for_every_unit():
    console, output = plain_console()
    with progress_display(console, 3, "making rows", "chunks") as display:
        for done in (1, 2, 3):
            display.move_to(done)
    assert [line.rpartition(",")[0] for line in output.getvalue().splitlines()] == [
        f"making rows: {done} of 3 chunks" for done in (1, 2, 3)
    ]


def test_a_bar_forgets_the_wait_once_it_is_over():
    console, output = terminal_console()
    with progress_display(console, 10, "ann") as display:
        terminal = RunTerminal(console, display)
        terminal(Waiting("ann", ("bob",)))
        terminal(Remark("ann", "between"))
        terminal(StepDone("ann", 1, 0))
        terminal(Remark("ann", "after"))
    assert "waits for bob" not in output.getvalue().rpartition("after")[2]


def test_a_chosen_epoch_is_shown_with_its_figures_and_what_they_are_worth():
    figures = {"auc": 0.9}
    events = [Evaluated("ann", epoch, 1.0, 0.5, loss, 0.9, figures) for epoch, loss in ((1, 0.4), (2, 0.6))]
    lines = lines_of(*events, EpochChosen("ann", 1), Finished("ann", 2.0))
    assert lines[0] == "ann: keeps the model of epoch 1, which has the lowest loss of held-out rows"
    assert "held-out rows have chosen this epoch, so their figures are a little too good" in lines[1]
    assert lines[-1] == "ann: finished after 2.0 s; epoch 1: test loss 0.4000, test AUC 0.9000"


def test_a_party_without_labels_is_told_which_epoch_it_keeps():
    assert len(lines_of(EpochChosen("bob", 3))) == 1


def test_only_a_training_that_has_not_converged_says_something():
    assert lines_of(Convergence("ann", "converged", "")) == []
    assert lines_of(Convergence("ann", "diverged", "diverged: the loss rose")) == ["diverged: the loss rose"]


def test_lines_of_a_server_with_many_runs_begin_with_the_run_and_never_mix_them():
    printed = lines_of(
        Joined("ann", 0, run="one"),
        Joined("ann", 4, run="two"),
        Evaluated("ann", 7, run="one"),
        Evaluated("ann", 2, run="two"),
        Finished("ann", run="one"),
        Waiting("server", ("bob",), "bob has not joined", 10.0, run="two"),
        Finished("ann", run="two"),
    )
    sealed = "its figures are for the parties that have the labels"
    assert printed == [
        "run 'one', ann: joined",
        "run 'two', ann: going on at step 4",
        f"run 'one', ann: finished; epoch 7: {sealed}",
        "run 'two', server: waiting for 10 s so far: bob has not joined",
        f"run 'two', ann: finished; epoch 2: {sealed}",
    ]


def test_a_server_with_many_runs_keeps_nothing_of_those_that_are_over():
    console, _ = plain_console()
    terminal = RunTerminal(console)
    before = len(remembered(terminal))
    for number in range(50):
        for event in (Joined("ann", 0), Waiting("ann", ("bob",)), Evaluated("ann", 1), Finished("ann")):
            terminal(replace(event, run=f"run{number}"))
    assert len(remembered(terminal)) == before


def remembered(terminal):
    """All that the terminal remembers, as text."""
    known = {name: value for name, value in vars(terminal).items() if isinstance(value, dict | set)}
    return repr(sorted(known.items()))
