"""Predictions of the held-out rows, summed when all parties have sent theirs for an epoch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import Piece
from fdml.protocol.fixed_point import INT64, FixedPoint
from fdml.protocol.messages import BestEpoch, HeldOutPredictions, HeldOutTotal, Release
from fdml.protocol.row_pieces import all_pieces, number_of
from fdml.server.checks import check_masked, check_range, check_same, digest_of_values
from fdml.server.snapshot_arrays import digest_arrays, digests_of, release_arrays, releases_of

Place = tuple[int, int]
"""An epoch, and which piece of the held-out rows: many rows come in pieces, and each is summed by itself."""


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
        pieces: Piece | None = None,
    ) -> None:
        """`scored` gives the last epoch scored by when a step is learned from; None where sums do not decide. `first`
        is 0 where an earlier version predicts the held-out rows, too; `pieces` says how they come, None for whole.
        """
        self._parties = tuple(parties)
        self._size = size
        self._pieces = [None] if pieces is None else all_pieces(pieces)
        self._epochs = epochs
        self._blind = blind
        self._grid = grid
        self._scored = scored
        self._first = first
        self._parts: dict[Place, dict[int, Release]] = {}
        self._digests: dict[tuple[Place, int], tuple[int, bytes]] = {}
        """By place and party: mask_id and digest of every part that has come."""
        self._totals: dict[Place, HeldOutTotal] = {}
        self._evaluated: set[int] = set()
        """Epochs whose sum was evaluated and is still here."""
        self.best: BestEpoch | None = None
        """Which epoch's model all parties keep, once the label party has told."""

    def take(self, sender: str, sent: HeldOutPredictions) -> HeldOutTotal | None:
        """Keep a party's part; the total once it is the last. A part that came before must be the same."""
        release = self._checked(sender, sent)
        place, party = (sent.epoch, number_of(sent)), self._parties.index(sender)
        known = self._digests.get((place, party))
        if known is not None:
            check_same(f"party {sender!r} sent its held-out predictions of epoch {sent.epoch}", release, known)
            return None
        self._digests[place, party] = release.mask_id, digest_of_values(release.values)
        parts = self._parts.setdefault(place, {})
        parts[party] = release
        if len(parts) < len(self._parties):
            return None
        ordered = [parts[each] for each in range(len(self._parties))]
        self._totals[place] = HeldOutTotal(
            sent.epoch,
            np.sum([part.values for part in ordered], axis=0, dtype=self._grid.dtype),
            tuple(part.mask_id for part in ordered) if self._blind else (),
            sum(part.variance for part in ordered),
            sent.piece,
        )
        del self._parts[place]
        return self._totals[place]

    def has_part(self, party: str, sent: HeldOutPredictions) -> bool:
        """Whether a party's part of an epoch, or this piece of it, has come."""
        return ((sent.epoch, number_of(sent)), self._parties.index(party)) in self._digests

    def has_total(self, epoch: int) -> bool:
        """Whether the sum of an epoch is there and not evaluated yet."""
        return epoch not in self._evaluated and any(at == epoch for at, _ in self._totals)

    def totals(self, done: int = -1) -> list[HeldOutTotal]:
        """All sums that the label party has not evaluated yet, or not stored the figures of, by epoch.

        It has stored its state after step `done`.
        """
        stored = 0 if self._scored is None else self._scored(done)
        wanted = (place for place in sorted(self._totals) if place[0] > stored or place[0] not in self._evaluated)
        return [self._totals[place] for place in wanted]

    def discard(self, sender: str, epoch: int) -> None:
        """The label party has evaluated this epoch: its sum is not needed again, unless it decides when to stop."""
        self._check_epoch(sender, epoch)
        if self._scored is None:
            self._drop(epoch)
        elif any(at == epoch for at, _ in self._totals):
            self._evaluated.add(epoch)

    def _drop(self, epoch: int) -> None:
        for place in [each for each in self._totals if each[0] == epoch]:
            del self._totals[place]

    def forget(self, step: int) -> None:
        """The label party has stored its state after this step."""
        stored = 0 if self._scored is None else self._scored(step)
        for old in [each for each in self._evaluated if each <= stored]:
            self._evaluated.remove(old)
            self._drop(old)

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
        number = number_of(sent)
        if number >= len(self._pieces) or sent.piece != self._pieces[number]:
            raise MessageRefused(
                f"party {sender!r} sent held-out predictions in other pieces than the {len(self._pieces)} of this run; "
                f"all sides need the same version of fdml",
                Refusal.INVALID,
            )
        size = self._size_of(sent.piece)
        if values.dtype != self._grid.dtype or values.size != size:
            raise MessageRefused(
                f"party {sender!r} sent {values.size} held-out predictions as {values.dtype}; "
                f"the run has {size} as {self._grid.dtype}",
                Refusal.INVALID,
            )
        what = f"party {sender!r} sent for held-out rows"
        check_masked(what, sent.release, blind=self._blind)
        if not self._blind:
            check_range(what, values, self._grid.largest_code(len(self._parties)))
        return Release(values.reshape(-1), sent.release.mask_id, sent.release.variance)

    def _size_of(self, piece: Piece | None) -> int:
        """How many values a piece has."""
        if piece is None:
            return self._size
        rows: int = piece.test.stop - piece.test.start
        return rows * (self._size // (piece.rows.test or 1))

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        arrays: dict[str, NDArray[Any]] = {}
        for place, parts in self._parts.items():
            arrays |= release_arrays(f"held-out/{_name(place)}", parts)
        if self._digests:
            arrays |= digest_arrays("held-out-digests", dict(enumerate(self._digests.values())))
            arrays["held-out-digests/places"] = np.array([(*place, party) for place, party in self._digests])
        for place, total in self._totals.items():
            arrays[f"held-out-total/{_name(place)}"] = total.values
            arrays[f"held-out-total/{_name(place)}/mask_ids"] = np.array(total.mask_ids, np.uint64)
            arrays[f"held-out-total/{_name(place)}/variance"] = np.array(total.variance)
        if self._evaluated:
            arrays["held-out-evaluated"] = np.array(sorted(self._evaluated))
        if self.best is not None:
            arrays["best-epoch"] = np.frombuffer(self.best.sealed, np.uint8)
        return arrays

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Become the held-out sums that gave this state."""
        for key, array in arrays.items():
            match key.split("/"):
                case "held-out", name, "numbers":
                    self._parts[_place(name)] = releases_of(arrays, f"held-out/{name}")
                case "held-out-digests", "places":
                    known = digests_of(arrays, "held-out-digests").values()
                    places = [((epoch, number), party) for epoch, number, party in array.tolist()]
                    self._digests = dict(zip(places, known, strict=True))
                case "held-out-total", name:
                    mask_ids, variance = arrays[f"{key}/mask_ids"].tolist(), float(arrays[f"{key}/variance"])
                    epoch, number = _place(name)
                    piece = self._pieces[number]
                    self._totals[epoch, number] = HeldOutTotal(epoch, array, tuple(mask_ids), variance, piece)
                case ("held-out-evaluated",):
                    self._evaluated = set(array.tolist())
                case ("best-epoch",):
                    self.best = BestEpoch(array.tobytes())


def _name(place: Place) -> str:
    epoch, number = place
    return f"{epoch}.{number}" if number else f"{epoch}"


def _place(name: str) -> Place:
    epoch, _, number = name.partition(".")
    return int(epoch), int(number or 0)
