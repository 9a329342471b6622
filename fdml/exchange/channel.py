"""The seam between a party and whatever carries its messages."""

from __future__ import annotations

from typing import Protocol

from fdml.exchange.messages import Release, Total


class Channel(Protocol):
    """One party's line to the server. The party knows nothing else of the network."""

    def send(self, step: int, release: Release) -> None:
        """Push the predictions for a step; steps are pushed in order, none left out."""
        ...

    def receive(self, step: int) -> Total:
        """Wait for the total of a step this party has pushed; each may be received once.

        Raises `WaitedTooLong` with the name of the silent party, or `PartyFailed`.
        """
        ...

    def keep(self, step: int) -> None:
        """Say that no total up to this step will ever be asked for again."""
        ...
