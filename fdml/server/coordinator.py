"""The server without a network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fdml.data.schedule import Schedule, Visit
from fdml.errors import MessageRefused
from fdml.exchange.fixed_point import LARGEST, LARGEST_CODE, Codes, decode
from fdml.exchange.messages import Push, Reply, Total
from fdml.server.clocks import Clocks
from fdml.server.matrix import PredictionMatrix


class Coordinator:
    """All of the server's state, moved only by `handle`.

    It owns no socket, thread or clock: the caller brings messages in any order
    and sends whatever comes back. A party's part of the total of step t is what
    it last pushed for that block at step t or before, never later: so a party
    that is behind reads what the others pushed for its own step, and at
    staleness 0 every total is the sum of exactly that step's pushes.
    """

    def __init__(self, parties: Sequence[str], schedule: Schedule, outputs: int, staleness: int) -> None:
        self._parties = tuple(parties)
        self.schedule = schedule
        self._outputs = outputs
        self._clocks = Clocks(len(parties), staleness)
        self._matrix = PredictionMatrix(len(parties), schedule.blocks, schedule.rows, outputs)
        self._recent: list[dict[int, Codes]] = [{} for _ in parties]
        """Pushes that may not be written to the matrix yet, as some party is still to be served that step."""

    def handle(self, sender: str, message: Push) -> list[Reply]:
        """Take in one push; returns the totals that may be sent now. A refused message changes nothing."""
        party = self._number(sender)
        values = self._checked(sender, party, message)
        self._recent[party][message.step] = values
        self._clocks.pushed[party] = message.step
        replies = self._serve()
        self._settle()
        return replies

    def waits_for(self, party: str) -> list[str]:
        """The names of the parties whose push this party's next total waits for."""
        return [self._parties[other] for other in self._clocks.holding_up(self._number(party))]

    @property
    def matrix(self) -> PredictionMatrix:
        """The prediction matrix, to be looked at."""
        return self._matrix

    def _number(self, party: str) -> int:
        if party not in self._parties:
            raise MessageRefused(f"{party!r} is not a party of this run; it has {', '.join(self._parties)}")
        return self._parties.index(party)

    def _checked(self, sender: str, party: int, push: Push) -> Codes:
        expected = self._clocks.pushed[party] + 1
        if push.step != expected or push.step >= self.schedule.steps:
            raise MessageRefused(
                f"party {sender!r} pushed step {push.step}; its next is {expected} of {self.schedule.steps}"
            )
        values = push.release.values
        shape = (self.schedule.visit(push.step).size, self._outputs)
        if values.shape != shape or values.dtype != np.int64:
            raise MessageRefused(
                f"party {sender!r} pushed {values.dtype} of shape {values.shape} for step {push.step}; "
                f"the block takes int64 of shape {shape}"
            )
        for extreme in (values.min(initial=0), values.max(initial=0)):
            if abs(int(extreme)) > LARGEST_CODE:
                raise MessageRefused(
                    f"party {sender!r} pushed a prediction of {decode(extreme):g} for step {push.step}; "
                    f"at most {LARGEST:g} can be exchanged"
                )
        return values

    def _serve(self) -> list[Reply]:
        replies = []
        for party, name in enumerate(self._parties):
            while self._clocks.may_serve(party):
                step = self._clocks.served[party] + 1
                replies.append(Reply(name, self._total(step)))
                self._clocks.served[party] = step
        return replies

    def _total(self, step: int) -> Total:
        visit = self.schedule.visit(step)
        values = np.zeros((visit.size, self._outputs), np.int64)
        made_at = []
        for party in range(len(self._parties)):
            made, part = self._part(party, step, visit)
            values += part
            made_at.append(made)
        return Total(step, values, tuple(made_at))

    def _part(self, party: int, step: int, visit: Visit) -> tuple[int, Codes]:
        recent = self._recent[party]
        same_block = [at for at in recent if at <= step and self.schedule.visit(at).block == visit.block]
        if same_block:
            return max(same_block), recent[max(same_block)]
        return self._matrix.read(party, visit)

    def _settle(self) -> None:
        for party, recent in enumerate(self._recent):
            for step in sorted(at for at in recent if at <= self._clocks.settled):
                self._matrix.write(party, self.schedule.visit(step), step, recent.pop(step))
