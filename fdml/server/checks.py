"""Checks of what parties send: values of training and held-out rows, and the labels that decide their number."""

from __future__ import annotations

import hashlib

import numpy as np

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.fixed_point import Codes, grid_of, largest_size, size_of
from fdml.protocol.limits import AgreedCounts, agreed_with, largest_width
from fdml.protocol.messages import Labels, Release, prediction_width
from fdml.settings import RunSettings

_DIGEST_BYTES = 16
UNFORESEEN = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
"""What no message should raise. One that does ends its party's stream, not the server, and is printed with its place.

Out of memory is among them: a message that asks for too much must not end the server, nor again after every restart.
"""


def digest_of_values(values: Codes) -> bytes:
    """By which a resend is compared."""
    return hashlib.sha256(np.ascontiguousarray(values).data).digest()[:_DIGEST_BYTES]


def digest_of_release(release: Release) -> bytes:
    """By which a resend of predictions is compared."""
    digest = digest_of_values(release.values)
    if not release.bits:
        return digest
    return hashlib.sha256(digest + bytes([release.bits, release.scale])).digest()[:_DIGEST_BYTES]


def check_same(what: str, release: Release, known: tuple[int, bytes] | None) -> None:
    """Refuse a resend that is not identical; under a new mask it cannot be compared, and the first value stays.

    `known` are mask id and digest of the first value; `what` begins the sentence.
    """
    if known is not None and release.mask_id != known[0] and known[0]:
        return
    if known != (release.mask_id, digest_of_release(release)):
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


def check_range(what: str, values: Codes, most: int) -> float:
    """Refuse predictions whose codes are past what may travel; gives the largest. `what` begins the sentence."""
    largest = largest_size(values)
    if largest > most:
        raise MessageRefused(
            f"{what} a prediction of size {size_of(largest, values.dtype):g}; at most "
            f"{size_of(most, values.dtype):g} may travel, lower learning_rate",
            Refusal.INVALID,
        )
    return largest


def check_stops(sender: str, settings: RunSettings) -> None:
    """Refuse what is for runs alone that end when held-out rows gain nothing."""
    if settings.evaluation.stop_after is None:
        raise MessageRefused(
            f"party {sender!r} sent what is for runs with evaluation.stop_after, which this one has not: all need the "
            f"same run.toml",
            Refusal.MISMATCH,
        )


def check_outcome(sender: str, settings: RunSettings) -> None:
    """Refuse what is for runs alone whose label party tells the others how they end."""
    if not settings.has_outcome:
        raise MessageRefused(
            f"party {sender!r} sent what is for runs with evaluation.stop_after or [promotion], which this one has "
            f"not: all need the same run.toml",
            Refusal.MISMATCH,
        )


def check_log(*, is_open: bool) -> bool:
    """Raise where an earlier write to the log has failed; else False, which it is until the next one has succeeded.

    Replies that wait for a failed write are lost: later ones would leave a gap that no party asks to be filled.
    """
    if not is_open:
        raise StateCorrupt("the log could not be written; make room, then run the same command again")
    return False


def unforeseen(sender: str, what: str, error: BaseException) -> MessageRefused:
    """The refusal of a message that failed in a way that nobody thought of."""
    return MessageRefused(
        f"party {sender!r} sent {what} that the server could not act on ({type(error).__name__}); ask its operator to "
        f"report it",
        Refusal.INVALID,
    )


def check_labels(sender: str, labels: Labels, settings: RunSettings, agreed: AgreedCounts, largest_matrix: int) -> None:
    """Refuse labels that do not fit the task and the rows, or of more classes than the server has memory for."""
    task = settings.task
    fits = labels.classes >= 2 if task == "multiclass" else labels.classes == (2 if task == "binary" else 0)
    if not fits:
        raise MessageRefused(
            f"party {sender!r} sent labels of {labels.classes} classes; the task is {task!r}", Refusal.INVALID
        )
    rows = agreed.rows + agreed.held_out
    piece = labels.piece
    held = rows if piece is None else sum(each.stop - each.start for each in (piece.train, piece.test))
    sizes = [0]
    if settings.privacy.labels == "shared":
        sizes = [Labels.sealed_size(task, labels.classes, held, weighted=weighted) for weighted in (False, True)]
    if len(labels.sealed) not in sizes:
        raise MessageRefused(
            f"party {sender!r} sent {len(labels.sealed)} bytes of sealed labels; {held} rows have "
            f"{' or, with weights, '.join(map(str, sizes))}",
            Refusal.INVALID,
        )
    width, chosen = prediction_width(task, labels.classes, settings.training), agreed_with(settings, agreed)
    most = largest_width(chosen, agreed)
    if width > most:
        raise MessageRefused(
            f"party {sender!r} sent labels of {labels.classes} classes: a row's prediction has {width} numbers; "
            f"a block of this run can travel with {most} at most: lower batches_per_block, the number of classes or "
            f"training.joint_width",
            Refusal.TOO_LARGE,
        )
    matrix = len(settings.parties) * rows * width * grid_of(chosen.value_bits).dtype.itemsize
    if matrix > largest_matrix:
        raise MessageRefused(
            f"the labels of party {sender!r} make predictions of {matrix / 2**30:.1f} GiB; this server has memory for "
            f"{largest_matrix / 2**30:.1f} GiB: run it on a larger machine, or lower value_bits or the number of "
            f"classes",
            Refusal.TOO_LARGE,
        )
