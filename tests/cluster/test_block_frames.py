"""A block on its way to a worker: nothing of it is changed or left out."""

import numpy as np
import pytest

from fdml.cluster.block_frames import block_arrays, block_facts, block_of
from fdml.cluster.frames import Frame
from tests.cluster.learners import SHAPE, passed
from tests.models.random_updates import random_update

STATE = {"theta": np.arange(3.0), "m": np.ones(2, np.float32)}


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
def test_a_block_is_the_same_after_its_way_as_a_frame(loss):
    block, scores = random_update(np.random.default_rng(1), loss, "double", SHAPE, echo=3.0)
    task = passed(Frame(block_facts(block, scores), block_arrays(STATE, block, scores)))
    there, learned_from = block_of(task, scores.objective)
    for sent, come in ((block, there), (scores, learned_from)):
        for name in vars(sent) if not hasattr(sent, "_fields") else sent._fields:
            assert np.array_equal(getattr(come, name), getattr(sent, name)), name
    assert {name: each.tobytes() for name, each in task.under("state").items()} == {
        name: each.tobytes() for name, each in STATE.items()
    }


def test_the_block_s_facts_are_where_it_begins_and_how_far_the_others_are_assumed_to_move():
    block, scores = random_update(np.random.default_rng(1), "logistic", "double", SHAPE, echo=3.0)
    assert block_facts(block, scores) == {"start": block.start, "echo": 3.0}
