"""Predictions of the held-out rows, summed when all parties have sent theirs for an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.fixed_point import INT64, FixedPoint
from fdml.protocol.messages import BestEpoch, HeldOutPredictions, HeldOutTotal, Release
from fdml.server.checks import check_masked, check_range, check_same, digest_of_values
from fdml.server.snapshot_arrays import digest_array, digest_of, release_arrays, release_of


class HeldOutSums:
    """The parts of epochs that not all parties have sent yet, and the sums that were not evaluated yet.

    Where the sums decide when to stop, an evaluated one stays until the label party has stored what it found: a
    restarted label party decides by the same figures.
    """

    def __init__(
        self,
        parties: Sequence[str],
        size: int,
        epochs: int,
        *,
        blind: bool = False,
        grid: FixedPoint = INT64,
        scored: Callable[[int], int] | None = None,
        first: int = 1,
    ) -> None:
        """`scored` gives the last epoch scored by when a step is learned from; None where sums do not decide. `first`
        is 0 where an earlier version predicts the held-out rows, too.
        """
        self._parties = tuple(parties)
        self._size = size
        self._epochs = epochs
        self._blind = blind
        self._grid = grid
        self._scored = scored
        self._first = first
        self._parts: dict[int, dict[int, Release]] = {}
        self._digests: dict[tuple[int, int], tuple[int, bytes]] = {}
        """By epoch and party: mask_id and digest of every part that has come."""
        self._totals: dict[int, HeldOutTotal] = {}
        self._evaluated: set[int] = set()
        """Epochs whose sum was evaluated and is still here."""
        self.best: BestEpoch | None = None
        """Which epoch's model all parties keep, once the label party has told."""

    def take(self, sender: str, sent: HeldOutPredictions) -> HeldOutTotal | None:
        """Keep a party's part; the total once it is the last. A part that came before must be the same."""
        release = self._checked(sender, sent)
        place = sent.epoch, self._parties.index(sender)
        known = self._digests.get(place)
        if known is not None:
            check_same(f"party {sender!r} sent its held-out predictions of epoch {sent.epoch}", release, known)
            return None
        self._digests[place] = release.mask_id, digest_of_values(release.values)
        parts = self._parts.setdefault(sent.epoch, {})
        parts[place[1]] = release
        if len(parts) < len(self._parties):
            return None
        ordered = [parts[party] for party in range(len(self._parties))]
        self._totals[sent.epoch] = HeldOutTotal(
            sent.epoch,
            np.sum([part.values for part in ordered], axis=0, dtype=self._grid.dtype),
            tuple(part.mask_id for part in ordered) if self._blind else (),
            sum(part.variance for part in ordered),
        )
        del self._parts[sent.epoch]
        return self._totals[sent.epoch]

    def has_part(self, party: str, epoch: int) -> bool:
        """Whether a party's part of an epoch has come."""
        return (epoch, self._parties.index(party)) in self._digests

    def has_total(self, epoch: int) -> bool:
        """Whether the sum of an epoch is there and not evaluated yet."""
        return epoch in self._totals and epoch not in self._evaluated

    def totals(self, done: int = -1) -> list[HeldOutTotal]:
        """All sums that the label party has not evaluated yet, or not stored the figures of, by epoch.

        It has stored its state after step `done`.
        """
        stored = 0 if self._scored is None else self._scored(done)
        wanted = (epoch for epoch in sorted(self._totals) if epoch > stored or epoch not in self._evaluated)
        return [self._totals[epoch] for epoch in wanted]

    def discard(self, sender: str, epoch: int) -> None:
        """The label party has evaluated this epoch: its sum is not needed again, unless it decides when to stop."""
        self._check_epoch(sender, epoch)
        if self._scored is None:
            self._totals.pop(epoch, None)
        elif epoch in self._totals:
            self._evaluated.add(epoch)

    def forget(self, step: int) -> None:
        """The label party has stored its state after this step."""
        stored = 0 if self._scored is None else self._scored(step)
        for old in [each for each in self._evaluated if each <= stored]:
            self._evaluated.remove(old)
            self._totals.pop(old)

    def take_best(self, sender: str, message: BestEpoch) -> bool:
        """Keep which epoch's model all parties keep; whether it is new. Another one than before is refused."""
        if self.best not in (None, message):
            raise MessageRefused(
                f"party {sender!r} sent another best epoch than before; its state has changed", Refusal.CONFLICT
            )
        is_new, self.best = self.best is None, message
        return is_new

    def _check_epoch(self, sender: str, epoch: int) -> None:
        if not self._first <= epoch <= self._epochs:
            raise MessageRefused(f"party {sender!r} sent epoch {epoch} of {self._epochs}", Refusal.GAP)

    def _checked(self, sender: str, sent: HeldOutPredictions) -> Release:
        values = sent.release.values
        self._check_epoch(sender, sent.epoch)
        if values.dtype != self._grid.dtype or values.size != self._size:
            raise MessageRefused(
                f"party {sender!r} sent {values.size} held-out predictions as {values.dtype}; "
                f"the run has {self._size} as {self._grid.dtype}",
                Refusal.INVALID,
            )
        what = f"party {sender!r} sent for held-out rows"
        check_masked(what, sent.release, blind=self._blind)
        if not self._blind:
            check_range(what, values, self._grid.largest_code(len(self._parties)))
        return Release(values.reshape(-1), sent.release.mask_id, sent.release.variance)

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        arrays: dict[str, NDArray[Any]] = {}
        for epoch, parts in self._parts.items():
            for party, part in parts.items():
                arrays |= release_arrays(f"held-out/{epoch}/{party}", part)
        for (epoch, party), (mask_id, digest) in self._digests.items():
            arrays[f"held-out-digest/{epoch}/{party}"] = digest_array(mask_id, digest)
        for epoch, total in self._totals.items():
            arrays[f"held-out-total/{epoch}"] = total.values
            arrays[f"held-out-total/{epoch}/mask_ids"] = np.array(total.mask_ids, np.uint64)
            arrays[f"held-out-total/{epoch}/variance"] = np.array(total.variance)
        if self._evaluated:
            arrays["held-out-evaluated"] = np.array(sorted(self._evaluated))
        if self.best is not None:
            arrays["best-epoch"] = np.frombuffer(self.best.sealed, np.uint8)
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the held-out sums that gave this state."""
        for key, array in arrays.items():
            match key.split("/"):
                case "held-out", epoch, party:
                    self._parts.setdefault(int(epoch), {})[int(party)] = release_of(arrays, key)
                case "held-out-digest", epoch, party:
                    self._digests[int(epoch), int(party)] = digest_of(array)
                case "held-out-total", epoch:
                    mask_ids, variance = arrays[f"{key}/mask_ids"].tolist(), float(arrays[f"{key}/variance"])
                    self._totals[int(epoch)] = HeldOutTotal(int(epoch), array, tuple(mask_ids), variance)
                case ("held-out-evaluated",):
                    self._evaluated = set(array.tolist())
                case ("best-epoch",):
                    self.best = BestEpoch(array.tobytes())
