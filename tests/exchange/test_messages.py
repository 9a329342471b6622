import dataclasses

import numpy as np
import pytest

from fdml.exchange.messages import Push, Release, Reply, Total


def total(step, *made_at):
    return Total(step, np.zeros((1, 1), np.int64), made_at)


def test_the_lag_is_that_of_the_oldest_part():
    assert total(9, 9, 9).lag == 0
    assert total(9, 9, 4, 8).lag == 5


def test_a_part_that_never_came_counts_from_before_step_0():
    assert total(2, 2, -1).lag == 3


def test_no_message_has_a_place_for_more_than_predictions():
    """Features and parameters have no type to travel in; nobody names himself in a message."""
    fields = {
        kind.__name__: {field.name: field.type for field in dataclasses.fields(kind)}
        for kind in (Release, Push, Total, Reply)
    }
    assert fields == {
        "Release": {"values": "Codes"},
        "Push": {"step": "int", "release": "Release"},
        "Total": {"step": "int", "values": "Codes", "made_at": "tuple[int, ...]"},
        "Reply": {"to": "str", "total": "Total"},
    }


def test_messages_cannot_be_changed_on_their_way():
    with pytest.raises(dataclasses.FrozenInstanceError):
        total(1, 1).step = 2
