"""The whole step of a party with noise in its training, on two data sets that differ in one row.

What DP-SGD counts with is that one row moves the sum of a batch's clipped gradients by at most two clips, given the
parameters and all that was received. So each update is made from the same parameters on both data sets.
"""

from __future__ import annotations

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.errors import SettingsError
from fdml.models.registry import model_settings
from fdml.party.plan import Plan, build_worker
from fdml.privacy.dp_sgd import DpSgd
from fdml.privacy.guard import Guard
from fdml.privacy.ledger import Ledger, Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import Push, Total
from fdml.settings import TrainingSettings
from tests.models.random_updates import FORM_OF, stored
from tests.privacy.guards import no_protection

ROWS, WIDTH, CLIP = 120, 4, 1.0
RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(ROWS, WIDTH)).astype(np.float32)
Y = (RANDOM.random(ROWS) < 0.5).astype(np.float64)
OTHERS = RANDOM.normal(0.0, 3.0, (ROWS, 1))
"""The other parties' noisy predictions; their noise has variance 9."""
CHANGED = 17
STEPS = {
    "blocks": {"batch_size": 30, "batches_per_block": 2, "epochs": 2},
    "one batch per block": {"batch_size": 30, "batches_per_block": 1, "epochs": 1, "lookahead": 0},
    "several passes": {"batch_size": 40, "batches_per_block": "all", "passes": 3, "epochs": 2},
    "strong echo": {"batch_size": 120, "passes": 4, "epochs": 2, "echo": 10.0},
    "one exchange": {"batch_size": 120, "exchanges": 1, "epochs": 4},
    "two exchanges": {"batch_size": 50, "exchanges": 2, "epochs": 5},
}


def net(inputs, width):
    import torch  # noqa: PLC0415 (an extra)

    return torch.nn.Sequential(torch.nn.Linear(inputs, 3), torch.nn.Tanh(), torch.nn.Linear(3, width))


KINDS = {
    "linear": model_settings(l2=0.0, precision="double"),
    "mlp": model_settings("mlp", hidden=(3,), l2=0.0, precision="double"),
    "torch": model_settings("torch", module=net, l2=0.0, precision="double"),
}


def clipping():
    """A guard that clips predictions and adds no noise."""
    mechanism = Mechanism("none", 3.0, 0.0)
    return Guard(Perturbation(mechanism), Ledger(mechanism, None, 1e-5, None))


class Measured:
    """A learner whose every batch is measured and then taken back to parameters that depend on its number alone."""

    def __init__(self, learner):
        self._learner = learner
        self.sums = []
        self._restart()

    def _restart(self):
        random = np.random.default_rng([5, len(self.sums)])
        state = {
            name: random.normal(0.0, 1.0, array.shape) if is_parameter(name) else array
            for name, array in self._learner.state().items()
        }
        self._learner.restore(state)
        self._before = parameters(self._learner)

    def update(self, block, signal):
        for number, rate in enumerate(block.rates):
            self._learner.update(block.only(number), signal)
            moved = parameters(self._learner) - self._before
            self.sums.append(-moved / rate * len(block.batch(number)))
            self._restart()

    def __getattr__(self, name):
        return getattr(self._learner, name)


def is_parameter(name):
    return name == "theta" or name.startswith("module/")


def parameters(learner):
    return np.concatenate([array.ravel() for name, array in learner.state().items() if is_parameter(name)])


def sums_of(features, kind, training, *, dp_sgd):
    """The sum of clipped gradients of every update of a whole training."""
    plan = Plan(TrainingSettings(learning_rate=0.25, lr_decay="constant", **training), {"p": KINDS[kind]}, "p",
                "logistic", 2, parties=2)  # fmt: skip
    rows = RowSet({"p": stored(features, FORM_OF["double"])}, Y, np.ones(ROWS))
    worker = build_worker(plan, rows, "p", clipping(), dp_sgd=dp_sgd)
    worker.learner = measured = Measured(worker.learner)
    pushed = {}

    def take(messages):
        pushed.update({each.step: each.release.values for each in messages if isinstance(each, Push)})

    take(worker.first_messages())
    while not worker.finished:
        visit = worker.schedule.visit(worker.step)
        total = pushed[worker.step] + encode(OTHERS[visit.start : visit.stop])
        take(worker.learn(Total(worker.step, total, (worker.step,) * 2, variance=9.0)))
    return measured.sums


def largest_move(kind, training, value):
    """By how much one row that becomes `value` moves the sum of any update."""
    other = X.copy()
    other[CHANGED] = value
    steps = DpSgd(CLIP, 0.0, NoiseKey(bytes(32)))
    pairs = zip(*(sums_of(each, kind, training, dp_sgd=steps) for each in (X, other)), strict=True)
    return max(float(np.linalg.norm(one - two)) for one, two in pairs)


@pytest.mark.slow
@pytest.mark.parametrize("value", [0.0, 30.0, 1e6])
@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("kind", KINDS)
def test_one_row_moves_no_sum_of_gradients_by_more_than_two_clips(kind, steps, value):
    """Finding 4: with `exchanges` and noisy partners one row moved the sum by 123.9, as it moved every row's score."""
    moved = largest_move(kind, STEPS[steps], value)
    assert 0.0 < moved <= 2.0 * CLIP * (1 + 1e-9)


@pytest.mark.slow
def test_the_bound_is_nearly_reached():
    """So it is no bound by accident."""
    assert largest_move("linear", STEPS["strong echo"], 1e6) > 0.9 * CLIP


def test_factorization_machines_have_no_such_step():
    plan = Plan(TrainingSettings(), {"p": model_settings("fm")}, "p", "logistic", 2, parties=2)
    with pytest.raises(SettingsError, match=r"model.kind is 'fm', and \[guard.training\] knows no way to clip it"):
        build_worker(plan, RowSet({"p": stored(X, FORM_OF["double"])}, Y, np.ones(ROWS)), "p", no_protection(),
                     dp_sgd=DpSgd(CLIP, 0.0, NoiseKey(bytes(32))))  # fmt: skip
