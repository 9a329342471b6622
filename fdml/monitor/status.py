"""The status of a run as its server sees it: who is where, who waits for whom and since when."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from fdml.protocol.certificates import SERVER
from fdml.protocol.messages import SealedMetrics


@dataclass(frozen=True)
class PartyStatus:
    """One party of a run."""

    name: str
    connected: bool = False
    pushed: int = -1
    """The last step that the party has pushed predictions for; -1 before the first."""
    served: int = -1
    """The last step that the party was sent the total of; -1 before the first."""
    waits_for: tuple[str, ...] = ()
    """The parties that this one is blocked on; empty if it is not."""
    waiting_seconds: float = 0.0
    """Length of the present wait."""
    waited_seconds: float = 0.0
    """Length of all waits together, the present one included."""
    bytes_in: int = 0
    """Bytes from the party since the server was started."""
    bytes_out: int = 0
    incarnation: int = 0
    """Number of the party's present start, counted from 1; 0 before it has joined."""
    finished: bool = False
    aligning: bool = False
    """Connected for alignment, not for training yet."""
    aligned: bool = False
    """The shared rows are known to the server."""
    largest_prediction: float | None = None
    """The largest that the party has pushed in its present epoch; None where the server is blind, or in the eyes of
    another party."""
    stands_out: bool = False
    """Whether its predictions are far larger than before, or than those of the others."""
    gone_seconds: float = 0.0
    """Since the party was last here; 0 if it is, or if this server has never seen it."""

    @property
    def state(self) -> str:
        """What the party does, in words."""
        if self.finished:
            return "finished"
        if self.aligning:
            return "aligned" if self.aligned and not self.waits_for else "aligning"
        if not self.connected:
            if self.aligned and not self.incarnation:
                return "aligned, not joined yet"
            if self.gone_seconds:
                return f"gone for {self.gone_seconds:.0f} s"
            return "gone" if self.incarnation else "not here yet"
        return "waiting" if self.waits_for else "training"


@dataclass(frozen=True)
class RunStatus:
    """A run and its parties, at one moment."""

    run: str
    steps: int = 0
    """Steps of the whole run; 0 until the labels are known."""
    parties: tuple[PartyStatus, ...] = ()
    history: tuple[SealedMetrics, ...] = ()
    """Metrics of every evaluated epoch, sealed for the parties."""
    refused: Mapping[str, int] = field(default_factory=dict)
    """Number of refused messages by reason."""

    def seen_by(self, caller: str) -> RunStatus:
        """What a party may see: how large the predictions of others are tells of each alone, so it sees its own only.

        The server, which has all predictions, sees all.
        """
        if caller == SERVER:
            return self
        parties = [each if each.name == caller else replace(each, largest_prediction=None) for each in self.parties]
        return replace(self, parties=tuple(parties))
