"""The benchmark of shards: a step that can be timed, and figures of quality against one shard."""

import numpy as np
import pytest

from benchmarks import shard_times, shards
from benchmarks.measure import Timing
from benchmarks.models import sets_of
from fdml.cluster.settings import WorkersSettings


def test_a_step_changes_the_model_and_is_the_same_whoever_works():
    found = []
    for count in (1, 2):
        learner, step_of = shard_times.timed_learner(2000, 2, WorkersSettings(count=count))
        step = step_of(1000)
        before = learner.predict(0, 5)
        step()
        assert not np.array_equal(learner.predict(0, 5), before)
        found.append(learner.predict(0, 5))
        learner.close()
    np.testing.assert_array_equal(found[0], found[1])


def test_the_modelled_gain_counts_the_shards_time_and_what_a_task_costs_beyond_it():
    times = {"1 processes": Timing("a", (0.08, 0.08)), "1 ray": Timing("b", (0.10, 0.10))}
    line = shard_times._overhead(1024, times)
    assert line["median"] == pytest.approx(10.0)
    assert line["modelled_gain"]["4"] == pytest.approx(0.08 / (0.02 + 0.01))


def test_the_data_sets_are_there():
    assert shards.SETS[0] in sets_of()
    assert all(tried[0] == 1 for tried in shards.SHARDS.values()), "the others are compared with one shard"
