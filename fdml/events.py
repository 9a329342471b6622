"""What happened, for whoever listens: terminal, history, page, log. Every side emits the same kinds of events."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """What a server may report of one of many runs."""

    run: str = ""
    """Which one, at a server that stays up; empty where there is one run alone."""


@dataclass(frozen=True)
class Aligned:
    """A party knows which of its rows all parties share."""

    party: str
    shared: int
    train: int
    held_out: int
    lost: dict[str, int] = field(default_factory=dict)
    """By reason, how many rows of its training file the run does not use."""


@dataclass(frozen=True)
class Scheduled:
    """How a party is going to train: what every "auto" of the run came to."""

    party: str
    epochs: int
    batch_size: int
    blocks: int
    """Exchanges of an epoch."""
    rows: int
    value_bits: int


@dataclass(frozen=True)
class Joined(OfRun):
    """The server has let a party in."""

    party: str
    resumed_at: int
    """The step the party goes on from; 0 for a fresh start."""


@dataclass(frozen=True)
class Waiting(OfRun):
    """A party can do nothing until others have done their part."""

    party: str
    waits_for: tuple[str, ...]
    """Other parties, or "server"."""
    why: str = ""
    """What is known of them, for a person; where it is given, the wait is long and this is said again and again."""
    seconds: float = 0.0
    """Of this wait, where `why` is given."""


@dataclass(frozen=True)
class Released:
    """A value has left a party, counted by its ledger."""

    party: str
    purpose: str
    """"push", "held-out" or "gradient"."""
    number: int
    """The step, or the epoch of held-out predictions."""


@dataclass(frozen=True)
class StepDone:
    """A party has learned from one block."""

    party: str
    step: int
    lag: int
    """By how many steps the oldest part of its total was stale."""


@dataclass(frozen=True)
class EpochDone:
    """A party has visited every block once more."""

    party: str
    epoch: int
    """Counted from 1."""


@dataclass(frozen=True)
class Compared:
    """The label party has compared the joint model with one trained on its own features alone, on the same rows."""

    party: str
    epoch: int
    """Whose joint model it is."""
    metric: str
    """The task's own, by which they are compared."""
    joint: float | None
    alone: float | None
    gain: float | None
    """Of the joint model over the other."""
    low: float | None
    """The gain is between `low` and `high` in 95 % of resamples of the held-out rows; None where that is not known."""
    high: float | None
    rows: int
    """Held-out rows."""
    resamples: int
    seconds: float
    """Of training and testing the model of the label party's own features."""
    figures: dict[str, float | None]
    """All that was found of that model, by name."""
    convergence: str | None
    """Whether its training has converged; None where there were too few epochs to tell."""
    text: str
    """For a person."""


@dataclass(frozen=True)
class ComparedVersion:
    """The label party has compared this run's model with an earlier version, on the same held-out rows."""

    party: str
    epoch: int
    """Whose model it is."""
    version: str
    """The earlier one."""
    run: str
    """Which had made it."""
    metric: str
    """By which they are compared."""
    new: float | None
    old: float | None
    gain: float | None
    """How much better the new one is; of a loss, how much lower."""
    low: float | None
    """Of the task's own metric: the gain is between `low` and `high` in 95 % of resamples of the held-out rows."""
    high: float | None
    rows: int
    test_loss: float | None
    """Of the earlier version."""
    figures: dict[str, float | None]
    """All that was found of the earlier version, by name."""
    promoted: bool | None
    """Whether the rule of the run promotes its version; None where there is none."""
    text: str
    """For a person."""


@dataclass(frozen=True)
class Reliability:
    """The label party has held its probabilities of held-out rows against what came true. Nothing of it leaves."""

    party: str
    epoch: int
    """Whose model it is."""
    rows: tuple[float, ...]
    """The weight of the rows in ten bins of probability, each of a tenth, from 0 up."""
    predicted: tuple[float | None, ...]
    """The mean probability in each bin; None where it is empty."""
    observed: tuple[float | None, ...]
    """The share of positive rows in each bin."""
    lift: tuple[float, ...]
    """How many times more frequent positive rows are among the 10, 20, ... 100 % with the highest scores."""


