"""A party's waits: whom it waits for and why, said again and again while it lasts."""

from __future__ import annotations

import math
from collections.abc import Iterable

from fdml.errors import ExchangeError, FdmlError, PeerTimeout
from fdml.events import Listener, Waiting
from fdml.protocol.certificates import SERVER
from fdml.protocol.waited_for import WaitedFor
from fdml.transport.grpc_endpoint import Endpoint, Trouble

REPORT_SECONDS = 10.0
"""How often a party that waits says so."""


class WaitReport:
    """What is known of the server and of the parties waited for, and how long some of them were missing.

    Before a run is under way only the time in which someone is missing counts, and at most `longest` seconds of it:
    parties that read their files may take as long as they need.
    """

    def __init__(
        self, endpoint: Endpoint, on_event: Listener, *, longest: float = math.inf, every: float = REPORT_SECONDS
    ) -> None:
        self.longest = longest
        self.every = every
        self._endpoint = endpoint
        self._on_event = on_event
        self._trouble: Trouble | None = Trouble(endpoint.target, "it never answered", called=endpoint.called)
        self._parties: tuple[WaitedFor, ...] = ()
        self._named: tuple[str, ...] = ()
        self._missing_seconds = 0.0

    def trouble(self, trouble: Trouble) -> None:
        """The server does not answer, or cannot do what it is asked."""
        self._trouble = trouble

    def answered(self) -> None:
        """The server has answered."""
        self._trouble = None

    def waits_for(self, parties: Iterable[WaitedFor]) -> None:
        """The server says whom this party waits for; listeners hear of every wait once, and of other names in it."""
        self._trouble, known = None, tuple(parties)
        if not known and not self._parties:  # as at every step of a run that goes on
            return
        self._parties = known
        names = tuple(each.name for each in self._parties)
        before, self._named = self._named, names
        if names and names != before:
            self._on_event(Waiting(self._endpoint.party, names))

    @property
    def is_over(self) -> bool:
        """Whether others were missing for as long as this party waits for a run to begin."""
        return self._missing_seconds >= self.longest

    def passed(self, seconds: float) -> None:
        """So many seconds of a wait have passed."""
        if self._trouble is not None or (self._parties and any(each.is_missing for each in self._parties)):
            self._missing_seconds += seconds

    def tell(self, seconds: float) -> None:
        """Tell listeners whom this party waits for and why; it has waited so long up to now."""
        self._on_event(Waiting(self._endpoint.party, self._names, self._why, seconds))

    def gave_up(self, seconds: float, what: str) -> FdmlError:
        """What to raise after a wait of so many seconds; `what` says for what, with a place for whom."""
        if self._trouble is not None:
            error: ExchangeError = self._trouble.gave_up(seconds)
            return error
        names = ", ".join(repr(name) for name in self._names)
        if self._names == (SERVER,):
            names = self._endpoint.place
        missing = ", ".join(each.text for each in self._parties if each.is_missing)
        return PeerTimeout(
            f"party {self._endpoint.party!r} waited {seconds:g} s {what.format(names)}{missing and f' ({missing})'}; "
            f"see what holds it up, then run the same command again: it goes on where it stopped"
        )

    @property
    def _names(self) -> tuple[str, ...]:
        if self._trouble is not None:
            return (self._endpoint.answers_as or SERVER,)
        return tuple(each.name for each in self._parties) or (SERVER,)

    @property
    def _why(self) -> str:
        if self._trouble is not None:
            return str(self._trouble)
        return ", ".join(each.text for each in self._parties) or f"{self._endpoint.place} is at work"
