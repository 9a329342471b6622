"""The loss of totals, summed piece by piece."""

import numpy as np
import pytest

from fdml.models.objective import objective_for
from fdml.party.block_loss import with_loss
from fdml.protocol.fixed_point import encode

ROWS = 20


@pytest.mark.parametrize("at_once", [1, 7, ROWS, 8192])
def test_the_loss_of_a_block_is_added_to_what_was_there(at_once, monkeypatch):
    monkeypatch.setattr("fdml.party.block_loss._AT_ONCE", at_once)
    random = np.random.default_rng(1)
    totals, labels = random.normal(size=(ROWS, 1)), random.integers(0, 2, ROWS).astype(np.float64)
    weights, objective = random.random(ROWS), objective_for("logistic", 2)
    expected = 5.0 + objective.value(totals, labels) @ weights
    assert with_loss(5.0, encode(totals), labels, weights, objective) == pytest.approx(expected, rel=1e-6)


def test_no_rows_add_nothing():
    none = np.zeros(0)
    assert with_loss(5.0, encode(np.zeros((0, 1))), none, none, objective_for("squared", 0)) == 5.0
