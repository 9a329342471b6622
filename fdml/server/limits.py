"""How large a message may be: no larger than the run has use for."""

from __future__ import annotations

from fdml.protocol.messages import Hello
from fdml.settings import TrainingSettings

CEILING = 512 * 2**20
"""Bytes that no message may exceed, whatever the run: gRPC must know it before the number of rows is known.

Labels take at most 16 bytes a row and tokens of ids 16, so a run may have 33 million rows; 16 million where ids are
blinded (32 bytes).
"""
HELLO = 1024
"""Bytes of a party's first message: it is the same few fields in every run."""
_SLACK = 1024
_VALUE = 8


def largest_message(training: TrainingSettings, hello: Hello, width: int) -> int:
    """Bytes of the largest message a party of this run may send after its hello: labels, a block, or held-out rows."""
    labels = 2 * _VALUE * (hello.rows + hello.held_out)
    whole = training.batches_per_block == "all" or training.exchanges is not None
    block = hello.rows if whole else min(hello.rows, training.batch_size * int(training.batches_per_block))
    return min(max(labels, _VALUE * width * max(block, hello.held_out)) + _SLACK, CEILING)
