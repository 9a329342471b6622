"""The update rules as kernels apply them, against torch's formulas in plain numpy."""

import numba
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.models.kernels.optimizers import RULES, UpdateRule, begin_update, end_update, new_optimizer_state
from tests.models.plain_models import PlainRule

SIZE, DECAYED = 7, 5
RATES = {"sgd": 0.1, "momentum": 0.05, "adagrad": 0.1, "adam": 0.02}


@numba.njit
def apply(rule, state, gradient, rate):
    """One update with a gradient of all parameters."""
    for_weights, for_biases = begin_update(rule, state, rate)
    target = state.theta if rule.optimizer == 0 else state.gradient
    for i in range(len(gradient)):
        target[i] += gradient[i] * (for_weights if i < rule.decayed else for_biases)
    end_update(rule, state, rate)


def parameters(rule, state):
    """As they are meant: the weights times their scale."""
    theta = state.theta.copy()
    theta[: rule.decayed] *= state.counters[0]
    return theta


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", RULES)
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), l2=st.sampled_from([0.0, 0.01, 0.8]), momentum=st.sampled_from([0.0, 0.5, 0.9]))
def test_every_rule_follows_its_formula_update_by_update(optimizer, seed, l2, momentum):
    random = np.random.default_rng(seed)
    theta = random.normal(size=SIZE)
    rule, state = (
        UpdateRule(RULES[optimizer], l2, momentum, DECAYED),
        new_optimizer_state(theta.copy(), RULES[optimizer]),
    )
    weights, biases, plain = theta[:DECAYED].copy(), theta[DECAYED:].copy(), PlainRule(optimizer, momentum)
    for _ in range(5):
        gradient, rate = random.normal(size=SIZE), RATES[optimizer] * random.uniform(0.5, 1.0)
        apply(rule, state, gradient, rate)
        plain.apply([weights, biases], [gradient[:DECAYED] + l2 * weights, gradient[DECAYED:]], rate)
        np.testing.assert_allclose(parameters(rule, state), np.concatenate([weights, biases]), rtol=1e-9, atol=1e-12)


TORCH = {
    "sgd": lambda p: torch.optim.SGD(p, lr=1.0),
    "momentum": lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.8),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=1.0),
    "adam": lambda p: torch.optim.Adam(p, lr=1.0, betas=(0.8, 0.999)),
}


@pytest.mark.parametrize("optimizer", RULES)
def test_every_rule_is_that_of_torch(optimizer):
    random = np.random.default_rng(3)
    theta = random.normal(size=SIZE)
    rule, state = UpdateRule(RULES[optimizer], 0.0, 0.8, DECAYED), new_optimizer_state(theta.copy(), RULES[optimizer])
    theirs = torch.tensor(theta, requires_grad=True)
    torch_rule = TORCH[optimizer]([theirs])
    for _ in range(6):
        gradient = random.normal(size=SIZE)
        apply(rule, state, gradient, 0.03)
        torch_rule.param_groups[0]["lr"], theirs.grad = 0.03, torch.tensor(gradient)
        torch_rule.step()
    np.testing.assert_allclose(parameters(rule, state), theirs.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_with_sgd_the_scale_alone_shrinks_until_it_is_folded_back():
    rule, state = UpdateRule(RULES["sgd"], 0.9, 0.0, DECAYED), new_optimizer_state(np.ones(SIZE), RULES["sgd"])
    expected = np.ones(SIZE)
    scales = []
    for _ in range(9):
        apply(rule, state, np.zeros(SIZE), 0.9)
        expected[:DECAYED] *= 1.0 - 0.9 * 0.9
        scales.append(float(state.counters[0]))
        np.testing.assert_allclose(parameters(rule, state), expected, rtol=1e-9)
    assert min(scales) >= 1e-3
    assert 1.0 in scales, "it was folded back"
    np.testing.assert_array_equal(state.theta[DECAYED:], 1.0)


@pytest.mark.parametrize("optimizer", RULES)
def test_a_rule_keeps_no_more_than_it_needs(optimizer):
    state = new_optimizer_state(np.zeros(SIZE, np.float32), RULES[optimizer])
    sizes = {name: array.size for name, array in state._asdict().items()}
    kept = {"sgd": (0, 0, 0), "momentum": (SIZE, SIZE, 0), "adagrad": (SIZE, SIZE, 0), "adam": (SIZE, SIZE, SIZE)}
    assert (sizes["gradient"], sizes["first"], sizes["second"]) == kept[optimizer]
    assert (sizes["theta"], sizes["counters"]) == (SIZE, 2)
    assert {array.dtype for name, array in state._asdict().items() if name != "counters"} == {np.dtype(np.float32)}
