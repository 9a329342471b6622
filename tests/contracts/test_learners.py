"""What every learner must pass."""

import numpy as np
import pytest

from fdml.cluster.column_groups import grouped_learner
from fdml.cluster.column_job import ColumnSetup
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import ShardSetup
from fdml.cluster.sharding import sharded_learner
from fdml.errors import DataError
from fdml.models.collecting import CollectingLearner
from fdml.models.kind import ModelSpec
from fdml.models.learner import LocalLearner
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings, resolved_model
from tests.models.random_updates import Shape, build, random_features, random_update, stored

SHAPE = Shape(rows=9000, start=0, batch=500)
"""So many that threads share the work."""
X = random_features(np.random.default_rng(6), SHAPE)
TRAIN, HELD_OUT = stored(X, "dense"), stored(X[:30], "dense")


def local(kind, threads):
    def make(held_out=HELD_OUT):
        return LocalLearner(build(model_settings(kind), SHAPE.width, 1), TRAIN, held_out=held_out, threads=threads)

    return make


def collecting(kind):
    def make(held_out=HELD_OUT):
        return CollectingLearner(build(model_settings(kind, trees=30), SHAPE.width, 1), TRAIN, held_out=held_out)

    return make


def sharded(kind, workers):
    def make(held_out=HELD_OUT):
        settings = resolved_model(model_settings(kind, shards=3, average=0.99 if kind == "fm" else None), SHAPE.rows)
        spec = ModelSpec(inputs=SHAPE.width, width=1, bias=True, key=(1, "test"))
        setup = ShardSetup(settings, spec, "logistic", 2)
        return sharded_learner(
            setup, build_model(settings, spec), TRAIN, workers, party="shop", held_out=held_out, threads=1
        )

    return make


def grouped(kind, workers):
    def make(held_out=HELD_OUT):
        settings = resolved_model(
            model_settings(
                kind,
                column_groups={"few": ("a",), "many": ("b",)},
                group_features=((0, 2), (1, SHAPE.width - 4), (0, 1), (2, 1)),
                average=0.99 if kind == "fm" else None,
            ),
            SHAPE.rows,
        )
        spec = ModelSpec(inputs=SHAPE.width, width=1, bias=True, key=(1, "test"))
        setup = ColumnSetup(settings, spec, "logistic", 2)
        return grouped_learner(setup, build_model(settings, spec), TRAIN, workers, party="shop", held_out=held_out)

    return make


LEARNERS = {
    **{f"{kind} in column groups": grouped(kind, WorkersSettings(count=2)) for kind in ("linear", "fm", "mlp")},
    **{f"{kind} in shards": sharded(kind, WorkersSettings(count=2)) for kind in ("linear", "fm", "mlp")},
    **{
        f"{kind} with {threads} threads": local(kind, threads) for kind in ("linear", "fm", "mlp") for threads in (1, 2)
    },
    "trees": collecting("trees"),
    "trees+mlp": collecting("trees+mlp"),
}


@pytest.fixture(params=LEARNERS.values(), ids=LEARNERS)
def make(request):
    return request.param


def updated(learner, seed=1):
    learner.update(*random_update(np.random.default_rng(seed), "logistic", "single", SHAPE))
    return learner


def test_a_part_of_the_rows_is_predicted_as_in_all_of_them(make):
    learner = updated(make())
    whole = learner.predict(0, SHAPE.rows)
    assert (whole.shape, whole.dtype) == ((SHAPE.rows, 1), learner.dtype)
    for start, stop in ((0, 0), (0, 10), (17, 8999)):
        np.testing.assert_array_equal(learner.predict(start, stop), whole[start:stop])


def test_held_out_rows_are_predicted_with_the_same_model(make):
    learner = updated(make())
    np.testing.assert_array_equal(learner.predict_held_out(), learner.predict(0, 30))


def test_without_held_out_rows_there_is_nothing_to_predict(make):
    with pytest.raises(DataError, match="no held-out rows"):
        make(held_out=None).predict_held_out()


def test_an_update_changes_predictions_and_penalty(make):
    learner = make()
    before, penalty = learner.predict(0, 100), learner.penalty()
    updated(learner)
    assert not np.array_equal(learner.predict(0, 100), before)
    assert learner.penalty() != penalty


def test_a_restored_learner_goes_on_bit_by_bit_as_the_one_that_was_saved(make):
    learner, other = updated(make()), make()
    other.restore(learner.state())
    for each in (learner, other):
        updated(each, seed=2)
    for name, array in learner.state().items():
        np.testing.assert_array_equal(other.state()[name], array)
    np.testing.assert_array_equal(other.predict(0, SHAPE.rows), learner.predict(0, SHAPE.rows))


def test_warming_up_changes_nothing(make):
    learner = updated(make())
    before = learner.state()
    learner.warm_up(objective_for("logistic", 2))
    for name, array in learner.state().items():
        np.testing.assert_array_equal(array, before[name])
