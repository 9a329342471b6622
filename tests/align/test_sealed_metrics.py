"""Metrics leave the label party sealed: finding 1, the server read 200 of 200 held-out labels off exact figures."""

import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_metrics, open_outcome, pack_figures, seal_metrics, seal_outcome
from fdml.errors import AlignmentError
from fdml.protocol.messages import SEALED_EPOCH_BYTES, SEALED_METRICS_BYTES, Metrics, SealedMetrics

KEY = GroupKey(bytes(range(32)))
FOUND = Metrics(3, 1.5, 0.625, 0.5, 0.875)
figures = st.none() | st.floats(allow_nan=False)


@given(st.integers(0, 2**32 - 1), figures, figures, figures, figures)
def test_a_party_reads_what_the_label_party_found(epoch, seconds, train_loss, test_loss, test_metric):
    metrics = Metrics(epoch, seconds, train_loss, test_loss, test_metric)
    assert open_metrics(KEY, seal_metrics(KEY, metrics)) == metrics


def test_the_size_says_nothing_of_the_figures():
    sizes = {len(seal_metrics(KEY, each).sealed) for each in (FOUND, Metrics(1), Metrics(7, 1e300, 0.0, -1.0, None))}
    assert sizes == {SEALED_METRICS_BYTES}


def test_no_figure_is_in_the_bytes():
    sealed = seal_metrics(KEY, FOUND).sealed
    plain = pack_figures(1.5, 0.625, 0.5, 0.875)
    assert len(plain) == 32
    for start in range(0, 32, 8):
        assert plain[start : start + 8] not in sealed


def test_a_figure_that_is_not_known_is_none_and_not_zero():
    assert struct.unpack("<4d", pack_figures(0.0, 0.0, 0.0, 0.0)) == (0.0,) * 4
    assert all(math.isnan(figure) for figure in struct.unpack("<4d", pack_figures(None, None, None, None)))


def test_of_private_labels_only_the_epoch_is_known():
    assert open_metrics(KEY, SealedMetrics(4)) == Metrics(4)


@pytest.mark.parametrize("change", ["another key", "another epoch", "a byte", "without a seal"])
def test_what_the_label_party_did_not_seal_for_this_epoch_is_not_opened(change):
    """A server that lies cannot show a party one epoch's figures as another's."""
    key, epoch, sealed = KEY, 3, seal_metrics(KEY, FOUND).sealed
    if change == "another key":
        key = GroupKey(bytes(32))
    elif change == "another epoch":
        epoch = 4
    elif change == "a byte":
        sealed = sealed[:-1] + bytes([sealed[-1] ^ 1])
    else:
        sealed = pack_figures(1.0, 1.0, 1.0, 1.0)
    with pytest.raises(AlignmentError, match=f"the sealed metrics of epoch {epoch} of"):
        open_metrics(key, SealedMetrics(epoch, sealed))


def test_the_best_epoch_travels_sealed_and_is_the_same_bytes_each_time():
    found = seal_outcome(KEY, 17)
    assert open_outcome(KEY, found) == (17, False)
    assert open_outcome(KEY, seal_outcome(KEY, 0, promoted=True)) == (0, True)
    assert found == seal_outcome(KEY, 17) != seal_outcome(KEY, 18)
    assert found != seal_outcome(KEY, 17, promoted=True)
    assert len(found.sealed) == SEALED_EPOCH_BYTES
    with pytest.raises(AlignmentError, match="cannot be opened"):
        open_outcome(GroupKey(b"k" * 32), found)


def test_whether_a_run_is_promoted_is_told_under_the_same_seal():
    yes, no = (seal_outcome(KEY, 3, promoted=each) for each in (True, False))
    assert len(yes.sealed) == len(no.sealed), "its size tells the server nothing"
    assert open_outcome(KEY, yes) == (3, True)
    assert open_outcome(KEY, no) == (3, False)
    assert yes != no
