"""What a prediction must pass before it leaves: clip, noise, ledger, mask.

A guard is the only maker of what a channel takes. It counts a release before it
makes it, and where there is noise, or a mask that must hide one value only, it
stores the release before it hands it out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.privacy.differences import Differences, Rounded
from fdml.privacy.ledger import HELD_OUT, Ledger, Mechanism
from fdml.privacy.masks import Masks, PredictionMasks, Purpose
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.privacy.perturb import Perturbation, Predictions
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.bit_packing import in_ring
from fdml.protocol.fixed_point import Codes, decode, encode
from fdml.protocol.messages import Gradient, HeldOutPredictions, HeldOutTotal, Push, Release, Total

NO_NOISE = Mechanism("none", math.inf, 0.0)


class Guard:
    """One party's guard. Without masks the server can read what leaves; without a store nothing may be random.

    `masks` are those of gradients, and of predictions where the server is `blind` and there are no `pairwise` ones.
    """

    def __init__(
        self,
        perturbation: Perturbation,
        ledger: Ledger,
        *,
        held_out: Perturbation | None = None,
        masks: Masks | None = None,
        blind: bool = False,
        pairwise: PairwiseMasks | None = None,
        store: ReleaseStore | None = None,
        differences: Differences | None = None,
    ) -> None:
        self._perturbation = perturbation
        self._held_out_perturbation = held_out or perturbation
        """Of held-out rows; counted as a noisy release only where it is that of all other predictions."""
        self.ledger = ledger
        self._masks = masks
        self._blind = blind
        self._hiding: PredictionMasks | None = (pairwise or masks) if blind else None
        """The masks of predictions, if they have any."""
        self._store = store
        self.differences = differences
        """Where few bits travel: what the server has already, part of the worker's state."""

    def push(self, step: int, block: int, predictions: Predictions) -> tuple[Push, Codes]:
        """The predictions of a step as they may leave, and the codes that the server then has, but for the mask.

        Raises `PrivacyBudgetSpent`, and then nothing is counted and nothing leaves.
        """
        known = None if self._store is None else self._store.find(("push", step))
        if known is not None:
            own = self._own("push", step, known).reshape(predictions.shape)
            return Push(step, known), self._left_before(step, block, known, own)
        before = self.ledger.state() if self._store is not None and self._store.is_new else {}
        self.ledger.count_release(group_of(block))
        codes = self._perturbation.protect(predictions, "push", step)
        rounded = Rounded(codes) if self.differences is None else self.differences.rounded(step, block, codes)
        message = Push(step, self._sealed("push", step, rounded, self._perturbation.mechanism.variance))
        if self._store is not None:
            self._store.add(message, before)
        return message, codes if self.differences is None else self.differences.send(step, block, rounded)

    def push_nothing(self, step: int, block: int, shape: tuple[int, int]) -> tuple[Push, Codes]:
        """Zeros in the place of predictions: they tell nothing, so they are neither counted nor noisy nor stored."""
        codes = self._perturbation.nothing(shape)
        message = Push(step, self._sealed("push", step, Rounded(codes), 0.0))
        return message, codes if self.differences is None else self.differences.send(step, block, Rounded(codes))

    def held_out(self, epoch: int, predictions: Predictions) -> HeldOutPredictions:
        """The predictions of the held-out rows as they may leave."""
        known = None if self._store is None else self._store.find(("held-out", epoch))
        if known is not None:
            return HeldOutPredictions(epoch, known)
        before = self.ledger.state() if self._store is not None and self._store.is_new else {}
        if self._held_out_perturbation is self._perturbation:
            self.ledger.count_release(HELD_OUT)
        else:
            self.ledger.count_exact()
        codes = self._held_out_perturbation.protect(predictions, "held-out", epoch)
        message = HeldOutPredictions(
            epoch, self._sealed("held-out", epoch, Rounded(codes), self._held_out_perturbation.mechanism.variance)
        )
        if self._store is not None:
            self._store.add(message, before)
        return message

    def gradient(self, step: int, values: NDArray[np.floating[Any]]) -> Gradient:
        """Gradients for the other parties, under a mask whatever the server is: they disclose labels."""
        if self._masks is None:
            raise MessageRefused("private labels need the masks of a run of processes", Refusal.MISMATCH)
        codes = self._masks.add("gradient", step, encode(values))
        return Gradient(step, Release(codes, self._masks.mask_id))

    def open_total(self, total: Total) -> Codes:
        """The sum without masks, whole."""
        values = self._opened("push", total.values, total.pushed_at, total.mask_ids)
        if self.differences is not None:
            return self.differences.open(total.step, values, total.bits)
        if total.bits:
            raise MessageRefused(
                f"the total of step {total.step} is a difference of {total.bits} bits; all sides need the same "
                f"run.toml",
                Refusal.INVALID,
            )
        return values

    def open_held_out(self, total: HeldOutTotal) -> Codes:
        """The sum without masks."""
        return self._opened("held-out", total.values, [total.epoch] * len(total.mask_ids), total.mask_ids)

    def open_gradient(self, gradient: Gradient, label_party: str) -> NDArray[np.float64]:
        """The label party's gradients."""
        if self._masks is None:
            raise MessageRefused("private labels need the masks of a run of processes", Refusal.MISMATCH)
        release = gradient.release
        codes = self._masks.remove_one("gradient", label_party, gradient.step, release.mask_id, release.values)
        return decode(codes)

    def forget(self, step: int) -> None:
        """No total up to this step will ever be asked for again."""
        if self._store is not None:
            self._store.forget(step, self.ledger.state())

    def state(self) -> str:
        """The ledger's counts as text."""
        return json.dumps(self.ledger.state())

    def restore(self, saved: str | None, block_of: Callable[[int], int]) -> None:
        """Count again what was counted: by the saved state, and every stored release after it."""
        counts = None if saved is None else json.loads(saved)
        if self._store is not None and self._store.counts is not None:
            uses = {} if counts is None else counts["uses"]
            counts = {**self._store.counts, "uses": uses}
        if counts is not None:
            self.ledger.restore(counts)
        for message in [] if self._store is None else self._store.uncounted:
            if isinstance(message, Push):
                self.ledger.count_left(group_of(block_of(message.step)))
            elif self._held_out_perturbation is self._perturbation:
                self.ledger.count_left(HELD_OUT)

    def _sealed(self, purpose: Purpose, number: int, rounded: Rounded, variance: float) -> Release:
        """Under a mask, if there is one: that of a difference has the bits of the ring, and its scale is not told."""
        if self._hiding is None:
            return Release(rounded.codes, 0, variance, rounded.bits, rounded.scale)
        masked, bits = self._hiding.add(purpose, number, rounded.codes), 0
        if rounded.bits and self.differences is not None:
            bits = self.differences.few.push_bits
            masked = in_ring(masked, bits)
        return Release(masked, self._hiding.mask_id, variance, bits)

    def _left_before(self, step: int, block: int, release: Release, own: Codes) -> Codes:
        """What the server has of a block with a stored release, which is `own` without its mask."""
        if self.differences is None:
            return own
        return self.differences.send(step, block, self.differences.again(own, release.bits, release.scale))

    def _own(self, purpose: Purpose, number: int, release: Release) -> Codes:
        if self._hiding is None or not release.mask_id:
            return release.values
        return self._hiding.remove_own(purpose, number, release.mask_id, release.values)

    def _opened(self, purpose: Purpose, values: Codes, numbers: Any, mask_ids: tuple[int, ...]) -> Codes:
        if not self._blind:
            return values
        if self._hiding is None:
            raise MessageRefused("a blind server needs the masks of a run of processes", Refusal.MISMATCH)
        return self._hiding.remove(purpose, numbers, mask_ids, values)


def group_of(block: int) -> str:
    """The name under which the ledger counts a block's rows."""
    return f"block {block}"
