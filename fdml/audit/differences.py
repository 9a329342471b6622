"""Pushes of few bits as the predictions that they add up to: what other parties' totals hold."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.bit_packing import in_ring
from fdml.protocol.few_bits import CommonScale, FewBits, added
from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import Release
from fdml.protocol.schedule import Schedule

Pushes = Mapping[str, Mapping[int, Release]]
"""By party and step, without masks."""


def whole_pushes(few: FewBits, schedule: Schedule, lookahead: int, pushes: Pushes) -> dict[str, dict[int, Codes]]:
    """What the server has of each party's block with each push.

    Under masks no message says its scale. All parties find it from the totals before, and so does who has all keys.
    """
    common, learned = CommonScale(few), 0
    scales: dict[int, int] = {}
    held: dict[tuple[str, int], Codes] = {}
    found: dict[str, dict[int, Codes]] = {party: {} for party in pushes}
    for step in range(max((len(each) for each in pushes.values()), default=0)):
        while few.in_step and learned < step - lookahead:
            _learn(common, [each[learned] for each in pushes.values() if learned in each], scales.get(learned, 0), few)
            learned += 1
        scales[step] = common.scale
        block = schedule.visit(step).block
        for party, each in pushes.items():
            if step in each:
                release = each[step]
                scale = scales[step] if few.blind else release.scale
                held[party, block] = _whole(held.get((party, block)), release, scale, few)
                found[party][step] = held[party, block]
    return found


def _whole(before: Codes | None, release: Release, scale: int, few: FewBits) -> Codes:
    if before is None or not release.bits:
        return release.values.reshape(-1)
    return added(before, in_ring(release.values.reshape(-1), few.ring_bits), scale)


def _learn(common: CommonScale, parts: list[Release], scale: int, few: FewBits) -> None:
    """Take in the total of a step as the parties do."""
    if not parts[0].bits:
        common.learn(np.asarray(np.sum([part.values for part in parts], axis=0, dtype=np.int32)))
        return
    moved: NDArray[np.int32] = np.sum([in_ring(part.values, few.ring_bits) for part in parts], axis=0, dtype=np.int32)
    common.learn(moved << scale)
