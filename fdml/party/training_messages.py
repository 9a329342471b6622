"""What a party has received and not used yet."""

from __future__ import annotations

from fdml.errors import ExchangeError
from fdml.party.channel import Incoming
from fdml.protocol.messages import BestEpoch, Gradient, HeldOutTotal, Labels, Stopped, Total, Welcome
from fdml.protocol.row_pieces import complete

NO_GAIN = "the loss of held-out rows falls no more"
"""Why a run with `stop_after` ends early."""


class TrainingMessages:
    """Messages of the training part, kept until the session needs them; they may come before that."""

    def __init__(self, *, scores_again: bool = False) -> None:
        """`scores_again`: what an earlier start has scored is scored again, unless its figures were saved."""
        self._scores_again = scores_again
        self.labels: tuple[Labels, ...] | None = None
        """In pieces where they are many; None until all have come."""
        self.stored_labels: tuple[int, bytes] | None = None
        """How many pieces of its labels the server had when it let the label party in, and their digest."""
        self.held_out: dict[int, tuple[HeldOutTotal, ...]] = {}
        """Totals of held-out predictions that have come whole, by epoch: in pieces where there are many rows."""
        self._label_pieces: dict[int, Labels] = {}
        self._held_out_pieces: dict[int, dict[int, HeldOutTotal]] = {}
        self.best_epoch: BestEpoch | None = None
        self._answers: dict[int, Total | Gradient] = {}
        self._stopped: Stopped | None = None
        self._evaluated: set[int] = set()
        """Epochs whose metrics the server had before this start."""

    def add(self, message: Incoming) -> None:
        """Keep a message."""
        match message:
            case Total(step) | Gradient(step):
                self._answers[step] = message
            case HeldOutTotal(epoch):
                totals = complete(self._held_out_pieces.setdefault(epoch, {}), message)
                if totals is not None:
                    self.held_out[epoch] = totals
                    del self._held_out_pieces[epoch]
            case Labels():
                self.labels = complete(self._label_pieces, message)
            case Welcome(_, evaluated, stored, digest):
                self.stored_labels = self.stored_labels or (stored, digest)
                self._evaluated.update(() if self._scores_again else evaluated)
            case BestEpoch():
                self.best_epoch = message
            case Stopped(step=step):
                if self._stopped is None or step < self._stopped.step:
                    self._stopped = message
            case _:
                raise ExchangeError(
                    f"the server sent {type(message).__name__}, which has no place in training; see that both run "
                    f"the same version of fdml"
                )

    def answer(self, step: int) -> Total | Gradient | Stopped | None:
        """The answer to a step, given once; `Stopped` where the run ends before it; None if nothing has come."""
        answer = self._answers.pop(step, None)
        if answer is None and self._stopped is not None and step >= self._stopped.step:
            return self._stopped
        return answer

    @property
    def why_stopped(self) -> str:
        """Why the run ends early; empty if it does not."""
        if self._stopped is None:
            return ""
        if self._stopped.no_gain:
            return NO_GAIN
        return f"the privacy budget of party {self._stopped.party!r} is spent"

    def is_settled(self, epoch: int, blocks: int) -> bool:
        """Whether the total of an epoch has come, was scored by an earlier start, or never comes.

        It never comes if the run, of this many blocks an epoch, ended before all parties were through with the epoch.
        """
        never = self._stopped is not None and epoch * blocks > self._stopped.step
        return never or epoch in self.held_out or epoch in self._evaluated
