"""What trackers of experiments get, and that none of them holds up a run."""

import threading
from typing import get_args

import pytest

from fdml.events import Compared, EpochDone, Evaluated, Event, Finished, Remark, StepDone
from fdml.monitor.tracking import EpochLags, Tracked, figures_of
from tests.monitor.sample_events import SAMPLES


class InMemory:
    """A tracker in memory."""

    def __init__(self, fails_at=None):
        self.fails_at = fails_at
        self.written, self.ended = [], None

    def write(self, epoch, figures):
        if epoch == self.fails_at:
            raise OSError("no room on the disk")
        self.written.append((epoch, dict(figures)))

    def close(self, *, finished):
        self.ended = finished


def test_an_evaluated_epoch_gives_losses_and_all_figures_that_are_defined():
    event = Evaluated("ann", 3, 4.5, 0.5, float("nan"), 0.75, {"auc": 0.75, "ks": None, "brier": float("inf")})
    assert figures_of(event) == (3, {"train/loss": 0.5, "train/seconds": 4.5, "held_out/auc": 0.75})


def test_a_comparison_gives_the_other_model_s_figures_and_the_gain():
    (compared,) = (each for each in SAMPLES if isinstance(each, Compared))
    epoch, figures = figures_of(compared)
    assert epoch == 3
    assert figures == {
        "alone/auc": 0.8,
        "gain_over_alone/auc": 0.1,
        "gain_over_alone/auc_low": 0.08,
        "gain_over_alone/auc_high": 0.12,
    }


def test_events_that_are_no_figures_give_none():
    with_figures = {type(event).__name__ for event in SAMPLES if figures_of(event) is not None}
    assert with_figures == {"Evaluated", "Compared", "ComparedVersion"}
    assert {type(event) for event in SAMPLES} == set(get_args(Event))


def test_lags_are_those_of_an_epoch():
    lags = EpochLags()
    assert [lags.take(StepDone("ann", step, step % 3)) for step in range(4)] == [None] * 4
    assert lags.take(EpochDone("ann", 1)) == (1, {"lag/mean": 0.75, "lag/largest": 2.0})
    lags.take(StepDone("ann", 4, 1))
    assert lags.take(EpochDone("ann", 2)) == (2, {"lag/mean": 1.0, "lag/largest": 1.0})
    assert lags.take(EpochDone("ann", 3)) is None, "nothing was done in it"


@pytest.mark.parametrize("finished", [True, False])
def test_a_tracker_gets_everything_in_order_and_how_the_run_ended(finished):
    kept = InMemory()
    with Tracked("memory", lambda: kept, pytest.fail) as listener:
        for epoch in (1, 2, 3):
            listener(Evaluated("ann", epoch, None, 0.5))
        listener(Remark("ann", "no figure"))
        if finished:
            listener(Finished("ann", 2.0))
    assert kept.written == [(epoch, {"train/loss": 0.5}) for epoch in (1, 2, 3)]
    assert kept.ended is finished


def test_a_tracker_that_fails_is_said_once_and_stops_nothing():
    kept, said = InMemory(fails_at=2), []
    with Tracked("memory", lambda: kept, said.append) as listener:
        for epoch in (1, 2, 3):
            listener(Evaluated("ann", epoch, None, 0.5))
    assert [epoch for epoch, _ in kept.written] == [1]
    assert said == ["memory gets no more figures of this run (no room on the disk); the run goes on, see [track]"]


def test_a_tracker_that_cannot_be_opened_is_said():
    def refuse():
        raise OSError("nobody answers")

    said = []
    with Tracked("memory", refuse, said.append) as listener:
        listener(Evaluated("ann", 1, None, 0.5))
    assert "nobody answers" in said[0]


def test_a_tracker_that_hangs_is_left_and_said():
    goes_on, said = threading.Event(), []

    def hang():
        goes_on.wait(60)
        return InMemory()

    listener = Tracked("memory", hang, said.append)
    try:
        listener(Evaluated("ann", 1, None, 0.5))
        listener.close(0.05)
        assert said == ["memory has not taken all figures of this run within 0.05 s; history.json has"]
    finally:
        goes_on.set()
