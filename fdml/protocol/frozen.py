"""Which parties learn in the first epochs of a run that goes on from a version: those that are new to it.

The others push their predictions as ever and learn nothing. All sides know it from the settings, so sums, masks and
the server stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class FrozenEpochs:
    """The epochs in which all parties but the new ones are frozen."""

    epochs: int = 0
    """Of the beginning; 0 where all learn from the first step on."""
    parties: int = 1
    """How many the run has."""
    new: tuple[str, ...] = ()
    """Those that the version was trained without."""

    def learns(self, party: str, epoch: int) -> bool:
        """Whether a party learns in an epoch; epochs count from 0."""
        return epoch >= self.epochs or party in self.new

    def echo(self, whole: float, epoch: int) -> float:
        """The echo in an epoch, where it is `whole` with all parties learning.

        1 is the party itself; each other that learns has an equal share of the rest.
        """
        if epoch >= self.epochs or self.parties < 2:
            return whole
        return 1.0 + (whole - 1.0) * (len(self.new) - 1) / (self.parties - 1)


NEVER_FROZEN = FrozenEpochs()
"""Where all parties always learn."""
