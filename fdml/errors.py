"""Every error fdml raises, as one tree.

FdmlError
├── SettingsError         cannot work as set; raised before any training
├── DataError             a file or array that cannot be used as it is
│   └── LabelError        labels of the wrong kind for the task
├── AlignmentError        parties disagree about their shared rows
├── ExchangeError         the line to the other side failed
│   ├── MessageRefused    a message that breaks the protocol; nothing was changed
│   ├── ServerUnreachable the server did not answer
│   └── PartyFailed       another party of the run stopped with an error
├── PeerTimeout         names the party waited for
├── WorkerLost            a task of this party's own workers was lost again and again
├── StateCorrupt          saved state that cannot be trusted
├── PrivacyBudgetSpent    the next release would exceed the agreed epsilon
├── TrainingDiverged      predictions left the range that can be exchanged
├── RequestRefused        an HTTP request without an answer; it has the status
├── InvariantBroken           fdml broke a promise of its own in a simulated run
└── MissingExtra          an optional dependency is not installed

Errors about values are also `ValueError`, as scikit-learn's conventions ask.
"""

from enum import Enum

NO_FRESH = "starting over with `fresh` is gone, and nothing is overwritten: give the run a new name in run.toml"
"""What whoever asks for it is told."""


class FdmlError(Exception):
    """Something fdml can explain: the message names the value and what to do."""


class SettingsError(FdmlError, ValueError):
    """The settings cannot work; raised before any training."""


class DataError(FdmlError, ValueError):
    """A file or array that cannot be used as it is."""


class LabelError(DataError):
    """Labels of the wrong kind for the task."""


class AlignmentError(FdmlError, ValueError):
    """The parties disagree about their shared rows."""


class ExchangeError(FdmlError):
    """The line to the other side failed."""


class Refusal(Enum):
    """Why a message was refused."""

    UNAUTHENTICATED = "no certificate of this run"
    NOT_PERMITTED = "not this party's to say"
    MISMATCH = "the two sides mean different runs"
    INVALID = "not a message that makes sense"
    CONFLICT = "differs from what was said before"
    GAP = "out of turn"
    FENCED = "from a process that was replaced"
    TOO_LARGE = "over the size limit"
    NOT_STORED = "the server's disk did not take it"
    NO_RUN = "there is no such run, or it is over"


class MessageRefused(ExchangeError):
    """A message broke the protocol; the receiver's state is as it was before."""

    def __init__(self, message: str, refusal: Refusal) -> None:
        super().__init__(message)
        self.refusal = refusal


class ServerUnreachable(ExchangeError):
    """The server did not answer within the run's peer_timeout."""


class PartyFailed(ExchangeError):
    """Another party of the run stopped with an error."""


class PeerTimeout(FdmlError):
    """A wait passed its deadline; the message names the party waited for."""


class WorkerLost(FdmlError):
    """A task of this party's own workers was lost again and again; the message names the machine."""


class StateCorrupt(FdmlError):
    """Saved state is damaged beyond what a crash can do."""


class TrainingDiverged(FdmlError, ValueError):
    """Predictions grew past what can be exchanged, or are no longer numbers."""


class PrivacyBudgetSpent(FdmlError):
    """The next release would exceed the agreed epsilon; it was not made and nothing was counted."""


class RequestRefused(FdmlError):
    """An HTTP request gets no answer; the message names the value or the party."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class InvariantBroken(FdmlError):
    """A simulated run broke a promise; the message says which, and how to see it again."""


class MissingExtra(FdmlError, ImportError):
    """An optional dependency is not installed."""
