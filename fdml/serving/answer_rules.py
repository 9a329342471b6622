"""What a party's own policy says of questions: who is answered, until when, and how many rows in an hour.

It narrows what run.toml allows, and is read with every question.
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fdml.serving.reasons import NOT_ANSWERED, TOO_OFTEN

_HOUR, _MINUTE = 3600.0, 60.0


@dataclass(frozen=True)
class AnswerRules:
    """`[policy]` of party.toml, as far as it is about questions; None allows everything."""

    askers: tuple[str, ...] | None = None
    until: datetime.date | None = None
    """The last day on which questions are answered, in this machine's time."""
    rows_per_hour: int | None = None
    """The most rows of which one asker is told within an hour."""

    def why_not(self, asker: str, today: datetime.date) -> str:
        """Why an asker is not answered at all; empty where it is."""
        if self.askers is not None and asker not in self.askers:
            return f"{NOT_ANSWERED} {asker} (policy.askers)"
        if self.until is not None and today > self.until:
            return f"{NOT_ANSWERED} after {self.until} (policy.answer_until)"
        return ""


class AnsweredRows:
    """How many rows each asker was told of in the last hour, to the minute. A restart begins anew."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._minutes: dict[str, dict[int, int]] = {}
        self._lock = threading.Lock()

    def take(self, asker: str, rows: int, most: int | None) -> str:
        """Count rows that an asker is to be told of, or say why that would be too many; then none are counted."""
        if most is None:
            return ""
        with self._lock:
            now = self._clock()
            first = (now - _HOUR) // _MINUTE
            known = {minute: each for minute, each in self._minutes.get(asker, {}).items() if minute >= first}
            told = sum(known.values())
            if told + rows > most:
                return (
                    f"{TOO_OFTEN} {most} rows an hour (policy.answers_per_hour), of which {max(most - told, 0)} are "
                    f"left; ask for fewer, or later"
                )
            minute = int(now // _MINUTE)
            known[minute] = known.get(minute, 0) + rows
            self._minutes[asker] = known
        return ""
