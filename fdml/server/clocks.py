"""Who is at which step."""

from __future__ import annotations


class Clocks:
    """For every party the last step it pushed, was served, and has a checkpoint of; -1 before the first.

    The steps before `complete_before` are served only when every party has pushed them.
    """

    def __init__(self, parties: int, staleness: int, complete_before: int = 0) -> None:
        self._staleness = staleness
        self._complete_before = complete_before
        self.pushed = [-1] * parties
        self.served = [-1] * parties
        self.checkpointed = [-1] * parties

    @property
    def served_to_all(self) -> int:
        """The last step that every party has been served: nobody will ask for it again."""
        return min(self.served)

    def may_serve(self, party: int) -> bool:
        """Whether the party has pushed its next step and is not too far ahead for its total."""
        step = self.served[party] + 1
        return step <= self.pushed[party] and step - min(self.pushed) <= self._allowed(step)

    def to_serve(self) -> list[int]:
        """The parties that may be served now, in their order: after most pushes it is nobody."""
        steps = enumerate(zip(self.served, self.pushed, strict=True))
        return [party for party, (served, pushed) in steps if served < pushed and self.may_serve(party)]

    def blockers(self, party: int) -> list[int]:
        """Whose push the party's next total waits for; itself if it has not pushed that step."""
        step = self.served[party] + 1
        if step > self.pushed[party]:
            return [party]
        return [other for other, pushed in enumerate(self.pushed) if step - pushed > self._allowed(step)]

    def _allowed(self, step: int) -> int:
        """By how many steps a part of this step's total may be behind."""
        return 0 if step < self._complete_before else self._staleness
