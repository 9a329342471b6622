"""What a party sends where few bits travel: by how much its predictions differ from what the server has of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.bit_packing import in_ring
from fdml.protocol.few_bits import CommonScale, FewBits, added, own_scale, round_difference
from fdml.protocol.fixed_point import Codes

Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Rounded:
    """The predictions of a block as they leave, but for a mask."""

    codes: Codes
    bits: int = 0
    """Of a code; 0 where the predictions are whole."""
    scale: int = 0


@dataclass(frozen=True)
class _Sent:
    """A push that was not answered yet."""

    block: int
    rounded: Rounded
    whole: Codes
    """What the server has of the block with it."""


class Differences:
    """What the server has of a party's blocks; where the run is in step, also what it has of the others'.

    `most` is the largest code that may leave.
    """

    def __init__(self, few: FewBits, most: int, is_whole: Callable[[int], bool] = lambda _: False) -> None:
        """`is_whole` says of a step whether its predictions travel whole."""
        self.few = few
        self._most = most
        self._is_whole = is_whole
        self._held: dict[int, Codes] = {}
        """By block, what the server has of this party."""
        self._others: dict[int, Codes] = {}
        """By block, what the server has of all others together, by the last total."""
        self._unanswered: dict[int, _Sent] = {}
        self._scale = CommonScale(few)

    def rounded(self, step: int, block: int, wanted: Codes) -> Rounded:
        """Predictions as they leave: whole the first time, and where a party leaves or comes back."""
        held = self._held.get(block)
        if held is None or self._is_whole(step):
            return Rounded(wanted)
        scale = self._scale.scale if self.few.in_step else own_scale(self.few, wanted, held)
        codes = round_difference(wanted, held, scale, self.few.limit, self._most)
        return Rounded(codes, self.few.bits, scale)

    def again(self, codes: Codes, bits: int, scale: int) -> Rounded:
        """Predictions that have left before, from their codes without a mask; `scale` is the one that was sent."""
        if not bits:
            return Rounded(codes)
        return Rounded(in_ring(codes, self.few.ring_bits), bits, self._scale.scale if self.few.in_step else scale)

    def send(self, step: int, block: int, rounded: Rounded) -> Codes:
        """Note that these leave; gives what the server has of the block then."""
        codes = rounded.codes
        whole = added(self._held[block], codes, rounded.scale) if rounded.bits else codes
        self._held[block] = whole
        if self.few.in_step:
            self._unanswered[step] = _Sent(block, rounded, whole)
        return whole

    def open(self, step: int, values: Codes, bits: int) -> Codes:
        """The whole total of a step, from the sum that was sent, without masks."""
        sent = self._unanswered.pop(step, None)
        expected = self.few.ring_bits if sent is not None and sent.rounded.bits else 0
        if bits != expected:
            raise MessageRefused(
                f"the total of step {step} has {bits or 'whole'} bits instead of {expected or 'whole'}; all sides need "
                f"the same run.toml",
                Refusal.INVALID,
            )
        if sent is None:
            return values
        shaped = values.reshape(sent.whole.shape)
        if not bits:
            if sent.block not in self._others:  # a total that a party has left or come back to has not moved by that
                self._scale.learn(shaped.astype(np.int32))
            self._others[sent.block] = shaped - sent.whole
            return shaped
        codes, scale = sent.rounded.codes, sent.rounded.scale
        theirs = in_ring(shaped - codes, bits).astype(np.int32)
        self._scale.learn((theirs + codes) << scale)
        before = self._others[sent.block]
        self._others[sent.block] = self._limited(before + (theirs << scale)).astype(before.dtype)
        return sent.whole + self._others[sent.block]

    def _limited(self, others: NDArray[np.int32]) -> NDArray[np.int32]:
        """No further past what the others may send than is noticed, so that the sum never begins again."""
        most = (self.few.parties - 1) * self._most + 1
        limited: NDArray[np.int32] = np.clip(others, -most, most)
        return limited

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything needed to go on from here, as arrays."""
        arrays = {"scale": np.array(self._scale.scale), **_joined("held", self._held)}
        arrays |= _joined("others", self._others)
        for step, sent in self._unanswered.items():
            rounded = sent.rounded
            arrays[f"sent/{step}"] = np.array([sent.block, rounded.bits, rounded.scale])
            arrays |= {f"sent/{step}/codes": rounded.codes, f"sent/{step}/whole": sent.whole}
        return arrays

    def restore(self, arrays: Arrays) -> None:
        """Become what gave these arrays."""
        self._scale.scale = int(arrays["scale"])
        self._held, self._others = _split("held", arrays), _split("others", arrays)
        self._unanswered = {}
        for key in arrays:
            match key.split("/"):
                case "sent", step:
                    block, bits, scale = arrays[key].tolist()
                    rounded = Rounded(arrays[f"{key}/codes"], bits, scale)
                    self._unanswered[int(step)] = _Sent(block, rounded, arrays[f"{key}/whole"])


def _joined(name: str, blocks: Mapping[int, Codes]) -> dict[str, NDArray[Any]]:
    """All blocks in one array, and which they are: a run may have very many."""
    if not blocks:
        return {}
    sizes = np.array([[block, len(codes)] for block, codes in blocks.items()])
    return {name: np.concatenate(list(blocks.values())), f"{name}_blocks": sizes}


def _split(name: str, arrays: Arrays) -> dict[int, Codes]:
    """The blocks that were joined."""
    if name not in arrays:
        return {}
    sizes = arrays[f"{name}_blocks"]
    parts = np.split(arrays[name], np.cumsum(sizes[:-1, 1]))
    return {int(block): part for block, part in zip(sizes[:, 0], parts, strict=True)}