@dataclass(frozen=True)
class Evaluated(OfRun):
    """The label party has scored the held-out rows. The server knows the epoch alone."""

    party: str
    epoch: int
    seconds: float | None = None
    train_loss: float | None = None
    """Mean loss of the epoch's totals as they were received."""
    test_loss: float | None = None
    test_metric: float | None = None
    """AUC, accuracy or R2, by task; None where it is not defined or not known here."""
    figures: dict[str, float | None] = field(default_factory=dict)
    """All that the label party found of the held-out rows, by name, `test_metric` first; None where not defined."""
    chosen: bool = False
    """Whether held-out rows have chosen this epoch's model: these figures are then a little too good."""
    compared: Compared | None = None
    """At the label party, of the epoch whose model stays: what it brings over training alone."""
    earlier: ComparedVersion | None = None
    """The same over an earlier version."""
    reliability: Reliability | None = None
    """How well its probabilities came true, at the label party of a binary task."""


@dataclass(frozen=True)
class EpochChosen:
    """Held-out rows have chosen the model of this epoch, which the party keeps."""

    party: str
    epoch: int


@dataclass(frozen=True)
class Convergence:
    """Whether training has converged, by the label party's losses."""

    party: str
    trend: str
    """"converged", "falling" or "diverged"."""
    text: str
    """For a person; empty where it has converged."""


@dataclass(frozen=True)
class LargestPart(OfRun):
    """How large predictions were in an epoch: one party's as a plain server sees them, all others' sum at a party."""

    party: str
    """Who has seen it; "server" for the server."""
    of: tuple[str, ...]
    """Whose predictions they are."""
    epoch: int
    """Counted from 1."""
    largest: float
    before: float | None = None
    """The same in the epoch before; None where that is not known."""


@dataclass(frozen=True)
class Refused(OfRun):
    """The server has refused a message, and changed nothing."""

    party: str
    """Whose message it was; empty where the sender could not be named."""
    kind: str
    reason: str


@dataclass(frozen=True)
class Stopped:
    """Training ends before its last step: a party may release nothing more, or held-out rows gain nothing."""

    party: str
    step: int
    reason: str


@dataclass(frozen=True)
class PartyProgress(OfRun):
    """Where a party is, as its server sees it: told at most once a second, and only where something has changed."""

    party: str
    step: int
    """Steps that it was sent the totals of."""
    steps: int
    """Of the whole run; 0 until that is known."""
    epochs: int
    """Of the whole run; 0 until that is known."""
    state: str
    """In words."""
    waits_for: tuple[str, ...] = ()
    """Other parties; empty if it does not wait."""


@dataclass(frozen=True)
class SchemeBegun:
    """A comparison begins to train one kind of model under one scheme."""

    party: str
    """The label party."""
    model: str
    scheme: str
    seed: int


@dataclass(frozen=True)
class SchemeDone:
    """A comparison has trained one kind of model under one scheme; figures are of its last epoch."""

    party: str
    model: str
    scheme: str
    seed: int
    test_loss: float
    test_metric: float


@dataclass(frozen=True)
class Remark:
    """A sentence for a person."""

    party: str
    """Who says it; "server" for the server."""
    text: str


@dataclass(frozen=True)
class Finished(OfRun):
    """A side has done its whole part of the run."""

    party: str
    seconds: float | None = None
    """Of its training; None where only the party knows."""


Event = (
    Aligned
    | Scheduled
    | Joined
    | Waiting
    | Released
    | StepDone
    | EpochDone
    | Evaluated
    | Compared
    | ComparedVersion
    | Reliability
    | EpochChosen
    | Convergence
    | LargestPart
    | Refused
    | Stopped
    | PartyProgress
    | SchemeBegun
    | SchemeDone
    | Remark
    | Finished
)
"""Anything that a side of a run reports; each kind is a frozen dataclass of its own."""
Listener = Callable[[Event], None]
"""Called with every event, one after the other."""
