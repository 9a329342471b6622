import io
import json

import pytest
import typer
from rich.console import Console

from fdml.cli import run_output as outputs
from fdml.cli.run_output import Said, comparison_output, run_output
from fdml.events import (
    EpochDone,
    Evaluated,
    Finished,
    Joined,
    PartyProgress,
    Refused,
    Remark,
    Scheduled,
    SchemeDone,
    StepDone,
    Waiting,
)

PLAN = Scheduled("ann", 10, 100, 4, 1600, 64)


@pytest.fixture
def output(monkeypatch):
    """What goes to a standard error that is no terminal."""
    text = io.StringIO()
    monkeypatch.setattr(outputs, "stderr", Console(file=text, width=120))
    return text


def lines(output, said, *events, **options):
    with run_output(said, **options) as listener:
        for event in events:
            listener(event)
    return output.getvalue().splitlines()


def test_elsewhere_than_on_a_terminal_a_party_has_the_plain_lines(output):
    found = lines(output, Said(), PLAN, EpochDone("ann", 1), party="ann")
    assert found[0].startswith("ann: 10 epochs over 1,600 rows")
    assert found[1].startswith("ann: 1 of 10 epochs, 0 s")
    assert len(found) == 2


def test_a_server_has_lines_and_no_progress(output):
    progress = PartyProgress("ann", 3, 40, 10, "waiting", ("bob",))
    assert lines(output, Said(), Joined("ann", 0), progress) == ["ann: joined"]


def test_quiet_leaves_what_goes_wrong(output):
    events = (PLAN, Remark("ann", "hello"), Refused("bob", "gap", "step 4 before step 3"), Finished("ann", 1.0))
    assert lines(output, Said(quiet=True), *events, party="ann") == ["refused: step 4 before step 3"]


def test_verbose_has_every_epoch_and_every_wait(output):
    events = (EpochDone("ann", 1), Waiting("ann", ("bob",)), Evaluated("ann", 1, 1.0, 0.6, 0.5, 0.9))
    found = lines(output, Said(verbose=True), *events)
    assert [line.partition(" s: ")[2] for line in found] == [
        "ann: epoch 1 is done",
        "ann: waits for bob",
        "ann: epoch 1: test loss 0.5000, test metric 0.9000, training loss 0.6000",
    ]


def test_verbose_in_json_has_every_step(output):
    assert len(lines(output, Said("json"), StepDone("ann", 3, 0))) == 0
    assert len(lines(output, Said("json", verbose=True), StepDone("ann", 3, 0))) == 1


def test_json_lines_have_the_name_of_the_run(output):
    (line,) = lines(output, Said("json"), Joined("ann", 0), run="first")
    assert json.loads(line)["run"] == "first"


def test_quiet_and_verbose_exclude_each_other():
    with pytest.raises(typer.BadParameter, match="exclude each other"):
        Said(quiet=True, verbose=True)


def test_a_log_has_all_events_whatever_is_said(output, tmp_path):
    lines(output, Said(quiet=True), Remark("ann", "hello"), StepDone("ann", 3, 0), log=tmp_path / "log")
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "log").read_text().splitlines()]
    assert kinds == ["Remark", "StepDone"]


def test_the_process_that_started_this_one_is_told_little(output, tmp_path):
    events = (Remark("ann", "hello"), StepDone("ann", 3, 0), Evaluated("ann", 1), Finished("ann"))
    lines(output, Said(), *events, report_to=tmp_path / "events")
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "events").read_text().splitlines()]
    assert kinds == ["Finished"], "an evaluation without figures says nothing"


def test_a_standing_party_has_no_view_of_one_run(output, monkeypatch):
    monkeypatch.setattr(outputs, "stderr", Console(file=output, force_terminal=True, width=120))
    monkeypatch.delenv("CI", raising=False)
    assert lines(output, Said(), Remark("ann", "stands by"), live=False) == ["stands by"]


@pytest.mark.parametrize(("said", "count"), [(Said(), 2), (Said(quiet=True), 0), (Said(verbose=True), 5)])
def test_a_comparison_says_as_much_as_asked(output, said, count):
    with comparison_output(said, 2) as listener:
        for event in (EpochDone("ann", 1), EpochDone("ann", 2), SchemeDone("ann", "LR", "alone", 7, 0.5, 0.9)):
            listener(event)
    assert len(output.getvalue().splitlines()) == count
