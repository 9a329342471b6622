"""The server's arithmetic, without a network."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.data.schedule import Schedule, Visit
from fdml.errors import MessageRefused, Refusal
from fdml.exchange.fixed_point import LARGEST, LARGEST_CODE, Codes, decode
from fdml.exchange.messages import Kept, Push, Reply, Total
from fdml.server.clocks import Clocks
from fdml.server.matrix import PredictionMatrix

_DIGEST_BYTES = 16


class Coordinator:
    """The prediction matrix and who may be served what, moved only by `handle`.

    It owns no socket, thread or clock: the caller brings messages in any order
    and sends whatever comes back. A party's part of the total of step t is what
    it last pushed for that block at step t or before, never later: so a party
    that is behind reads what the others pushed for its own step, and at
    staleness 0 every total is the sum of exactly that step's pushes.

    A total stays as it was first made until its party has kept its state after
    that step, so a party that starts again is served the same totals again.
    """

    def __init__(self, parties: Sequence[str], schedule: Schedule, outputs: int, staleness: int) -> None:
        self._parties = tuple(parties)
        self.schedule = schedule
        self._outputs = outputs
        self._clocks = Clocks(len(parties), staleness)
        self._matrix = PredictionMatrix(len(parties), schedule.blocks, schedule.rows, outputs)
        self._recent: list[dict[int, Codes]] = [{} for _ in parties]
        """Pushes that may not be written to the matrix yet, as some party is still to be served that step."""
        self._totals: list[dict[int, Total]] = [{} for _ in parties]
        """Totals that a party was served and has not kept its state after."""
        self._digests: list[dict[int, bytes]] = [{} for _ in parties]
        """Of the pushes a party might repeat."""

    def handle(self, sender: str, message: Push | Kept) -> list[Reply]:
        """Take in one message; returns the totals that may be sent now. A refused message changes nothing."""
        party = self._number(sender)
        match message:
            case Push(step, release):
                if step <= self._clocks.pushed[party]:
                    self._check_repeated(sender, party, step, release.values)
                    return []
                values = self._checked(sender, party, step, release.values)
                self._recent[party][step] = values
                self._digests[party][step] = _digest(values)
                self._clocks.pushed[party] = step
                replies = self._serve()
                self._settle()
                return replies
            case Kept(step):
                self._keep(sender, party, step)
                return []

    def resend(self, party: str, done: int) -> list[Reply]:
        """The totals after step `done` that the party was already served, as they were."""
        totals = self._totals[self._number(party)]
        return [Reply(party, totals[step]) for step in sorted(totals) if step > done]

    def pushed(self, party: str) -> int:
        """The last step a party has pushed."""
        return self._clocks.pushed[self._number(party)]

    def served(self, party: str) -> int:
        """The last step whose total a party was served."""
        return self._clocks.served[self._number(party)]

    def kept(self, party: str) -> int:
        """The step after which a party has its state safe: totals up to it are forgotten."""
        return self._clocks.kept[self._number(party)]

    def waits_for(self, party: str) -> list[str]:
        """The names of the parties whose push this party's next total waits for."""
        return [self._parties[other] for other in self._clocks.holding_up(self._number(party))]

    @property
    def matrix(self) -> PredictionMatrix:
        """The prediction matrix, to be looked at."""
        return self._matrix

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        arrays = {
            "clocks": np.array([self._clocks.pushed, self._clocks.served, self._clocks.kept]),
            **self._matrix.state(),
        }
        for party in range(len(self._parties)):
            for step, values in self._recent[party].items():
                arrays[f"recent/{party}/{step}"] = values
            for step, total in self._totals[party].items():
                arrays[f"total/{party}/{step}"] = total.values
                arrays[f"made_at/{party}/{step}"] = np.array(total.made_at)
            for step, digest in self._digests[party].items():
                arrays[f"digest/{party}/{step}"] = np.frombuffer(digest, np.uint8)
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the coordinator that gave this state."""
        self._clocks.pushed, self._clocks.served, self._clocks.kept = arrays["clocks"].tolist()
        self._matrix.restore(arrays)
        for key, array in arrays.items():
            kind, *place = key.split("/")
            if len(place) != 2:
                continue
            party, step = int(place[0]), int(place[1])
            if kind == "recent":
                self._recent[party][step] = array
            elif kind == "total":
                self._totals[party][step] = Total(step, array, tuple(arrays[f"made_at/{party}/{step}"].tolist()))
            elif kind == "digest":
                self._digests[party][step] = array.tobytes()

    def _number(self, party: str) -> int:
        if party not in self._parties:
            raise MessageRefused(
                f"{party!r} is not a party of this run; it has {', '.join(self._parties)}", Refusal.NOT_PERMITTED
            )
        return self._parties.index(party)

    def _check_repeated(self, sender: str, party: int, step: int, values: Codes) -> None:
        if self._digests[party].get(step) != _digest(values):
            raise MessageRefused(
                f"party {sender!r} pushed step {step} again with other values; a release is never changed",
                Refusal.CONFLICT,
            )

    def _checked(self, sender: str, party: int, step: int, values: Codes) -> Codes:
        expected = self._clocks.pushed[party] + 1
        if step != expected or step >= self.schedule.steps:
            raise MessageRefused(
                f"party {sender!r} pushed step {step}; its next is {expected} of {self.schedule.steps}", Refusal.GAP
            )
        shape = (self.schedule.visit(step).size, self._outputs)
        if values.dtype != np.int64 or values.shape not in (shape, (shape[0] * shape[1],)):
            raise MessageRefused(
                f"party {sender!r} pushed {values.dtype} of shape {values.shape} for step {step}; "
                f"the block takes int64 of shape {shape}",
                Refusal.INVALID,
            )
        check_range(f"party {sender!r} pushed for step {step}", values)
        return values.reshape(shape)

    def _keep(self, sender: str, party: int, step: int) -> None:
        if step > self._clocks.served[party]:
            raise MessageRefused(
                f"party {sender!r} says it has kept step {step}, but was served only {self._clocks.served[party]}",
                Refusal.GAP,
            )
        self._clocks.kept[party] = max(self._clocks.kept[party], step)
        for known in (self._totals[party], self._digests[party]):
            for old in [at for at in known if at <= step]:
                del known[old]

    def _serve(self) -> list[Reply]:
        replies, made = [], {}
        for party, name in enumerate(self._parties):
            while self._clocks.may_serve(party):
                step = self._clocks.served[party] + 1
                if step not in made:
                    made[step] = self._total(step)
                self._totals[party][step] = made[step]
                replies.append(Reply(name, made[step]))
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
        if step in recent:
            return step, recent[step]
        same_block = [at for at in recent if at <= step and self.schedule.visit(at).block == visit.block]
        if same_block:
            return max(same_block), recent[max(same_block)]
        return self._matrix.read(party, visit)

    def _settle(self) -> None:
        for party, recent in enumerate(self._recent):
            for step in sorted(at for at in recent if at <= self._clocks.settled):
                self._matrix.write(party, self.schedule.visit(step), step, recent.pop(step))


def check_range(what: str, values: Codes) -> None:
    """Refuse predictions past what may travel; `what` begins the sentence."""
    for extreme in (values.min(initial=0), values.max(initial=0)):
        if abs(int(extreme)) > LARGEST_CODE:
            raise MessageRefused(
                f"{what} a prediction of {decode(extreme):g}; at most {LARGEST:g} may travel, lower learning_rate",
                Refusal.INVALID,
            )


def _digest(values: Codes) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()[:_DIGEST_BYTES]
