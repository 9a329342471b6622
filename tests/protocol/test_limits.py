"""How large a message may be: every message that a run can send fits, and not much more."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.limits import (
    CEILING,
    HELLO,
    agreed_with,
    largest_answer,
    largest_block,
    largest_message,
    largest_width,
)
from fdml.protocol.messages import HeldOutPredictions, HeldOutTotal, Hello, Labels, Push, Release, Total, Welcome
from fdml.protocol.row_pieces import HELD_OUT_VALUES, LABEL_ROWS
from fdml.protocol.wire import encode_from_party, encode_from_server
from fdml.settings import RunSettings, TrainingSettings

LARGE = 2**62


@dataclass(frozen=True)
class Counts:
    rows: int
    held_out: int
    line: int = 0


def training_of(counts, parties=("a", "b"), **settings):
    chosen = TrainingSettings(**{"batch_size": 4, "epochs": 3, **settings})
    return agreed_with(RunSettings(parties=parties, label_party=parties[0], task="regression", training=chosen), counts)


counts = st.builds(Counts, st.integers(1, 60), st.integers(0, 60))
blocks = st.sampled_from([1, 3, "all"])


@given(counts, blocks, st.integers(1, 5))
def test_every_message_of_a_party_fits_into_the_largest(agreed, per_block, width):
    training = training_of(agreed, batches_per_block=per_block)
    largest, block = largest_message(training, agreed, width), largest_block(training, agreed, width)
    values = np.full(block, LARGE)
    held_out = np.full(agreed.held_out * width, LARGE)
    rows = agreed.rows + agreed.held_out
    for message in (
        Push(2**53, Release(values, 2**64 - 1, 0.5)),
        HeldOutPredictions(2**32 - 1, Release(held_out, 2**64 - 1, 0.5)),
        Labels(0, b"s" * (16 * rows)),
    ):
        assert len(encode_from_party(message)) <= largest


@given(counts, blocks, st.integers(1, 5), st.integers(2, 9))
def test_every_answer_of_the_server_fits_into_the_largest(agreed, per_block, width, count):
    parties = tuple(f"p{number}" for number in range(count))
    training = training_of(agreed, parties, batches_per_block=per_block)
    largest = largest_answer(training, agreed, width, count)
    values = np.full(largest_block(training, agreed, width), LARGE)
    masks = (2**64 - 1,) * count
    for message in (
        Total(2**53, values, (2**53,) * count, masks, 0.5),
        HeldOutTotal(2**32 - 1, np.full(agreed.held_out * width, LARGE), masks, 0.5),
        Welcome(2**53, tuple(range(training.epochs))),
    ):
        assert len(encode_from_server(message)) <= largest


def test_a_hello_fits_whatever_it_says():
    hello = Hello(b"r" * 32, b"a" * 32, 2**53, 2**53, 2**53, -(2**63), 6, 2**32 - 1)
    assert len(encode_from_party(hello)) <= HELLO


@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({"batches_per_block": 1}, 4),
        ({"batches_per_block": 3}, 12),
        ({"batches_per_block": 50}, 100),
        ({"batches_per_block": "all"}, 100),
        ({"exchanges": 1}, 100),
    ],
)
def test_a_block_has_no_more_rows_than_the_run(settings, rows):
    agreed = Counts(100, 10)
    assert largest_block(training_of(agreed, **settings), agreed, 2) == 2 * rows


def test_no_message_may_exceed_the_ceiling_however_many_rows_there_are():
    agreed = Counts(10**9, 10**8)
    training = training_of(agreed, batches_per_block="all")
    assert largest_message(training, agreed, 1) == CEILING
    assert largest_answer(training, agreed, 1, 2) == CEILING


def test_labels_and_held_out_rows_come_in_pieces_however_many_they_are():
    agreed = Counts(10**9, 10**9)
    training = training_of(agreed, batches_per_block=1)
    assert largest_message(training, agreed, 1) == 16 * LABEL_ROWS + 1024
    assert largest_message(training, agreed, 3 * HELD_OUT_VALUES) == 8 * 4 * 3 * HELD_OUT_VALUES + 1024


@given(counts, blocks)
def test_a_block_of_the_largest_width_is_a_message_and_a_wider_one_is_none(agreed, per_block):
    training = training_of(agreed, batches_per_block=per_block)
    widest = largest_width(training, agreed)
    longest = largest_block(training, agreed, 1)
    assert 8 * longest * widest < CEILING <= 8 * longest * (widest + 1) + 1024
