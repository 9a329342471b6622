"""What a server has refused: all of it counted, the same text told once."""

from __future__ import annotations

from collections import Counter

from fdml import events
from fdml.errors import MessageRefused
from fdml.protocol.quoting import shown

_MOST_REPORTED = 100
"""Different refusals that become events; all are counted."""
_LONGEST_REPORT = 400
"""Letters of a refusal that becomes an event: most are the server's own."""


class Refusals:
    """Counts refusals by their kind, and makes events of those that were not told before."""

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._reported: set[str] = set()

    def note(self, refused: MessageRefused, party: str = "") -> list[events.Event]:
        """Count one more; the event to tell, if it is new."""
        self._counts[refused.refusal.name.lower()] += 1
        text = shown(str(refused), _LONGEST_REPORT)
        if text in self._reported or len(self._reported) >= _MOST_REPORTED:
            return []
        self._reported.add(text)
        return [events.Refused(party, refused.refusal.name.lower(), text)]
