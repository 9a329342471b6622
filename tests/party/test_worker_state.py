"""A worker's state as arrays, and the pushes in it."""

from dataclasses import replace

import numpy as np
import pytest

from fdml.party.few_exchanges import LastExchange
from fdml.party.outbox import Outbox, PendingPush
from fdml.party.worker_state import WorkerState
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import Release
from tests.party.workers import (
    through_a_file,
)

EMPTY_STATE = WorkerState(step=3, pushed=4, end=9, loss_sum=0.5, spent="", guard="{}", pending={}, model={})


def test_a_state_comes_back_from_its_arrays_as_it_was():
    model = {"weights": np.arange(3.0)}
    state = replace(EMPTY_STATE, spent="the budget is spent", model=model)
    again = WorkerState.from_arrays(through_a_file(state.to_arrays()))
    np.testing.assert_array_equal(again.model["weights"], model["weights"])
    assert replace(again, model=model) == state


def test_the_last_of_few_exchanges_is_part_of_a_state():
    last = LastExchange(np.ones((2, 1)), np.zeros((2, 1), np.float32), 0.25)
    again = WorkerState.from_arrays(through_a_file(replace(EMPTY_STATE, last_exchange=last).to_arrays()))
    np.testing.assert_array_equal(again.last_exchange.others, last.others)
    assert again.last_exchange.own.dtype == np.float32
    assert again.last_exchange.variance == 0.25


def test_what_the_server_has_already_is_part_of_a_state():
    differences = {"held": np.arange(4, dtype=np.int16), "sent/7": np.array([1, 4, 2])}
    again = WorkerState.from_arrays(through_a_file(replace(EMPTY_STATE, differences=differences).to_arrays()))
    assert list(again.differences) == list(differences)
    assert again.differences["held"].dtype == np.int16
    assert (again.pending, again.model) == ({}, {})


@pytest.mark.parametrize("mask_id", [0, 7])
def test_a_difference_in_the_outbox_comes_back_with_its_bits(mask_id):
    own, codes = np.array([[0.1], [0.2]], np.float32), np.array([[51], [102]], np.int16)
    release = Release(np.array([[3], [-1]], np.int16), mask_id, 0.0, 4, 0 if mask_id else 5)
    saved = through_a_file(replace(EMPTY_STATE, pending={9: PendingPush(own, codes, release)}).to_arrays())
    again = WorkerState.from_arrays(saved).pending[9]
    np.testing.assert_array_equal(again.codes, codes)
    np.testing.assert_array_equal(again.release.values, release.values)
    assert replace(again.release, values=release.values) == release


def test_the_outbox_gives_back_what_was_pushed_and_forgets_what_was_answered():
    outbox = Outbox()
    own = np.array([[0.1], [0.2]], np.float32)
    push = PendingPush(own, encode(own), Release(encode(own) + 99, 7, 0.5))
    outbox.put(4, push)
    (again,) = outbox.pushes()
    assert (again.step, again.release) == (4, push.release)
    assert outbox.take(4) is push
    assert outbox.pushes() == []
    with pytest.raises(KeyError):
        outbox.take(4)


@pytest.mark.parametrize("mask_id", [0, 7, 2**63 + 7])
def test_an_outbox_is_restored_with_masks_and_all(mask_id):
    outbox = Outbox()
    own = np.array([[0.1], [0.2]], np.float32)
    masked = encode(own) + (99 if mask_id else 0)
    for step in (10, 9):
        outbox.put(step, PendingPush(own + step, encode(own + step), Release(masked, mask_id, 0.5)))
    saved = through_a_file(replace(EMPTY_STATE, pending=outbox.pending).to_arrays())
    other = Outbox(WorkerState.from_arrays(saved).pending)
    assert [push.step for push in other.pushes()] == [9, 10]
    for step in (9, 10):
        one, two = outbox.take(step), other.take(step)
        np.testing.assert_array_equal(one.own, two.own)
        np.testing.assert_array_equal(one.codes, two.codes)
        np.testing.assert_array_equal(two.release.values, masked if mask_id else two.codes)
        assert (two.own.dtype, two.release.mask_id, two.release.variance) == (np.float32, mask_id, 0.5)
