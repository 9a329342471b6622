"""Shards of a block: how it is cut, and how the changes are put together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError, TrainingDiverged
from fdml.models.registry import model_settings
from fdml.models.shards import ShardChange, Sharding, cut, learn_shard, merged, trained_model
from tests.models.random_updates import FORM_OF, Shape, build, random_features, random_update, settings_of, stored

SHAPE = Shape(rows=403, start=3, batch=10)
X = random_features(np.random.default_rng(1), SHAPE)
ROWS = stored(X, FORM_OF["single"])


def update_of(seed=1, rate=0.05, shape=SHAPE):
    block, scores = random_update(np.random.default_rng(seed), "logistic", "single", shape, rate=rate, echo=1.0)
    return block, scores._replace(total=scores.own_at_push)


def trained(kind, sharding, passes=20, order=None, **settings):
    """A model after some passes in shards, each by a worker of its own."""
    model, worker = (build(settings_of(kind, **settings), SHAPE.width, 1) for _ in range(2))
    for _ in range(passes):
        (parts,) = cut(*update_of(), sharding)
        changes = {at: learn_shard(worker, ROWS, model.state(), parts[at]) for at in order or range(len(parts))}
        model.restore(merged(model, [changes[at] for at in range(len(parts))], sharding))
    return model


@given(rows=st.integers(1, 60), batch=st.integers(1, 20), shards=st.integers(1, 9), seed=st.integers(0, 99))
def test_every_row_is_in_one_shard_and_the_steps_add_up_to_those_of_the_block(rows, batch, shards, seed):
    block, scores = update_of(seed, shape=Shape(rows=rows + 3, start=3, batch=batch))
    (parts,) = cut(block, scores, Sharding(shards, shards))
    seen = np.concatenate([part.block.start + part.block.order for part in parts])
    assert sorted(seen) == list(range(3, rows + 3))
    for part in parts:
        sizes = np.diff(part.block.batch_bounds)
        assert sizes.sum() == len(part.block.order) == len(part.scores.total) == len(part.scores.labels)
        assert sizes.min() > 0
        assert sizes.max() == sizes[0], "kernels take their memory by the first batch"
        assert part.block.rates.sum() * shards == pytest.approx(block.rates.sum())
        rows_of_part = slice(part.block.start - 3, part.block.start - 3 + len(part.scores.total))
        np.testing.assert_array_equal(part.scores.total, scores.total[rows_of_part])


def test_a_row_stays_in_its_shard_whatever_the_order_of_learning():
    (first,), (second,) = (cut(*update_of(seed), Sharding(4, 4)) for seed in (1, 2))
    for one, other in zip(first, second, strict=True):
        assert one.block.start == other.block.start
        assert sorted(one.block.order) == sorted(other.block.order)
        assert not np.array_equal(one.block.order, other.block.order)


def test_the_echo_counts_the_shards_that_are_added_up():
    for shards in (4, 8):
        (parts,) = cut(*update_of(), Sharding(shards, 4))
        assert [part.echo for part in parts] == [4.0] * shards
    assert Sharding(8, 4).groups == 2
    assert Sharding(9, 4).groups == 3


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adagrad", "adam"])
@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_one_shard_is_plain_training(kind, optimizer):
    plain = build(settings_of(kind, optimizer=optimizer), SHAPE.width, 1)
    block, scores = update_of()
    for _ in range(3):
        plain.learn(ROWS, block, scores)
    found = trained(kind, Sharding(1, 1), 3, optimizer=optimizer)
    np.testing.assert_allclose(found.parameters, plain.parameters, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adagrad"])
def test_shards_come_to_the_same_model_as_one(optimizer):
    one, four = (trained("linear", Sharding(shards, 4), 150, optimizer=optimizer) for shards in (1, 4))
    assert np.abs(one.parameters).max() > 0.2
    assert np.abs(one.parameters - four.parameters).max() < 0.12


def test_one_batch_in_shards_is_one_step_of_the_whole_batch():
    """With plain SGD and one batch a block, the sum of shards is the gradient of all its rows: pooled SGD."""
    shape = Shape(rows=403, start=3, batch=400)
    block, scores = update_of(shape=shape)
    plain, model, worker = (build(settings_of("linear", l2=0.0), SHAPE.width, 1) for _ in range(3))
    plain.learn(ROWS, block, scores)
    sharding = Sharding(4, 4)
    (parts,) = cut(block, scores, sharding)
    changes = [learn_shard(worker, ROWS, model.state(), part) for part in parts]
    model.restore(merged(model, changes, sharding))
    np.testing.assert_allclose(model.parameters, plain.parameters, rtol=1e-4, atol=1e-7)


def test_the_sum_of_shards_is_the_same_in_any_order():
    states = [
        trained("mlp", Sharding(4, 4), 5, order, optimizer="adam").state() for order in ([0, 1, 2, 3], [3, 1, 0, 2])
    ]
    for name, array in states[0].items():
        assert array.tobytes() == states[1][name].tobytes()


def test_moments_are_averaged_and_sums_of_squares_added():
    def after(optimizer):
        model = build(settings_of("linear", optimizer=optimizer), SHAPE.width, 1)
        size = len(model.parameters)
        held = [{"first": np.full(size, value), "second": model.state()["second"] + value} for value in (1.0, 3.0)]
        changes = [ShardChange(np.full(size, 2**40), each, 5) for each in held]
        before, state = model.parameters, merged(model, changes, Sharding(2, 2))
        np.testing.assert_array_equal(state["theta"], before + 2)
        return state

    assert after("adam")["first"][0] == 2.0
    assert after("adam")["counters"][1] == 10.0
    assert after("adagrad")["first"][0] == 4.0
    assert after("adagrad")["counters"][1] == 5.0


def test_adams_second_moment_forgets_as_by_the_updates_of_all_shards():
    """Shards that see the same square in every update: the merged moment is what one model has after all of them."""
    model = build(settings_of("linear", optimizer="adam"), SHAPE.width, 1)
    size, square, each, shards = len(model.parameters), 0.3, 7, 4

    def after(updates, start):
        return 0.999**updates * start + (1.0 - 0.999**updates) * square

    model.restore({**model.state(), "second": np.full(size, 2.0, np.float32)})
    held = {"first": np.zeros(size), "second": np.full(size, after(each, 2.0))}
    change = ShardChange(np.zeros(size, np.int64), held, each)
    state = merged(model, [change] * shards, Sharding(shards, shards))
    np.testing.assert_allclose(state["second"], after(each * shards, 2.0), rtol=1e-4)
    assert state["counters"][1] == each * shards


def test_a_second_moment_never_falls_below_zero():
    model = build(settings_of("linear", optimizer="adam"), SHAPE.width, 1)
    size = len(model.parameters)
    model.restore({**model.state(), "second": np.full(size, 2.0, np.float32)})
    held = {"first": np.zeros(size), "second": np.full(size, 2.0 * 0.999**900 * (1 - 1e-6))}
    change = ShardChange(np.zeros(size, np.int64), held, 900)
    assert merged(model, [change] * 8, Sharding(8, 8))["second"].min() >= 0.0


@given(rows=st.integers(1, 80), batch=st.integers(1, 9), shards=st.integers(1, 5), longest=st.integers(1, 9))
def test_rounds_have_every_row_and_every_step_once(rows, batch, shards, longest):
    block, scores = update_of(shape=Shape(rows=rows + 3, start=3, batch=batch))
    sharding = Sharding(shards, shards, step=0.5, round_batches=longest)
    found = cut(block, scores, sharding)
    assert len(found) == min(-(-len(block.rates) // longest), rows)
    seen = np.concatenate([part.block.start + part.block.order for parts in found for part in parts])
    assert sorted(seen) == list(range(3, rows + 3))
    steps = sum(parts[0].block.rates.sum() for parts in found)
    assert steps * shards == pytest.approx(0.5 * block.rates.sum())
    order = {row: place for place, row in enumerate(block.start + block.order)}
    for part in (part for parts in found for part in parts):
        places = [order[row] for row in part.block.start + part.block.order]
        assert places == sorted(places), "rows are learned from in the order of the block"


def test_a_round_has_as_many_rows_as_the_model_has_parameters():
    sharding = Sharding(4, 4, round_batches=10)
    assert [sharding.rounds(40, 400, parameters) for parameters in (1, 100, 101, 200, 201, 1000)] == [4, 4, 3, 2, 1, 1]
    assert Sharding(4, 4).rounds(40, 400, 1) == 1


def test_parameters_that_run_away_end_the_training():
    worker = build(settings_of("linear"), SHAPE.width, 1)
    block, scores = update_of(rate=1e9)
    with pytest.raises(TrainingDiverged, match=r"fewer model\.shards"):
        learn_shard(worker, ROWS, worker.state(), cut(block, scores, Sharding(1, 1))[0][0])


def test_a_model_that_is_not_compiled_is_trained_in_one_piece():
    with pytest.raises(SettingsError, match=r"set model\.shards = 1"):
        trained_model(build(model_settings("trees"), SHAPE.width, 1))
