"""The seam between a party and whatever carries its messages."""

from __future__ import annotations

from typing import Protocol

from fdml.protocol.messages import Gradient, Push, Stop, Stopped, Total


class Channel(Protocol):
    """One party's line to the server. The party knows nothing else of the network."""

    def send(self, message: Push | Gradient | Stop) -> None:
        """Send what has passed the guard; steps are pushed in order, none left out."""
        ...

    def receive(self, step: int) -> Total | Gradient | Stopped:
        """Wait for the answer to a step this party has pushed; each may be received once.

        It is the total, or its gradient where labels are private, or that the run has ended before this step.
        Raises `PeerTimeout` with the name of the silent party, or `PartyFailed`.
        """
        ...

    def keep(self, step: int) -> None:
        """Say that no total up to this step will ever be asked for again."""
        ...
