"""Update rules of the kernels beside torch's formulas in plain numpy."""

import numpy as np
import pytest

from fdml.models.kernels.optimizers import RULES, SGD, UpdateRule, begin_update, end_update, new_optimizer_state
from tests.models.plain_models import PlainRule

WEIGHTS, BIASES, L2, MOMENTUM = 5, 2, 0.05, 0.8
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


def start(optimizer, dtype=np.float64):
    theta = np.random.default_rng(0).normal(size=WEIGHTS + BIASES).astype(dtype)
    return UpdateRule(RULES[optimizer], L2, MOMENTUM, WEIGHTS), new_optimizer_state(theta.copy(), RULES[optimizer])


def parameters(rule, state):
    theta = state.theta.astype(np.float64)
    theta[: rule.decayed] *= state.counters[0]
    return theta


def update(rule, state, gradient, rate):
    """One update as a kernel makes it."""
    weight_factor, bias_factor = begin_update(rule, state, rate)
    target = state.theta if rule.optimizer == SGD else state.gradient
    factors = np.repeat([weight_factor, bias_factor], [WEIGHTS, BIASES])
    target += (factors * gradient).astype(target.dtype)
    end_update(rule, state, rate)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("optimizer", RULES)
def test_updates_follow_the_formula(optimizer, dtype):
    rule, state = start(optimizer, dtype)
    expected, plain = parameters(rule, state), PlainRule(optimizer, MOMENTUM)
    random = np.random.default_rng(1)
    for rate in (0.1, 0.05, 0.02, 0.01):
        gradient = random.normal(size=WEIGHTS + BIASES)
        decay = np.where(np.arange(WEIGHTS + BIASES) < WEIGHTS, L2 * expected, 0.0)
        plain.apply([expected], [gradient + decay], rate)
        update(rule, state, gradient, rate)
        np.testing.assert_allclose(parameters(rule, state), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("optimizer", RULES)
def test_l2_shrinks_weights_and_no_bias(optimizer):
    rule, state = start(optimizer)
    before = parameters(rule, state)
    update(rule, state, np.zeros(WEIGHTS + BIASES), 0.1)
    after = parameters(rule, state)
    assert (np.abs(after[:WEIGHTS]) < np.abs(before[:WEIGHTS])).all()
    np.testing.assert_array_equal(after[WEIGHTS:], before[WEIGHTS:])


def test_with_sgd_l2_is_one_multiplication_whatever_the_number_of_weights():
    rule, state = start("sgd")
    theta = state.theta.copy()
    begin_update(rule, state, 0.1)
    np.testing.assert_array_equal(state.theta, theta)
    assert state.counters[0] == pytest.approx(1 - 0.1 * L2)


def test_a_scale_that_has_become_small_is_multiplied_in():
    """Else weights would be divided by ever less, and overflow."""
    rule, state = start("sgd")
    expected = parameters(rule, state)[:WEIGHTS]
    scales = []
    for _ in range(2500):
        update(rule, state, np.zeros(WEIGHTS + BIASES), 0.1)
        scales.append(state.counters[0])
    np.testing.assert_allclose(parameters(rule, state)[:WEIGHTS], expected * (1 - 0.1 * L2) ** 2500, rtol=1e-9)
    assert min(scales) >= 1e-3
    assert 1.0 in scales, "it began anew"


@pytest.mark.parametrize("optimizer", RULES)
def test_a_rule_keeps_only_what_it_needs(optimizer):
    _, state = start(optimizer)
    sizes = {name: len(getattr(state, name)) for name in ("gradient", "first", "second")}
    count = WEIGHTS + BIASES
    assert sizes == {
        "gradient": 0 if optimizer == "sgd" else count,
        "first": 0 if optimizer == "sgd" else count,
        "second": count if optimizer == "adam" else 0,
    }


@pytest.mark.parametrize("optimizer", RULES)
def test_updates_are_counted_but_for_plain_sgd(optimizer):
    rule, state = start(optimizer)
    for _ in range(3):
        update(rule, state, np.ones(WEIGHTS + BIASES), 0.01)
    assert state.counters[1] == (0 if optimizer == "sgd" else 3)


@pytest.mark.parametrize("optimizer", [name for name in RULES if name != "sgd"])
def test_the_gradient_of_the_update_before_is_forgotten(optimizer):
    rule, state = start(optimizer)
    update(rule, state, np.ones(WEIGHTS + BIASES), 0.01)
    begin_update(rule, state, 0.01)
    assert not state.gradient.any()
