"""What a party's session asks of the driver that runs it. Effects are carried out one by one, in their order."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fdml.align.kept import Generation
from fdml.data.label_encoding import LabelEncoding
from fdml.events import Evaluated, Event, Released, Remark
from fdml.models.calibration import Calibration
from fdml.models.model import State
from fdml.party.alignment import SharedRows
from fdml.party.channel import ToServer
from fdml.party.checkpoint import Checkpoint, FinishedModel
from fdml.privacy.statement import Spent, Statement
from fdml.protocol.alignment_messages import RowsOffer
from fdml.protocol.messages import FromParty, Gradient, HeldOutPredictions, Push
from fdml.protocol.row_pieces import number_of
from fdml.settings import ModelSettings


@dataclass(frozen=True)
class Send:
    """Send a message; it stays in the channel's care until the server has stored it."""

    message: ToServer


@dataclass(frozen=True)
class Receive:
    """Wait for one message and deliver it."""

    what: str
    """What is waited for, with a place for whom."""


@dataclass(frozen=True)
class Flush:
    """Wait until the server has stored everything that was sent."""


@dataclass(frozen=True)
class SaveRowsOffer:
    """Store what this party offers to the run, and the state of its ids; durable before the next effect."""

    state: bytes
    offer: RowsOffer


@dataclass(frozen=True)
class SaveGeneration:
    """Keep a generation of the alignment, for all runs; durable before the next effect."""

    generation: Generation


@dataclass(frozen=True)
class SaveAlignment:
    """Store the rows of this run; durable before the next effect."""

    shared: SharedRows


@dataclass(frozen=True)
class SaveCheckpoint:
    """Store a checkpoint, with what the channel holds unacknowledged; durable before the next effect.

    What it has as unacknowledged itself is sent right after it.
    """

    checkpoint: Checkpoint


@dataclass(frozen=True)
class SaveResult:
    """Store the result; durable before the next effect."""

    result: FinishedModel


@dataclass(frozen=True)
class WriteStatement:
    """Write the account of what this run showed of this party."""

    statement: Statement


@dataclass(frozen=True)
class WriteBundle:
    """Write the trained model with all it needs to predict."""

    parameters: State
    calibration: Calibration
    labels: LabelEncoding | None
    """At the label party."""
    evaluated: Evaluated | None
    """What was found of this model, at the label party."""
    spent: tuple[Spent, ...]
    """What training has spent of the party's privacy budget."""
    alignment_hash: bytes
    model: ModelSettings
    """As trained: every "auto" replaced."""
    promoted: bool = False
    """Whether the rule of the run lets its version take the place of the one before."""
    width: int = 1
    """Floats of a local prediction."""


@dataclass(frozen=True)
class Emit:
    """Tell the listeners."""

    event: Event


@dataclass(frozen=True)
class PartyResult:
    """How a party's part in the run ended."""

    model_hash: bytes
    seconds: float
    """Of training, over all starts."""
    waited: float
    """Seconds this start has waited for messages."""
    resumed_at: int
    """The step it went on from; 0 for a fresh start."""
    bundle: Path | None = None
    """Where the model was written."""
    convergence: str | None = None
    """At the label party: "converged", "falling" or "diverged"; None where it is not known."""


Effect = (
    Send
    | Receive
    | Flush
    | SaveRowsOffer
    | SaveGeneration
    | SaveAlignment
    | SaveCheckpoint
    | SaveResult
    | WriteStatement
    | WriteBundle
    | Emit
)
T = TypeVar("T")
Work = Generator[Effect, None, T]
"""Part of a session's work: it yields effects and returns a value."""


def remark(party: str, text: str) -> Emit:
    """A sentence for a person."""
    return Emit(Remark(party, text))


def send_all(party: str, messages: Iterable[FromParty]) -> Work[None]:
    """Send messages, and say what is released by them."""
    for message in messages:
        yield Send(message)
        match message:
            case Push(step):
                yield Emit(Released(party, "push", step))
            case Gradient(step):
                yield Emit(Released(party, "gradient", step))
            case HeldOutPredictions(epoch) if not number_of(message):  # a release is one in however many pieces
                yield Emit(Released(party, "held-out", epoch))
