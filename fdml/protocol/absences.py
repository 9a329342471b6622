"""Which party a step is trained without, so that the others learn to do without it: drawn from the run's seed.

All sides draw the same. The drawn party pushes zeros, which tell nothing of its rows, and learns nothing in that step.
So sums, masks and the server stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fdml.protocol.messages import Gradient, Total
from fdml.protocol.schedule import Schedule


@dataclass(frozen=True)
class Absences:
    """The draws of a run. The label party is never drawn: without it nobody can read a score."""

    schedule: Schedule | None = None
    """None where all parties always take part."""
    parties: tuple[str, ...] = ()
    """All, in the run's order."""
    label_party: str = ""
    even_echo: bool = False
    """Whether the echo is the same in all steps: for a model that learns from the totals of several at once."""

    def at(self, step: int) -> str | None:
        """The party without which a step is trained; None if all take part."""
        number = None if self.schedule is None else self.schedule.absent(step)
        if number is None:
            return None
        others = [party for party in self.parties if party != self.label_party]
        return others[number % len(others)]

    def echo(self, whole: float, answer: Total | Gradient) -> float:
        """The echo of an answer that may lack parties, where it is `whole` with all of them.

        1 is the party itself; each other that takes part has an equal share of the rest. A stale part may be of a
        step with another draw, or with none.
        """
        if self.schedule is None or self.even_echo:
            return whole
        made = answer.pushed_at if isinstance(answer, Total) else [answer.step] * len(self.parties)
        absent = sum(step >= 0 and self.at(step) == party for party, step in zip(self.parties, made, strict=True))
        return 1.0 + (whole - 1.0) * (1.0 - absent / (len(self.parties) - 1)) if absent else whole


NOBODY = Absences()
"""Where all parties always take part."""


def absences_of(schedule: Schedule, parties: Sequence[str], label_party: str, *, even_echo: bool = False) -> Absences:
    """The draws of a run; a party without others is never left alone."""
    if not schedule.absence or len(parties) < 2:
        return NOBODY
    return Absences(schedule, tuple(parties), label_party, even_echo)
