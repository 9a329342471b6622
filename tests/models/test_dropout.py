"""Dropout of hidden units: the compiled pass equals plain numpy, and the same units are left out again."""

import numpy as np
import pytest

from fdml.errors import SettingsError
from fdml.models.joint import Interactions
from fdml.models.registry import model_settings
from fdml.protocol.shuffle import stream
from tests.models.plain_models import PlainMlp, PlainRule
from tests.models.random_updates import (
    Shape,
    build,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

CHANCE, HIDDEN, KEY = 0.4, (5, 4), (1, "test")
SHAPE = Shape()
MASK = 2**64 - 1


def mixed(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def drawn(update, slot, unit, key=KEY):
    """The number by which a unit is left out of a row's update, between 0 and 1."""
    seed = stream(*key, "dropout") % 2**63
    of_row = mixed((mixed((seed + update) & MASK) + slot) & MASK)
    return (mixed((of_row + unit) & MASK) >> 11) * 2.0**-53


def factors(update, rows):
    """By hidden layer, what each unit of each row is multiplied by."""
    whole = np.array([[drawn(update, slot, unit) >= CHANCE for unit in range(sum(HIDDEN))] for slot in range(rows)])
    return np.split(whole / (1.0 - CHANCE), np.cumsum(HIDDEN)[:-1], axis=1)


def forward(twin, x, kept):
    outs = [x]
    for depth, weight in enumerate(twin.weights):
        total = outs[-1] @ weight + twin.biases[depth]
        outs.append(total if depth == len(HIDDEN) else np.maximum(total, 0.0) * kept[depth])
    return outs


def plain_pass(twin, rule, l2, x, block, scores):
    """One pass of plain numpy, whose updates are counted by the rule."""
    for batch, rate in enumerate(block.rates):
        chosen = block.batch(batch)
        rows, kept = x[block.start + chosen], factors(rule.updates, len(chosen))
        outs, whole = forward(twin, rows, kept), twin.predict(rows)
        own = whole + (outs[-1] - whole) / max(scores.echo, 1.0)
        gradient = scores.gradient(chosen, own) / len(chosen)
        of_weights, of_biases = [], []
        for depth in reversed(range(len(twin.weights))):
            of_weights.insert(0, outs[depth].T @ gradient + l2 * twin.weights[depth])
            of_biases.insert(0, gradient.sum(axis=0))
            if depth:
                gradient = (gradient @ twin.weights[depth].T) * (outs[depth] > 0) * kept[depth - 1]
        rule.apply(twin.weights + twin.biases, of_weights + of_biases, rate)


def made(optimizer="sgd", joint=None, **values):
    settings = settings_of(
        "mlp",
        **{"hidden": HIDDEN, "dropout": CHANCE, "precision": "double", "l2": 0.01, "optimizer": optimizer, **values},
    )
    return build(settings, SHAPE.width, 1, key=KEY, **({} if joint is None else {"joint": joint}))


def theta_of(count):
    return np.random.default_rng(5).normal(0.0, 0.4, count)


@pytest.mark.slow
@pytest.mark.parametrize("joint", [None, Interactions(2)], ids=["sum", "fm"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("echo", [0.5, 3.0])
def test_learning_equals_plain_numpy(optimizer, joint, form, echo):
    random = np.random.default_rng(2)
    x = random_features(random)
    model = made(optimizer, joint)
    outputs = model if joint is None else model.outputs
    theta = theta_of(len(outputs.parameters))
    set_parameters(outputs, theta)
    twin, rule = PlainMlp(SHAPE.width, 1 if joint is None else 3, bias=True, hidden=HIDDEN), PlainRule(optimizer, 0.9)
    twin.read(theta)
    for _ in range(2):
        options = {} if joint is None else {"joint": joint}
        update = random_update(random, "logistic", "double", rate=0.05, echo=echo, **options)
        model.learn(stored(x, form), *update)
        plain_pass(twin, rule, 0.01, x.astype(np.float64), *update)
    np.testing.assert_allclose(outputs.parameters, twin.flat(), rtol=1e-9, atol=1e-9)


def test_about_so_many_units_are_left_out_and_others_in_each_update_and_row():
    found = np.array([[[drawn(u, s, unit) for unit in range(20)] for s in range(20)] for u in range(20)])
    assert np.mean(found < CHANCE) == pytest.approx(CHANCE, abs=0.02)
    assert len(np.unique(found)) == found.size


def test_predictions_have_all_units():
    rows = stored(random_features(np.random.default_rng(1)), "dense")
    np.testing.assert_array_equal(made().predict(rows), made(dropout=0.0).predict(rows))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
def test_a_restored_model_leaves_out_the_same_units(optimizer):
    random = np.random.default_rng(4)
    rows = stored(random_features(random), "sparse")
    updates = [random_update(random, "logistic", "double", rate=0.05) for _ in range(3)]
    model, other = made(optimizer), made(optimizer)
    for update in updates[:2]:
        model.learn(rows, *update)
    other.restore(model.state())
    for each in (model, other):
        each.learn(rows, *updates[2])
    for name, array in model.state().items():
        np.testing.assert_array_equal(other.state()[name], array)
    assert model.state()["counters"][1] == 3 * len(updates[0][0].rates)


@pytest.mark.slow
def test_it_changes_what_is_learned_and_nothing_where_it_is_off():
    random = np.random.default_rng(6)
    rows = stored(random_features(random), "sparse")
    update = random_update(random, "logistic", "double", rate=0.05)
    found = []
    for chance in (CHANCE, 0.0):
        model = made(dropout=chance)
        model.learn(rows, *update)
        found.append(model)
    assert not np.allclose(found[0].parameters, found[1].parameters)
    assert found[1].state()["counters"][1] == 0.0


@pytest.mark.parametrize("chance", [-0.1, 1.0])
def test_a_chance_out_of_range_is_refused(chance):
    with pytest.raises(SettingsError, match="dropout"):
        model_settings("mlp", dropout=chance)
