"""Someone whom a party waits for, as the server knows them: at work, gone, or not come yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fdml.protocol.quoting import shown

NEVER_SEEN = -1.0
_LONGEST_REFUSAL = 400
"""Letters: it says which setting differs, and both values."""


@dataclass(frozen=True)
class WaitedFor:
    """One party that another one waits for."""

    name: str
    silent_seconds: float = 0.0
    """Since the server last heard of it: 0 while it is here, below 0 if it has never come."""
    refusal: str = ""
    """Why the server has refused it; empty if it has not."""

    @property
    def is_missing(self) -> bool:
        """Whether it is not here, so that nobody knows how long it will take."""
        return self.silent_seconds != 0.0 or bool(self.refusal)

    @property
    def text(self) -> str:
        """For a person."""
        if self.refusal:
            return f"{self.name} was refused: {self.refusal}"
        if self.silent_seconds < 0.0:
            return f"{self.name} has not joined"
        return (
            f"{self.name} has been gone for {self.silent_seconds:.0f} s"
            if self.silent_seconds
            else f"{self.name} is at work"
        )


def waited_for(names: Sequence[str], silent_seconds: Sequence[float], refusals: Sequence[str]) -> tuple[WaitedFor, ...]:
    """Those of three lists as they travel, of one length; a refusal is the server's text, so it is cut."""
    each = zip(names, silent_seconds, refusals, strict=True)
    return tuple(WaitedFor(name, seconds, shown(refusal, _LONGEST_REFUSAL)) for name, seconds, refusal in each)


def as_lists(waited: Sequence[WaitedFor]) -> tuple[list[str], list[float], list[str]]:
    """What `waited_for` takes."""
    return [each.name for each in waited], [each.silent_seconds for each in waited], [each.refusal for each in waited]
