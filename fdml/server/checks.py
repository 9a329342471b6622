"""Checks of values that parties send, for training and held-out rows alike."""

from __future__ import annotations

import hashlib

import numpy as np

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.fixed_point import Codes, decode
from fdml.protocol.messages import Release

_DIGEST_BYTES = 16


def digest_of_values(values: Codes) -> bytes:
    """By which a resend is compared."""
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()[:_DIGEST_BYTES]


def check_same(what: str, release: Release, known: tuple[int, bytes] | None) -> None:
    """Refuse a resend that is not identical; under a new mask it cannot be compared, and the first value stays.

    `known` are mask id and digest of the first value; `what` begins the sentence.
    """
    if known is not None and release.mask_id != known[0] and known[0]:
        return
    if known != (release.mask_id, digest_of_values(release.values)):
        raise MessageRefused(
            f"{what} again with other values; a release is never changed",
            Refusal.CONFLICT,
        )


def check_masked(what: str, release: Release, *, blind: bool) -> None:
    """Refuse predictions that are masked where they should not be, or the other way; `what` begins the sentence."""
    if blind != bool(release.mask_id):
        has = "masked" if release.mask_id else "plain"
        raise MessageRefused(
            f"{what} {has} values; the run's server is {'blind' if blind else 'plain'}: all need the same run.toml",
            Refusal.MISMATCH,
        )


def check_range(what: str, values: Codes, most: int) -> None:
    """Refuse predictions whose codes are past what may travel; `what` begins the sentence."""
    for extreme in (values.min(initial=0), values.max(initial=0)):
        if abs(int(extreme)) > most:
            largest = decode(np.array(most, values.dtype))
            raise MessageRefused(
                f"{what} a prediction of {decode(extreme):g}; at most {largest:g} may travel, lower learning_rate",
                Refusal.INVALID,
            )
