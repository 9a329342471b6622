"""A party's models at the ends of epochs, kept until it is known which epoch was the best."""

from __future__ import annotations

from collections.abc import Mapping

from fdml.errors import ExchangeError
from fdml.models.model import State
from fdml.protocol.schedule import Schedule


class EpochSnapshots:
    """The models that may still turn out to be the best; `stop_after` epochs without gain end the run.

    No party is told that an earlier epoch is out of the question. But the label party pushes on only while training
    goes on, so a total of its later pushes says that some epoch of the last `stop_after` is the best so far.
    """

    def __init__(self, stop_after: int, schedule: Schedule, *, lookahead: int, staleness: int) -> None:
        self._stop_after = stop_after
        self._schedule = schedule
        self._lookahead = lookahead
        self._staleness = staleness
        self.states: dict[int, State] = {}
        """By epoch."""

    def add(self, epoch: int, state: State) -> None:
        """Keep the model at the end of an epoch, and drop those that cannot be the best."""
        self.states[epoch] = state
        last_pushed = epoch * self._schedule.blocks - 1 - self._staleness
        learned = last_pushed - 1 - self._lookahead
        gained_since = self._schedule.epochs_scored(learned, self._lookahead) - self._stop_after
        for old in [each for each in self.states if each <= gained_since]:
            del self.states[old]

    def restore(self, states: Mapping[int, State]) -> None:
        """Go on with those of an earlier start."""
        self.states = dict(states)

    def of(self, epoch: int) -> State:
        """The model at the end of an epoch, or an error: then the label party has named one that cannot be."""
        if epoch not in self.states:
            known = ", ".join(map(str, sorted(self.states))) or "none"
            raise ExchangeError(
                f"the label party has named epoch {epoch} as the best, and this party has the models of {known}; see "
                f"that all sides run the same version of fdml, then give the run a new name at every side"
            )
        return self.states[epoch]
