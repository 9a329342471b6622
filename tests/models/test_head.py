"""The head: a small network that every party holds and learns from exchanged totals."""

import hashlib

import numpy as np
import pytest

from fdml.errors import DataError, SettingsError
from fdml.models.head.head import Head
from fdml.models.joint_model import JointModel, joint_state
from fdml.models.losses import LOSSES, loss_named
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, build, random_labels, settings_of

VECTOR, UNITS, ROWS = 4, 6, 60


def head_of(scores=1, seed=3):
    return Head(VECTOR, UNITS, scores, seed)


def learned(head, loss="logistic", passes=3, seed=5, rate=0.02):
    random = np.random.default_rng(seed)
    scores = WIDTH_OF[loss]
    total, labels = random.normal(size=(ROWS, scores + VECTOR)), random_labels(random, ROWS, loss)
    weights, bounds = random.uniform(0.5, 1.5, ROWS), np.array([0, 25, 50, 60])
    for _ in range(passes):
        head.learn(
            loss_named(loss),
            total,
            labels,
            weights,
            order=random.permutation(ROWS),
            batch_bounds=bounds,
            rates=np.full(3, rate),
        )
    return head, total, labels, weights


def plain_score(theta, total, scores):
    split = np.split(theta, [UNITS * VECTOR, UNITS * (VECTOR + 1)])
    first, bias, last = split[0].reshape(UNITS, VECTOR), split[1], split[2].reshape(scores, UNITS)
    return total[:, :scores] + np.maximum(total[:, scores:] @ first.T + bias, 0.0) @ last.T


@pytest.mark.parametrize("scores", [1, 3])
def test_the_score_is_that_of_plain_numpy(scores):
    head = head_of(scores)
    total = np.random.default_rng(1).normal(size=(20, scores + VECTOR))
    np.testing.assert_allclose(head.score(total), plain_score(head.state()["theta"], total, scores), rtol=1e-12)
    assert head.width(scores) == scores + VECTOR


@pytest.mark.parametrize("loss", CLASSES_OF)
def test_one_update_is_that_of_adam_on_the_slope_of_the_loss(loss):
    """The first step of Adam has the size of the rate and the sign of the slope."""
    random, scores = np.random.default_rng(2), WIDTH_OF[loss]
    head = head_of(scores)
    theta = head.state()["theta"]
    total, labels = random.normal(size=(ROWS, scores + VECTOR)), random_labels(random, ROWS, loss)
    weights = random.uniform(0.5, 1.5, ROWS)

    def value(point):
        return float(weights @ loss_named(loss).value(plain_score(point, total, scores), labels)) / ROWS

    slopes = np.array([(value(theta + step) - value(theta - step)) / 2e-6 for step in 1e-6 * np.eye(len(theta))])
    head.learn(
        loss_named(loss),
        total,
        labels,
        weights,
        order=np.arange(ROWS),
        batch_bounds=np.array([0, ROWS]),
        rates=np.array([0.01]),
    )
    after = head.state()
    penalised = slopes + np.where(np.isin(np.arange(len(theta)), np.arange(24, 30)), 0.0, 1e-4 * theta)
    np.testing.assert_allclose(after["first"] / 0.1, penalised, rtol=1e-3, atol=1e-6)
    clear = np.abs(penalised) > 1e-4
    np.testing.assert_allclose((theta - after["theta"])[clear], 0.01 * np.sign(penalised[clear]), rtol=1e-3)


@pytest.mark.parametrize("loss", CLASSES_OF)
def test_learning_lowers_the_loss(loss):
    scores = WIDTH_OF[loss]
    before = head_of(scores)
    head, total, labels, weights = learned(head_of(scores), loss, passes=40)
    values = [float(weights @ loss_named(loss).value(each.score(total), labels)) for each in (before, head)]
    assert values[1] < 0.9 * values[0]


def test_the_same_totals_make_the_same_bits():
    one, other = learned(head_of())[0], learned(head_of())[0]
    for name, array in one.state().items():
        assert array.tobytes() == other.state()[name].tobytes()


def test_the_bits_are_those_of_every_machine():
    """Exact arithmetic in a fixed order: were an addition moved or an exp another, this would show."""
    state = learned(head_of(3), "softmax", passes=30)[0].state()
    digest = hashlib.blake2b(b"".join(state[name].tobytes() for name in sorted(state)), digest_size=8)
    assert digest.hexdigest() == "e75adc4b5515a449"


def test_it_begins_by_the_seed():
    assert np.array_equal(head_of(seed=3).state()["theta"], head_of(seed=3).state()["theta"])
    assert not np.array_equal(head_of(seed=3).state()["theta"], head_of(seed=4).state()["theta"])


def test_a_restored_head_goes_on_bit_by_bit():
    head = learned(head_of())[0]
    twin = head_of(seed=9)
    twin.restore(head.state())
    learned(head, seed=6)
    learned(twin, seed=6)
    assert all(np.array_equal(head.state()[name], twin.state()[name]) for name in head.state())


def test_a_state_shares_no_memory_with_the_head():
    head = head_of()
    state = head.state()
    learned(head)
    assert np.array_equal(state["theta"], head_of().state()["theta"])
    head.restore(state)
    learned(head)
    assert np.array_equal(state["theta"], head_of().state()["theta"])


def test_a_head_of_an_earlier_epoch_scores_as_it_did():
    head = head_of()
    theta, total = head.state()["theta"], np.random.default_rng(1).normal(size=(5, 1 + VECTOR))
    before = head.score(total)
    learned(head)
    assert not np.array_equal(head.score(total), before)
    np.testing.assert_array_equal(head.at(theta).score(total), before)


def test_another_size_is_refused_and_changes_nothing():
    head = head_of()
    with pytest.raises(DataError, match=r"saved 'joint/theta' has shape .*; was it another model"):
        head.restore(Head(VECTOR, UNITS + 1, 1).state())
    assert np.array_equal(head.state()["theta"], head_of().state()["theta"])


def test_no_rows_change_nothing():
    head = head_of()
    head.warm_up(LOSSES["logistic"])
    assert np.array_equal(head.state()["theta"], head_of().state()["theta"])


def test_a_loss_that_the_kernels_do_not_know_is_refused():
    class Other:
        code = None

    with pytest.raises(SettingsError, match="Other has no compiled gradient"):
        head_of().warm_up(Other())


def test_a_models_state_has_the_head_in_it():
    head = head_of()
    model = build(settings_of("linear"), 7, 1, joint=head)
    assert isinstance(model, JointModel)
    learned(head)
    state = model.state()
    assert joint_state(state).keys() == head.state().keys()
    theta = head.state()["theta"]
    learned(head)
    model.restore(state)
    assert np.array_equal(head.state()["theta"], theta)
    assert joint_state(build(settings_of("linear"), 7, 1).state()) == {}
