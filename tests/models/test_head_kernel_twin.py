"""The head's kernels against a slow twin in plain numpy."""

import numpy as np
import pytest
from scipy.special import expit

from fdml.errors import DataError
from fdml.models.head.head import Head
from fdml.models.losses import LOSSES, loss_named
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, random_labels

VECTOR, UNITS, ROWS, L2 = 3, 5, 40, 1e-4
BOUNDS = np.array([0, 15, 30, 40])
RATES = np.array([0.03, 0.02, 0.01])


class PlainHead:
    """One formula a line; Adam as its paper has it."""

    def __init__(self, theta, scores):
        cut = np.split(theta.copy(), [UNITS * VECTOR, UNITS * (VECTOR + 1)])
        self.parts = [cut[0].reshape(UNITS, VECTOR), cut[1], cut[2].reshape(scores, UNITS)]
        self.first, self.second = [[np.zeros_like(part) for part in self.parts] for _ in range(2)]
        self.scores, self.updates = scores, 0

    def score(self, total):
        first, bias, last = self.parts
        return total[:, : self.scores] + np.maximum(total[:, self.scores :] @ first.T + bias, 0.0) @ last.T

    def gradients(self, loss, total, labels, weights):
        first, bias, last = self.parts
        before = total[:, self.scores :] @ first.T + bias
        of_score = loss.gradient(self.score(total), labels) * weights[:, None] / len(total)
        of_units = (of_score @ last) * (before > 0)
        return [
            of_units.T @ total[:, self.scores :] + L2 * first,
            of_units.sum(axis=0),
            of_score.T @ np.maximum(before, 0.0) + L2 * last,
        ]

    def step(self, gradients, rate):
        self.updates += 1
        for at, gradient in enumerate(gradients):
            self.first[at] = 0.9 * self.first[at] + 0.1 * gradient
            self.second[at] = 0.999 * self.second[at] + 0.001 * gradient**2
            mean = self.first[at] / (1 - 0.9**self.updates)
            square = self.second[at] / (1 - 0.999**self.updates)
            self.parts[at] = self.parts[at] - rate * mean / (np.sqrt(square) + 1e-8)

    def theta(self):
        return np.concatenate([part.ravel() for part in self.parts])


def block_of(loss, seed=1):
    random = np.random.default_rng(seed)
    total = random.normal(size=(ROWS, WIDTH_OF[loss] + VECTOR))
    labels, weights = random_labels(random, ROWS, loss), random.uniform(0.5, 1.5, ROWS)
    return total, labels, weights, random.permutation(ROWS)


def learn(head, loss, total, labels, weights, order):
    head.learn(loss_named(loss), total, labels, weights, order=order, batch_bounds=BOUNDS, rates=RATES)
    return head


@pytest.mark.parametrize("loss", CLASSES_OF)
def test_two_passes_are_those_of_the_twin(loss):
    head = Head(VECTOR, UNITS, WIDTH_OF[loss], seed=2)
    twin = PlainHead(head.state()["theta"], WIDTH_OF[loss])
    for seed in (1, 2):
        total, labels, weights, order = block_of(loss, seed)
        learn(head, loss, total, labels, weights, order)
        for batch, rate in enumerate(RATES):
            rows = order[BOUNDS[batch] : BOUNDS[batch + 1]]
            twin.step(twin.gradients(loss_named(loss), total[rows], labels[rows], weights[rows]), rate)
    np.testing.assert_allclose(head.state()["theta"], twin.theta(), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(head.score(total), twin.score(total), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(head.state()["powers"], [0.9**6, 0.999**6])


def test_a_row_is_scored_the_same_among_any_others_bit_by_bit():
    head, total = Head(VECTOR, UNITS, 2), np.random.default_rng(3).normal(size=(ROWS, 2 + VECTOR))
    whole = head.score(total)
    for row in range(ROWS):
        np.testing.assert_array_equal(head.score(total[row : row + 1])[0], whole[row])


def test_copies_learn_the_same_bits_however_the_totals_lie_in_memory():
    total, labels, weights, order = block_of("softmax")
    total = total.astype(np.float32)
    given = [total, np.asfortranarray(total), np.repeat(total, 2, axis=0)[::2], total.astype(np.float64)]
    heads = [learn(Head(VECTOR, UNITS, 3), "softmax", each, labels, weights, order) for each in given]
    for head in heads[1:]:
        for name, array in heads[0].state().items():
            assert array.tobytes() == head.state()[name].tobytes(), name


@pytest.mark.parametrize("score", [-800.0, -745.0, -30.0, -1e-9, 0.0, 0.3, 20.0, 800.0])
def test_its_own_exp_is_that_of_the_library_to_the_last_digits(score):
    """Seen by the slope of the logistic loss: with one unit that is 1, the pull of W2 is the gradient."""
    head = Head(1, 1, 1)
    start = {**head.state(), "theta": np.array([0.0, 1.0, 0.0])}
    head.restore(start)
    one = np.ones(1)
    head.learn(
        LOSSES["logistic"],
        np.array([[score, 0.0]]),
        np.zeros(1),
        one,
        order=np.zeros(1, np.int64),
        batch_bounds=np.array([0, 1]),
        rates=np.zeros(1),
    )
    assert head.state()["first"][2] == pytest.approx(0.1 * expit(score), rel=1e-14, abs=1e-300)


def test_scores_far_out_leave_finite_parameters():
    total, labels, weights, order = block_of("softmax")
    for size in (1e3, 1e8):
        state = learn(Head(VECTOR, UNITS, 3), "softmax", size * total, labels, weights, order).state()
        assert all(np.isfinite(array).all() for array in state.values())


def test_a_row_of_weight_zero_teaches_nothing():
    total, labels, weights, order = block_of("logistic")
    weights[::3] = 0.0
    other = np.where(weights > 0, labels, 1 - labels)
    heads = [learn(Head(VECTOR, UNITS, 1), "logistic", total, each, weights, order) for each in (labels, other)]
    np.testing.assert_array_equal(heads[0].state()["theta"], heads[1].state()["theta"])


def test_rows_that_no_batch_names_are_not_looked_at():
    total, labels, weights, order = block_of("logistic")
    spoilt = np.concatenate([total, np.full((3, total.shape[1]), np.nan)])
    one = learn(Head(VECTOR, UNITS, 1), "logistic", total, labels, weights, order)
    other = learn(Head(VECTOR, UNITS, 1), "logistic", spoilt, np.append(labels, [0, 0, 0]), weights, order)
    np.testing.assert_array_equal(one.state()["theta"], other.state()["theta"])


@pytest.mark.parametrize("name", ["theta", "first", "second", "powers"])
def test_a_state_without_one_of_its_arrays_is_refused_by_name(name):
    head = Head(VECTOR, UNITS, 1)
    state = {key: array for key, array in head.state().items() if key != name}
    with pytest.raises(DataError, match=f"saved 'joint/{name}' has shape None"):
        head.check(state)
