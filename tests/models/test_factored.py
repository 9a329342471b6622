"""The optimizer `factored` answers to a slow twin in plain numpy, and does what it is for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.data.rows import drop_unit_values
from fdml.errors import SettingsError
from fdml.models.registry import model_settings, resolved_model
from fdml.models.signals import NO_ROWS, BlockUpdate, no_scores
from tests.models.plain_models import PlainRule, plain_gradient, plain_twin
from tests.models.random_updates import (
    STORED,
    Shape,
    build,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

L2 = 0.01
TOLERANCE = {"single": 1e-4, "double": 1e-9}
SHAPE = Shape(rows=40, width=9, start=4, batch=3)


def of_net(**values):
    return settings_of("mlp", **{"optimizer": "factored", "hidden": (5, 4), "l2": L2, "momentum": 0.8, **values})


class PlainFactored:
    """Adam for all but the first weights; these by the formulas of `factored._step`, one feature after the other."""

    def __init__(self, features, units, momentum):
        self.rest = PlainRule("adam", momentum)
        self.by_feature, self.by_unit = np.zeros(features), np.zeros(units)

    def learn(self, twin, l2, x, block, scores, *, every):
        """One block; `every` says whether each batch has all features, as batches of dense rows do."""
        seen = np.zeros(len(self.by_feature), int)
        self.squares = np.square(twin.weights[0]).mean(axis=1)
        for number, rate in enumerate(block.rates, 1):
            chosen = block.batch(number - 1)
            rows = x[block.start + chosen]
            towards = plain_gradient(scores, chosen, twin.predict(rows)) * scores.weights[chosen, None] / len(chosen)
            of_weights, of_biases = twin.gradients(rows, towards)
            errors = self.errors(twin, rows, towards)
            shrunk = [g + l2 * w for g, w in zip(of_weights[1:], twin.weights[1:], strict=True)]
            self.rest.apply(twin.weights[1:] + twin.biases, shrunk + of_biases, rate)
            self.by_unit = 0.999 * self.by_unit + 0.001 * np.square(errors).sum(axis=0)
            factors = np.ones(len(self.by_unit))
            alive = self.by_unit > 0
            factors[alive] = np.sqrt(self.by_unit.mean() / self.by_unit[alive])
            for feature in np.flatnonzero((rows != 0).any(axis=0) | every):
                gradient = rows[:, feature] @ (errors * factors)
                self.step(twin.weights[0], feature, gradient, number - seen[feature], l2, rate)
                seen[feature] = number
        for feature in np.flatnonzero(seen < len(block.rates)):
            none = np.zeros(len(self.by_unit))
            self.step(twin.weights[0], feature, none, len(block.rates) - seen[feature], l2, block.rates[-1])

    def step(self, weights, feature, gradient, batches, l2, rate):
        kept, long = 0.999**batches, self.squares[feature]
        moment = kept * self.by_feature[feature] + 0.001 * np.square(gradient).mean() + (1 - kept) * l2**2 * long
        self.by_feature[feature] = moment
        root = np.sqrt(moment / (1 - 0.999**self.rest.updates)) + 1e-8
        weights[feature] = weights[feature] / (1 + rate * l2 * batches / root) - rate / root * gradient

    @staticmethod
    def errors(twin, rows, towards):
        """The gradient of each row's first units, before they are bent."""
        outs = twin.layers(rows)
        for depth in reversed(range(1, len(twin.weights))):
            towards = (towards @ twin.weights[depth].T) * (outs[depth] > 0)
        return towards


def pair(random, wanted, width=SHAPE.width, outputs=1):
    model, twin = build(wanted, width, outputs), plain_twin(wanted, width, outputs, bias=True)
    theta = random.normal(0.0, 0.3, len(model.parameters)).astype(model.dtype)
    set_parameters(model, theta)
    twin.read(theta)
    return model, twin


@pytest.mark.parametrize(("form", "precision"), STORED)
@pytest.mark.parametrize(("loss", "outputs"), [("logistic", 1), ("softmax", 3)])
def test_learning_equals_plain_numpy(loss, outputs, form, precision):
    random = np.random.default_rng(outputs)
    x = random_features(random, SHAPE, density=0.15)
    wanted = of_net(precision=precision)
    model, twin = pair(random, wanted, outputs=outputs)
    plain = PlainFactored(SHAPE.width, wanted.hidden[0], wanted.momentum)
    for _ in range(4):
        update = random_update(random, loss, precision, SHAPE, rate=0.03)
        model.learn(stored(x, form), *update)
        plain.learn(twin, L2, x.astype(np.float64), *update, every=form == "dense")
    tolerance = TOLERANCE[precision]
    np.testing.assert_allclose(model.parameters, twin.flat(), rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        model.state()["second"][: SHAPE.width], plain.by_feature, rtol=10 * tolerance, atol=tolerance**2
    )


