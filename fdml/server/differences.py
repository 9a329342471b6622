"""Pushes of few bits: what they make of what the server has, and whether they may."""

from __future__ import annotations

import numpy as np

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.few_bits import GRID, FewBits, added
from fdml.protocol.fixed_point import Codes
from fdml.protocol.messages import Release
from fdml.protocol.schedule import Schedule


def whole_of(before: Release, release: Release) -> Release:
    """A party's block with a release: the release itself, or what was there with its differences added."""
    if not release.bits:
        return release
    return Release(added(before.values, release.values, release.scale), release.mask_id, release.variance)


def check_bits(what: str, release: Release, few: FewBits | None, schedule: Schedule, step: int) -> None:
    """Refuse whole predictions where differences belong, or the other way; `what` begins the sentence."""
    expected = 0 if few is None or few.is_whole(schedule, step) else few.push_bits
    if release.bits != expected:
        raise MessageRefused(
            f"{what} values of {release.bits or 'whole'} bits instead of {expected or 'whole'}; all need the same "
            f"run.toml",
            Refusal.MISMATCH,
        )


def check_difference(what: str, release: Release, few: FewBits, before: Codes, most: int) -> float:
    """Refuse differences that are too large, or that lead past what may travel; gives the largest code that they lead
    to. `what` begins the sentence."""
    largest = int(np.abs(release.values.astype(np.int32)).max(initial=0))
    if largest > few.limit or release.scale > few.largest_scale:
        raise MessageRefused(
            f"{what} a difference of {largest} steps of 2**{release.scale}; {few.bits} bits have {few.limit} steps of "
            f"at most 2**{few.largest_scale}",
            Refusal.INVALID,
        )
    after = added(before.astype(np.int32), release.values.astype(np.int32), release.scale)
    furthest = int(np.abs(after).max(initial=0))
    if furthest > most:
        raise MessageRefused(
            f"{what} differences that come to a prediction of {furthest * GRID.step:g}; at most {most * GRID.step:g} "
            f"may travel, lower learning_rate",
            Refusal.INVALID,
        )
    return furthest
