"""How large a message may be: no larger than the run has use for."""

from __future__ import annotations

from typing import Protocol

from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.row_pieces import HELD_OUT_VALUES, LABEL_ROWS
from fdml.settings import AgreedTraining, RunSettings

PIECE = 2**20
"""Bytes of the largest piece that travels at once: a longer message comes in several, and its length is checked as
they come. A piece of exactly this size is followed by another."""
CEILING = 512 * 2**20
"""Bytes that no message may exceed, whatever the run: how many rows a party has is not known before its ids come.

Ids, row numbers, labels and held-out predictions come in pieces, so they have no such bound. A block has it.
"""
HELLO = 1024
"""Bytes of a party's first message: it is the same few fields in every run."""
CALL = 1024
"""Bytes of a call that carries no alignment message, and of all but that message in one that does."""
LARGEST_MATRIX = 64 * 2**30
"""Bytes of the largest prediction matrix, where nothing is known of the machine."""
_SLACK = 1024
_VALUE = 8
_EACH_PART = 32
"""Bytes that a total says of each party's part, and a welcome of each epoch, at most."""


class AgreedCounts(Protocol):
    """How many rows a run has, as a hello says it or a server has agreed on it."""

    @property
    def rows(self) -> int:
        """Rows to train on."""
        ...

    @property
    def held_out(self) -> int:
        """Rows held out."""
        ...

    @property
    def line(self) -> int:
        """The class of the slowest line."""
        ...


def agreed_with(run: RunSettings, agreed: AgreedCounts) -> AgreedTraining:
    """How a run trains over the rows that were agreed on."""
    return agreed_training(run.training, agreed.rows, len(run.parties), agreed.line)


def largest_message(training: AgreedTraining, agreed: AgreedCounts, width: int) -> int:
    """Bytes of the largest message a party of this run may send after its hello: labels, a block, or held-out rows.

    Of labels and held-out rows no more than a piece.
    """
    labels = 2 * _VALUE * min(agreed.rows + agreed.held_out, LABEL_ROWS)
    held_out = min(width * agreed.held_out, max(HELD_OUT_VALUES, width))
    return min(max(labels, _VALUE * max(width * _block(training, agreed), held_out)) + _SLACK, CEILING)


def largest_answer(training: AgreedTraining, agreed: AgreedCounts, width: int, parties: int) -> int:
    """Bytes of the largest message the server of this run may send to a party: as above, and what each part says."""
    return min(largest_message(training, agreed, width) + _EACH_PART * (parties + training.epochs), CEILING)


def largest_width(training: AgreedTraining, agreed: AgreedCounts) -> int:
    """How many values of a row can travel at most: no block may be larger than the largest message."""
    return (CEILING - _SLACK) // (_VALUE * max(_block(training, agreed), 1))


def largest_block(training: AgreedTraining, agreed: AgreedCounts, width: int) -> int:
    """How many values the largest block has."""
    return width * _block(training, agreed)


def _block(training: AgreedTraining, agreed: AgreedCounts) -> int:
    """Rows of the largest block."""
    whole = training.batches_per_block == "all" or training.exchanges is not None
    return agreed.rows if whole else min(agreed.rows, training.batch_size * int(training.batches_per_block))
