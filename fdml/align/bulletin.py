"""The seam between a party that looks for its shared rows and whatever carries its notices."""

from __future__ import annotations

from typing import Protocol

from fdml.protocol.alignment_messages import SERVER, AlignmentMessage, N


class BulletinBoard(Protocol):
    """One party's view of the server's board. The party knows nothing else of the network."""

    def post(self, notice: AlignmentMessage, to: str = SERVER, about: str = "") -> None:
        """Put up a notice; it is durable on return. The same bytes may be posted again, others are refused."""
        ...

    def fetch(self, kind: type[N], sender: str, about: str = "") -> N:
        """Wait for a notice for this party, at most as long as the run's peer_timeout.

        Raises `PeerTimeout` with the names of those that it waited for.
        """
        ...
