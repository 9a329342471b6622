"""Parties that come, evaluate and finish: what listeners of the server are told, and what an older process is."""

from __future__ import annotations

from fdml import events
from fdml.errors import MessageRefused, Refusal
from fdml.protocol.messages import Finished, Hello, SealedMetrics


def event_of(party: str, message: Hello | SealedMetrics | Finished) -> events.Event:
    """What listeners of the server learn of a message."""
    match message:
        case Hello():
            return events.Joined(party, message.done + 1)
        case SealedMetrics(epoch):
            return events.Evaluated(party, epoch)
        case Finished():
            return events.Finished(party)


def replaced(party: str) -> MessageRefused:
    """What an older process of a party is told."""
    return MessageRefused(f"party {party!r} was started again since; this older process ends here", Refusal.FENCED)
