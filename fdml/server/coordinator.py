"""The server's loop of Algorithm 1, without a network: a push comes in, totals go out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.bit_packing import in_ring
from fdml.protocol.few_bits import FewBits
from fdml.protocol.fixed_point import INT64, Codes, FixedPoint
from fdml.protocol.messages import Checkpointed, Gradient, Push, Release, Reply, Stop, Stopped, Total
from fdml.protocol.schedule import Schedule, Visit
from fdml.server.checks import check_masked, check_range, check_same, digest_of_release
from fdml.server.clocks import Clocks
from fdml.server.differences import check_bits, check_difference, whole_of
from fdml.server.matrix import Contribution, PredictionMatrix
from fdml.server.snapshot_arrays import (
    answer_arrays,
    answers_of,
    digest_arrays,
    digests_of,
    release_arrays,
    releases_of,
)


class Coordinator:
    """The prediction matrix and who may be served what; only `handle` changes them.

    It owns no socket, thread or clock: the caller brings messages in any order and sends whatever comes back. A party's
    part of the total of step t is what it last pushed for that block at step t or before, never later: so a party that
    is behind reads what the others pushed for its own step, and at staleness 0 every total is the sum of exactly that
    step's pushes.

    A total stays as it was first made until its party has a checkpoint after that
    step, so a party that starts again is served the same totals again.

    Where labels are private (`gradient_party` is the label party) only that party is served
    totals; the others are served the gradients that it makes of them.

    A blind server of three or more parties serves the total of a block only once every
    party has pushed that block: a sum of fewer parts would show a party's own ones.

    Where few bits travel, each push of a block but the first is a difference to the push before. Where the run is in
    step (`FewBits.in_step`) totals travel as sums of differences, too.
    """

    def __init__(
        self,
        parties: Sequence[str],
        schedule: Schedule,
        width: int,
        staleness: int,
        *,
        blind: bool = False,
        gradient_party: str | None = None,
        grid: FixedPoint = INT64,
        few_bits: FewBits | None = None,
    ) -> None:
        self._parties = tuple(parties)
        self._numbers = {name: number for number, name in enumerate(self._parties)}
        self.schedule = schedule
        self._width = width
        self._blind = blind
        self._grid = grid
        self._most = grid.largest_code(len(self._parties))
        self._few = few_bits
        self._gradient_party = None if gradient_party is None else self._parties.index(gradient_party)
        self._gradients: dict[int, Gradient] = {}
        """Those that not all parties have been served."""
        self.last_gradient = -1
        """The last step whose gradient has come."""
        self._stops: dict[int, int] = {}
        """By party: the step from which on it pushes nothing."""
        self._no_gain: set[int] = set()
        """Of those who stopped, who did as held-out rows gained nothing."""
        self._clocks = Clocks(len(parties), staleness, schedule.blocks if blind and len(parties) > 2 else 0)
        self._matrix = PredictionMatrix(len(parties), schedule.blocks, schedule.rows, width, grid)
        self._newer_than_matrix: list[dict[int, Release]] = [{} for _ in parties]
        """Pushes that may not be written to the matrix yet, as some party is still to be served that step."""
        self._answers: list[dict[int, Total | Gradient]] = [{} for _ in parties]
        """What a party was served after its last checkpoint."""
        self._digests: list[dict[int, tuple[int, bytes]]] = [{} for _ in parties]
        """Mask id and digest of the pushes a party might send again."""
        self.largest: dict[str, float] = {}
        """By party: the largest prediction of the last push that was checked; nothing under masks."""
        self._gradient_digests: dict[int, tuple[int, bytes]] = {}
        """Of all steps: a party that has had no acknowledgement sends its gradient again even after a checkpoint."""

    def handle(self, sender: str, message: Push | Gradient | Stop | Checkpointed) -> list[Reply]:
        """Take in one message; returns what may be sent now. A refused message changes nothing."""
        party = self._number(sender)
        match message:
            case Push(step, release):
                return self._push(sender, party, step, release)
            case Gradient():
                return self._take_gradient(sender, party, message)
            case Stop():
                return self._stop(sender, party, message)
            case Checkpointed(step):
                self._forget(sender, party, step)
                return []

    @property
    def end(self) -> int:
        """How many steps the training has: fewer than scheduled once a party has stopped."""
        return min([self.schedule.steps, *self._stops.values()]) if self._stops else self.schedule.steps

    @property
    def stopped(self) -> Stopped | None:
        """Who ended the training early, if anyone did."""
        if not self._stops:
            return None
        first = min(self._stops, key=lambda party: (self._stops[party], party))
        return Stopped(self._parties[first], self._stops[first], first in self._no_gain)

    def _push(self, sender: str, party: int, step: int, release: Release) -> list[Reply]:
        what = f"party {sender!r} pushed for step {step}"
        check_masked(what, release, blind=self._blind)
        if step <= self._clocks.pushed[party]:
            if not 0 <= step <= self._clocks.checkpointed[party]:  # of older ones no digest is left
                check_same(f"party {sender!r} pushed step {step}", release, self._digests[party].get(step))
            return []
        self._newer_than_matrix[party][step] = self._checked(what, sender, party, step, release)
        self._digests[party][step] = release.mask_id, digest_of_release(release)
        self._clocks.pushed[party] = step
        return self._answer()

    def _answer(self) -> list[Reply]:
        if replies := self._serve():  # else nobody is further than before
            self._move_to_matrix()
        return replies

    def _take_gradient(self, sender: str, party: int, message: Gradient) -> list[Reply]:
        step = message.step
        if party != self._gradient_party:
            raise MessageRefused(
                f"party {sender!r} sent a gradient; only a label party with private labels may", Refusal.NOT_PERMITTED
            )
        if step <= self.last_gradient:
            what = f"party {sender!r} sent the gradient of step {step}"
            check_same(what, message.release, self._gradient_digests[step])
            return []
        expected, served = self.last_gradient + 1, self._clocks.served[party]
        if step != expected or step > served:
            what = f"party {sender!r} sent the gradient of step {step}"
            raise MessageRefused(f"{what}; its next is {expected}, and it was served {served}", Refusal.GAP)
        values = self._shaped(sender, step, message.release.values, INT64)
        if not message.release.mask_id:
            raise MessageRefused(
                f"party {sender!r} sent a gradient without a mask; install the same fdml", Refusal.MISMATCH
            )
        self._gradients[step] = Gradient(step, Release(values, message.release.mask_id))
        self._gradient_digests[step] = message.release.mask_id, digest_of_release(message.release)
        self.last_gradient = step
        return self._answer()

    def _stop(self, sender: str, party: int, message: Stop) -> list[Reply]:
        step = message.step
        if self._stops.get(party) == step:
            return []
        expected = self._clocks.pushed[party] + 1
        if party in self._stops or step != expected or step >= self.schedule.steps:
            raise MessageRefused(
                f"party {sender!r} stops at step {step}; its next is {expected} of {self.schedule.steps}", Refusal.GAP
            )
        self._stops[party] = step
        if message.no_gain:
            self._no_gain.add(party)
        return [Reply(other, Stopped(sender, step, message.no_gain)) for other in self._parties]

    def resend(self, party: str, done: int) -> list[Reply]:
        """What the party was already served after step `done`, as it was."""
        answers = self._answers[self._number(party)]
        again = [Reply(party, answers[step]) for step in sorted(answers) if step > done]
        return again if self.stopped is None else [*again, Reply(party, self.stopped)]

    def pushed(self, party: str) -> int:
        """The last step a party has pushed."""
        return self._clocks.pushed[self._number(party)]

    def served(self, party: str) -> int:
        """The last step whose total a party was served."""
        return self._clocks.served[self._number(party)]

    def checkpointed(self, party: str) -> int:
        """The step of a party's last checkpoint: totals up to it are forgotten."""
        return self._clocks.checkpointed[self._number(party)]

    def has_stopped(self, party: str) -> bool:
        """Whether a party pushes nothing more, as its budget is spent."""
        return self._number(party) in self._stops

    def waits_for(self, party: str) -> list[str]:
        """The names of the parties whose push or gradient this party's next answer waits for."""
        number = self._number(party)
        blockers, source = self._clocks.blockers(number), self._gradient_party
        if not blockers and source is not None and self._clocks.served[number] == self.last_gradient:
            ahead = self._clocks.served[source] > self.last_gradient
            blockers = [source] if ahead else self._clocks.blockers(source) or [source]
        return [self._parties[other] for other in blockers]

    @property
    def matrix(self) -> PredictionMatrix:
        """The prediction matrix, to be looked at."""
        return self._matrix

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        arrays = {
            "clocks": np.array([self._clocks.pushed, self._clocks.served, self._clocks.checkpointed]),
            "last_gradient": np.array(self.last_gradient),
            "stops": np.array([self._stops.get(party, -1) for party in range(len(self._parties))]),
            "no_gain": np.array(sorted(self._no_gain), np.int64),
            **self._matrix.state(),
        }
        for party, (recent, digests) in enumerate(zip(self._newer_than_matrix, self._digests, strict=True)):
            arrays |= release_arrays(f"recent/{party}", recent) | digest_arrays(f"digests/{party}", digests)
        gradients = {step: gradient.release for step, gradient in self._gradients.items()}
        arrays |= answer_arrays(self._answers) | release_arrays("gradients", gradients)
        return arrays | digest_arrays("gradient_digests", self._gradient_digests)

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the coordinator that gave this state."""
        self._clocks.pushed, self._clocks.served, self._clocks.checkpointed = arrays["clocks"].tolist()
        self.last_gradient = int(arrays["last_gradient"])
        self._stops = {party: step for party, step in enumerate(arrays["stops"].tolist()) if step >= 0}
        self._no_gain = set(arrays["no_gain"].tolist())
        self._matrix.restore(arrays)
        for party in range(len(self._parties)):
            self._newer_than_matrix[party] = releases_of(arrays, f"recent/{party}")
            self._digests[party] = digests_of(arrays, f"digests/{party}")
        self._answers = answers_of(arrays, len(self._parties))
        self._gradients = {step: Gradient(step, each) for step, each in releases_of(arrays, "gradients").items()}
        self._gradient_digests = digests_of(arrays, "gradient_digests")

    def _number(self, party: str) -> int:
        if party in self._numbers:
            return self._numbers[party]
        known = ", ".join(self._parties)
        raise MessageRefused(f"{party!r} is not a party of this run; it has {known}", Refusal.NOT_PERMITTED)

    def _checked(self, what: str, sender: str, party: int, step: int, release: Release) -> Release:
        expected = self._clocks.pushed[party] + 1
        if step != expected or step >= self.schedule.steps or party in self._stops:
            raise MessageRefused(
                f"party {sender!r} pushed step {step}; its next is {expected} of {self.schedule.steps}"
                + (", but it has stopped" if party in self._stops else ""),
                Refusal.GAP,
            )
        values, visit = self._shaped(sender, step, release.values, self._grid), self.schedule.visit(step)
        shaped = Release(values, release.mask_id, release.variance, release.bits, release.scale)
        check_bits(what, release, self._few, self.schedule, step)
        if self._blind:
            return shaped
        if self._few is None or not release.bits:
            self.largest[sender] = check_range(what, release.values, self._most) * self._grid.step
            return shaped
        before = self._whole(party, visit)
        self.largest[sender] = check_difference(what, shaped, self._few, before.values, self._most) * self._grid.step
        return shaped if self._few.in_step else whole_of(before, shaped)

    def _whole(self, party: int, visit: Visit) -> Release:
        """What the server has of a party's block, all its pushes counted."""
        recent = self._newer_than_matrix[party].items()
        newer = [release for step, release in recent if self.schedule.visit(step).block == visit.block]
        return reduce(whole_of, newer, self._matrix.read(party, visit).release)

    def _shaped(self, sender: str, step: int, values: Codes, grid: FixedPoint) -> Codes:
        shape = (self.schedule.visit(step).size, self._width)
        if values.dtype != grid.dtype or values.shape not in (shape, (shape[0] * shape[1],)):
            raise MessageRefused(
                f"party {sender!r} pushed {values.dtype} of shape {values.shape} for step {step}; "
                f"the block takes {grid.dtype} of shape {shape}",
                Refusal.INVALID,
            )
        return values.reshape(shape)

    def _forget(self, sender: str, party: int, step: int) -> None:
        if step > (served := self._clocks.served[party]):
            raise MessageRefused(
                f"party {sender!r} has a checkpoint after step {step}, but was served only {served}", Refusal.GAP
            )
        self._clocks.checkpointed[party] = max(self._clocks.checkpointed[party], step)
        for known in (self._answers[party], self._digests[party]):
            for old in [at for at in known if at <= step]:
                del known[old]

    def _serve(self) -> list[Reply]:
        replies: list[Reply] = []
        made: dict[int, Total] = {}
        for party in self._clocks.to_serve():
            while self._clocks.may_serve(party):
                step = self._clocks.served[party] + 1
                by_gradient = self._gradient_party not in (None, party)
                if by_gradient and step > self.last_gradient:
                    break
                if not by_gradient and step not in made:
                    made[step] = self._total(step)
                self._answers[party][step] = self._gradients[step] if by_gradient else made[step]
                replies.append(Reply(self._parties[party], self._answers[party][step]))
                self._clocks.served[party] = step
        return replies

    def _total(self, step: int) -> Total:
        visit = self.schedule.visit(step)
        values: Codes = np.zeros((visit.size, self._width), self._grid.dtype)
        parts = [self._part(party, step, visit) for party in range(len(self._parties))]
        for _, release in parts:
            values += release.values  # past the end of its type the sum begins again, as masks do
        bits = 0 if self._few is None else self._few.total_bits(self.schedule, step)
        return Total(
            step,
            in_ring(values, bits) if bits else values,
            tuple(part.pushed_at for part in parts),
            tuple(part.release.mask_id for part in parts) if self._blind else (),
            sum(part.release.variance for part in parts),
            bits,
        )

    def _part(self, party: int, step: int, visit: Visit) -> Contribution:
        recent = self._newer_than_matrix[party]
        if step in recent:
            return Contribution(step, recent[step])
        same_block = [at for at in recent if at <= step and self.schedule.visit(at).block == visit.block]
        if same_block:
            return Contribution(max(same_block), recent[max(same_block)])
        return self._matrix.read(party, visit)

    def _move_to_matrix(self) -> None:
        served_to_all = self._clocks.served_to_all
        for party, recent in enumerate(self._newer_than_matrix):
            while recent and (step := next(iter(recent))) <= served_to_all:  # they came in the order of their steps
                visit, release = self.schedule.visit(step), recent.pop(step)
                if release.bits and not self._blind:  # under masks nothing can be added up but what one step brings
                    release = whole_of(self._matrix.read(party, visit).release, release)
                self._matrix.write(party, visit, step, release)
        for step in [at for at in self._gradients if at <= served_to_all]:
            del self._gradients[step]
