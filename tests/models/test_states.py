"""One check of saved states for every kind of model."""

import numpy as np
import pytest

from fdml.errors import DataError
from fdml.models.states import check_shapes

NEEDED = {"theta": (3, 2), "text": (None,), "sum": ()}


def state(**other):
    return {"theta": np.zeros((3, 2)), "text": np.zeros(7), "sum": np.array(1.0), **other}


def test_a_state_that_fits_passes_whatever_the_length_that_is_left_open():
    check_shapes(state(), NEEDED)
    check_shapes(state(text=np.zeros(0), more=np.zeros(1)), NEEDED)


@pytest.mark.parametrize(
    ("name", "array", "shape"),
    [
        ("theta", np.zeros((3, 1)), "(3, 1)"),
        ("theta", np.zeros(6), "(6,)"),
        ("text", np.zeros((7, 1)), "(7, 1)"),
        ("sum", np.zeros(1), "(1,)"),
    ],
)
def test_an_array_of_another_shape_is_named_with_where_it_stands(name, array, shape):
    with pytest.raises(DataError) as refused:
        check_shapes(state(**{name: array}), NEEDED, "mlp/")
    assert str(refused.value).startswith(f"saved 'mlp/{name}' has shape {shape}, this model needs {NEEDED[name]}")


def test_an_array_that_is_missing_is_named():
    with pytest.raises(DataError, match="saved 'theta' has shape None, this model needs"):
        check_shapes({}, NEEDED)
