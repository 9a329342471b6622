"""Which of a party's own columns matter."""

import numpy as np
import pytest

from fdml.data.column_features import Number, OneHot
from fdml.data.encoding import Encoder
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.rows import as_rows
from fdml.models.importance import coefficients, columns_of, contributions, permutation_importance, reason_codes
from fdml.models.kind import ModelSpec
from fdml.models.registry import build_model, model_settings
from tests.models.random_updates import set_parameters, stored

ENCODER = Encoder((Number("age", 0.0), OneHot("city", ("Evora", "Paris")), Number("idle", 0.0)))
RANDOM = np.random.default_rng(0)
X = np.column_stack([RANDOM.normal(size=200), np.eye(2)[RANDOM.integers(0, 2, 200)], RANDOM.normal(size=200)])
X = X.astype(np.float32)
WEIGHTS = np.array([2.0, -0.5, 0.5, 0.0, 0.25])
GROUPS = columns_of(ENCODER)


@pytest.fixture
def linear():
    model = build_model(model_settings("linear", l2=0.0), ModelSpec(4, 1, True, (1,)))
    set_parameters(model, WEIGHTS)
    return model


def test_features_belong_to_their_columns_and_those_of_a_matrix_stand_alone():
    assert {name: places.tolist() for name, places in GROUPS.items()} == {"age": [0], "city": [1, 2], "idle": [3]}
    matrix = columns_of(MatrixEncoder(2, (0.0, 0.0), 1, ()))
    assert {name: places.tolist() for name, places in matrix.items()} == {"1": [0], "2": [1]}


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_column_without_weight_moves_nothing_and_the_strongest_moves_most(linear, form):
    found = permutation_importance(linear, stored(X, form), GROUPS, seed=1)
    assert found["idle"] == 0.0
    assert found["age"] > found["city"] > 0.0
    assert found == permutation_importance(linear, stored(X, form), GROUPS, seed=1)


def test_contributions_of_a_linear_model_add_up_to_its_predictions(linear):
    rows = as_rows(X)
    added = contributions(linear, rows, GROUPS, "linear")
    predicted = linear.predict(rows)[:, 0]
    np.testing.assert_allclose(added.sum(axis=1), predicted - predicted.mean(), atol=1e-5)


def test_coefficients_are_those_of_features_without_the_bias(linear):
    assert coefficients(linear, ENCODER.names, "linear") == dict(zip(ENCODER.names, WEIGHTS[:4].tolist(), strict=True))
    assert coefficients(linear, ENCODER.names, "mlp") is None


def test_a_net_has_importances_and_no_reasons():
    net = build_model(model_settings("mlp"), ModelSpec(4, 1, True, (1,)))
    assert contributions(net, as_rows(X), GROUPS, "mlp") is None
    assert permutation_importance(net, as_rows(X), GROUPS, seed=1)["age"] > 0.0


def test_reasons_are_the_columns_that_move_a_row_most():
    added = np.array([[0.1, -3.0, 0.5], [2.0, 0.0, -0.1]])
    assert reason_codes(added, ("a", "b", "c"), 2) == [[("b", -3.0), ("c", 0.5)], [("a", 2.0), ("c", -0.1)]]
