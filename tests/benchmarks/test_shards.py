"""The benchmark of shards: a step that can be timed, and figures of quality against one shard."""

import numpy as np

from benchmarks import shards
from benchmarks.models import sets_of
from fdml.cluster.settings import WorkersSettings


def test_a_step_changes_the_model_and_is_the_same_whoever_works():
    found = []
    for count in (1, 2):
        learner, step = shards.timed_learner(2000, 2, WorkersSettings(count=count))
        before = learner.predict(0, 5)
        step()
        assert not np.array_equal(learner.predict(0, 5), before)
        found.append(learner.predict(0, 5))
        learner.close()
    np.testing.assert_array_equal(found[0], found[1])


def test_the_data_sets_are_there():
    assert shards.SETS[0] in sets_of()
    assert all(tried[0] == 1 for tried in shards.SHARDS.values()), "the others are compared with one shard"
