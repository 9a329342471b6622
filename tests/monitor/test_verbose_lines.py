import io

from rich.console import Console

from fdml.events import EpochDone, Evaluated, PartyProgress, Remark, SchemeBegun, SchemeDone, StepDone, Waiting
from fdml.monitor.verbose_lines import VerboseLines
from tests.monitor.sample_events import SAMPLES, Clock


def lines_of(*events):
    output, clock = io.StringIO(), Clock()
    listener = VerboseLines(Console(file=output, width=200), clock)
    for event in events:
        clock.now += 1.5
        listener(event)
    return output.getvalue().splitlines()


def test_every_epoch_has_a_line_with_the_time_since_the_beginning():
    assert lines_of(EpochDone("ann", 1), EpochDone("ann", 2)) == [
        "1.5 s: ann: epoch 1 is done",
        "3.0 s: ann: epoch 2 is done",
    ]


def test_every_evaluation_has_its_figures():
    assert lines_of(Evaluated("ann", 1, 1.0, 0.6, 0.5, 0.9, {"auc": 0.9}), Evaluated("ann", 2)) == [
        "1.5 s: ann: epoch 1: test loss 0.5000, test AUC 0.9000, training loss 0.6000",
        "3.0 s: ann: epoch 2: its figures are for the parties that have the labels",
    ]


def test_a_wait_has_a_line_unless_it_is_printed_with_its_reason_anyway():
    found = lines_of(Waiting("ann", ("bob", "cyd")), Waiting("ann", ("bob",), "bob is gone", 10.0))
    assert found == ["1.5 s: ann: waits for bob, cyd"]


def test_a_server_has_a_line_for_every_wait_and_names_the_run():
    waits, goes_on = (PartyProgress("ann", 8, 40, 10, "waiting", ("bob",)), PartyProgress("ann", 9, 40, 10, "training"))
    line = "ann: at step 8 of 40, waits for bob"
    assert lines_of(waits, waits, goes_on, waits) == [f"1.5 s: {line}", f"6.0 s: {line}"]
    (named,) = lines_of(PartyProgress("ann", 8, 40, 10, "waiting", ("bob",), run="shop"))
    assert named == f"1.5 s: run 'shop', {line}"


def test_a_server_that_stays_up_keeps_nothing_of_parties_that_have_finished():
    listener = VerboseLines(Console(file=io.StringIO()))
    for number in range(20):
        listener(PartyProgress("ann", 8, 40, 10, "waiting", ("bob",), run=f"run{number}"))
        listener(PartyProgress("ann", 40, 40, 10, "finished", run=f"run{number}"))
    assert not listener._waits


def test_a_comparison_has_two_lines_for_every_training():
    found = lines_of(SchemeBegun("ann", "LR", "pooled", 7), SchemeDone("ann", "LR", "pooled", 7, 0.5, 0.9))
    assert found == [
        "1.5 s: LR pooled, seed 7: training",
        "3.0 s: LR pooled, seed 7: test loss 0.5000, test metric 0.9000",
    ]


def test_steps_and_what_is_printed_anyway_have_none():
    assert lines_of(StepDone("ann", 3, 0), Remark("ann", "hello")) == []


def test_any_event_is_taken():
    assert lines_of(*SAMPLES)