@given(
    seed=st.integers(0, 2**16),
    shape=st.builds(
        Shape,
        rows=st.integers(6, 30),
        width=st.integers(1, 12),
        start=st.integers(0, 4),
        batch=st.integers(1, 12),
    ),
    density=st.sampled_from([0.02, 0.2, 0.6, 1.0]),
    units=st.integers(1, 5),
    rate=st.sampled_from([1e-3, 0.05]),
    l2=st.sampled_from([0.0, 0.01, 0.5]),
)
@settings(deadline=None)
def test_batches_of_any_size_and_density_equal_plain_numpy(seed, shape, density, units, rate, l2):
    """A feature may have no entry in a batch, one, or several; a batch none at all."""
    random = np.random.default_rng(seed)
    wanted = of_net(precision="double", hidden=(units,), l2=l2)
    model, twin = pair(random, wanted, shape.width)
    plain = PlainFactored(shape.width, units, wanted.momentum)
    x = random_features(random, shape, density=density)
    for _ in range(2):
        update = random_update(random, "logistic", "double", shape, rate=rate)
        model.learn(stored(x, "sparse"), *update)
        plain.learn(twin, l2, x.astype(np.float64), *update, every=False)
    np.testing.assert_allclose(model.parameters, twin.flat(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.state()["second"][: shape.width], plain.by_feature, rtol=1e-6, atol=1e-18)


def test_rows_of_ones_learn_as_the_same_rows_with_their_values():
    """Rows of ones have kernels of their own, without values."""
    random = np.random.default_rng(10)
    ones = (random.random((SHAPE.rows, SHAPE.width)) < 0.3).astype(np.float32)
    update = random_update(random, "logistic", "double", SHAPE, rate=0.03)
    found = []
    for rows in (stored(ones, "sparse"), drop_unit_values(stored(ones, "sparse"))):
        model = build(of_net(precision="double"), SHAPE.width, 1)
        model.learn(rows, *update)
        found.append(model.parameters)
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("times", [1, 2, 3, 12])
def test_a_feature_with_several_entries_in_a_batch_learns_from_their_sum(times):
    """However its entries are spread over rows: as one row with an entry for each learns, if their errors are alike."""
    random = np.random.default_rng(11)
    wanted = of_net(precision="double", hidden=(3,), l2=0.0)
    model, _ = pair(random, wanted, width=2)
    x = np.zeros((times, 2), np.float32)
    x[:, 1] = 0.5
    before = model.parameters
    block, scores = random_update(random, "logistic", "double", Shape(rows=times, width=2, start=0, batch=times))
    same = scores._replace(
        total=np.full_like(scores.total, 0.3),
        own_at_push=np.full_like(scores.own_at_push, 0.1),
        labels=np.ones(times),
        weights=np.ones(times),
    )
    model.learn(stored(x, "sparse"), block, same)
    moved = (model.parameters - before)[:6].reshape(2, 3)
    np.testing.assert_allclose(moved[0], 0.0, atol=1e-15)
    one, _ = pair(np.random.default_rng(11), wanted, width=2)
    single = BlockUpdate(0, np.arange(1), np.array([0, 1]), block.rates)
    rows = slice(0, 1)
    first = same._replace(
        total=same.total[rows], own_at_push=same.own_at_push[rows], labels=same.labels[rows], weights=same.weights[rows]
    )
    one.learn(stored(x[:1], "sparse"), single, first)
    np.testing.assert_allclose(moved[1], (one.parameters - before)[3:6], rtol=1e-9)


def test_rows_that_have_all_features_give_the_same_stored_sparse_or_dense():
    random = np.random.default_rng(4)
    x = random.normal(size=(SHAPE.rows, SHAPE.width)).astype(np.float32)
    wanted = of_net(precision="double")
    update = random_update(random, "logistic", "double", SHAPE, rate=0.03)
    found = []
    for form in ("sparse", "dense"):
        model = build(wanted, SHAPE.width, 1)
        model.learn(stored(x, form), *update)
        found.append(model.parameters)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_features_that_no_row_has_are_shrunk_and_others_learn():
    random = np.random.default_rng(5)
    x = random_features(random, SHAPE)
    x[:, 2] = 0.0
    wanted = of_net(precision="double", hidden=(5,), l2=0.1)
    model = build(wanted, SHAPE.width, 1)
    before = model.parameters[: SHAPE.width * 5].reshape(-1, 5)
    for _ in range(3):
        model.learn(stored(x, "sparse"), *random_update(random, "logistic", "double", SHAPE, rate=0.03))
    after = model.parameters[: SHAPE.width * 5].reshape(-1, 5)
    np.testing.assert_allclose(after[2] / before[2], (after[2] / before[2])[0])  # all by the same
    assert 0.0 < (after[2] / before[2])[0] < 0.5
    assert np.ptp(after[3] / before[3]) > 0.1


def test_a_unit_without_errors_has_no_longer_steps_than_others_when_it_wakes():
    """Its moment has the errors of the batch in which it wakes, so its factor is bounded by 1 / sqrt(1 - beta2)."""
    random = np.random.default_rng(6)
    x = random_features(random, SHAPE)
    wanted = of_net(precision="double", hidden=(5,), l2=0.0)
    model, _ = pair(random, wanted)
    state = model.state()
    at = SHAPE.width * 5 + 5  # biases follow two layers of weights
    model.restore({**state, "theta": np.where(np.arange(len(state["theta"])) == at, -1e3, state["theta"])})
    rows = stored(x, "sparse")
    for _ in range(20):
        model.learn(rows, *random_update(random, "logistic", "double", SHAPE, rate=0.01))
    assert model.state()["second"][SHAPE.width] == 0.0, "the unit has slept"
    theta = model.state()["theta"]
    model.restore({**model.state(), "theta": np.where(np.arange(len(theta)) == at, 1.0, theta)})
    block, scores = random_update(random, "logistic", "double", SHAPE, rate=0.01)
    before = model.parameters
    model.learn(rows, block.only(0), scores)
    step = np.abs(model.parameters - before)[: SHAPE.width * 5].max()
    assert 0.0 < step < 0.01 * np.sqrt(5) / np.sqrt(0.001) * 1.01


def test_it_keeps_a_moment_for_each_feature_and_unit_and_nothing_for_their_weights():
    model = build(of_net(hidden=(64,)), 1000, 1)
    rest = 64 + 65
    sizes = {name: array.size for name, array in model.state().items()}
    assert sizes == {"theta": 64_000 + rest, "gradient": rest, "first": rest, "second": 1064 + rest, "counters": 2}


def test_a_call_without_batches_changes_nothing():
    random = np.random.default_rng(7)
    model, _ = pair(random, of_net())
    before = model.state()
    _, scores = random_update(random, "logistic", "single", SHAPE)
    model.learn(stored(random_features(random, SHAPE), "sparse"), NO_ROWS, no_scores(scores.objective, np.float32))
    for name, array in model.state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_restored_net_goes_on_bit_by_bit(form):
    random = np.random.default_rng(8)
    rows = stored(random_features(random, SHAPE), form)
    updates = [random_update(random, "logistic", "single", SHAPE) for _ in range(4)]
    model = build(of_net(), SHAPE.width, 1)
    for update in updates[:2]:
        model.learn(rows, *update)
    twin = build(of_net(), SHAPE.width, 1, key=(9, "other"))
    twin.restore(model.state())
    for update in updates[2:]:
        model.learn(rows, *update)
        twin.learn(rows, *update)
    np.testing.assert_array_equal(model.parameters, twin.parameters)


def test_a_net_in_a_sum_has_it_by_default_and_sgd_with_noise():
    assert resolved_model(model_settings("mlp"), 1000).optimizer == "factored"
    assert resolved_model(model_settings("mlp"), 1000, private=True).optimizer == "sgd"


def test_under_other_joint_functions_and_with_trees_a_net_keeps_adam_by_default():
    assert resolved_model(model_settings("mlp"), 1000, summed=False).optimizer == "adam"
    assert resolved_model(model_settings("trees+mlp"), 1000).optimizer == "adam"


@pytest.mark.parametrize("kind", ["linear", "fm"])
def test_other_kinds_refuse_it(kind):
    with pytest.raises(SettingsError, match=f'"factored", which a model of kind \'{kind}\' has not; set "adam"'):
        model_settings(kind, optimizer="factored")


def test_where_its_quality_was_not_measured_nets_train_with_adam():
    assert resolved_model(model_settings("mlp", shards=4), 1000).optimizer == "adam"
    assert resolved_model(model_settings("mlp"), 1000, summed=False).optimizer == "adam"
    assert resolved_model(model_settings("mlp", shards=4, optimizer="factored"), 1000).optimizer == "factored"


def test_a_feature_that_a_block_lacks_is_brought_up_to_its_end_in_closed_form():
    """As the formula beside the kernel says: |w|^2 of when the block began, and all its batches at once."""
    random = np.random.default_rng(12)
    wanted = of_net(precision="double", hidden=(4,), l2=0.2)
    model, _ = pair(random, wanted, width=3)
    x = random_features(random, Shape(rows=12, width=3, start=0, batch=3), density=1.0)
    x[:, 1] = 0.0
    block, scores = random_update(random, "logistic", "double", Shape(rows=12, width=3, start=0, batch=3), rate=0.05)
    before, moment = model.parameters[4:8], model.state()["second"][1]
    model.learn(stored(x, "sparse"), block, scores)
    count = len(block.rates)
    kept = 0.999**count
    moment = kept * moment + (1 - kept) * wanted.l2**2 * np.square(before).mean()
    root = np.sqrt(moment / (1 - 0.999**count)) + 1e-8
    np.testing.assert_allclose(model.state()["second"][1], moment, rtol=1e-9)
    np.testing.assert_allclose(
        model.parameters[4:8], before * root / (root + block.rates[-1] * wanted.l2 * count), rtol=1e-7
    )
