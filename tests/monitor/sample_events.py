"""Events for tests: one of every kind, and consoles to print them on."""

from __future__ import annotations

import io

from hypothesis import strategies as st
from rich.console import Console

from fdml.events import (
    Aligned,
    Compared,
    ComparedVersion,
    Convergence,
    EpochChosen,
    EpochDone,
    Evaluated,
    Event,
    Finished,
    Joined,
    LargestPart,
    PartyProgress,
    Refused,
    Released,
    Reliability,
    Remark,
    Scheduled,
    SchemeBegun,
    SchemeDone,
    StepDone,
    Stopped,
    Waiting,
)

SAMPLES: tuple[Event, ...] = (
    Aligned("ann", 4000, 3200, 800),
    Scheduled("ann", 20, 128, 6, 26_000, 64),
    Joined("ann", 0),
    Joined("bob", 17),
    Waiting("ann", ("bob", "cyd")),
    Released("ann", "push", 3),
    StepDone("ann", 3, 1),
    EpochDone("ann", 1),
    Evaluated("ann", 1, 2.5, 0.6, 0.5, 0.9),
    Evaluated("ann", 2, 3.5),
    Evaluated("ann", 3, 4.5, 0.5, 0.4, None, {"auc": None, "accuracy": 0.5}, chosen=True),
    Compared(
        party="ann",
        epoch=3,
        metric="auc",
        joint=0.9,
        alone=0.8,
        gain=0.1,
        low=0.08,
        high=0.12,
        rows=800,
        resamples=500,
        seconds=1.25,
        figures={"auc": 0.8},
        convergence=None,
        text="joint brings +0.100 (0.080 to 0.120) AUC over ann alone",
    ),
    ComparedVersion(
        party="ann",
        epoch=3,
        version="0123456789abcdef" * 2,
        run="october",
        metric="auc",
        new=0.9,
        old=0.8,
        gain=0.1,
        low=0.08,
        high=0.12,
        rows=800,
        test_loss=0.5,
        figures={"auc": 0.8},
        promoted=None,
        text="joint brings +0.100 (0.080 to 0.120) AUC over version 01234567 (run october)",
    ),
    Reliability("ann", 3, (5.0, 0.0), (0.25, None), (0.2, None), (2.0, 1.0)),
    EpochChosen("ann", 1),
    Convergence("ann", "falling", "not converged: the loss still falls 3 % an epoch; raise epochs"),
    LargestPart("server", ("bob",), 2, 3.5, 1.25),
    Refused("bob", "push", "party 'bob' pushed step 4 before step 3"),
    Stopped("ann", 80, "the privacy budget of party 'bob' is spent"),
    PartyProgress("ann", 8, 40, 10, "waiting", ("bob",)),
    SchemeBegun("ann", "LR", "pooled", 7),
    SchemeDone("ann", "LR", "pooled", 7, 0.5, 0.9),
    Remark("server", "serving run 'shop' at 127.0.0.1:7443"),
    Finished("ann", 12.25),
)
ANY_EVENT = st.from_type(Event)


def plain_console() -> tuple[Console, io.StringIO]:
    """A console that is no terminal, and what it prints."""
    output = io.StringIO()
    return Console(file=output, width=60), output


def terminal_console() -> tuple[Console, io.StringIO]:
    """A console that takes itself for a terminal, and what it prints."""
    output = io.StringIO()
    return Console(file=output, width=120, force_terminal=True, legacy_windows=False), output


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now
