"""The ONNX file of a local model: what is in it, and that a wrong one is not written."""

import json

import numpy as np
import onnx
import pytest

from fdml.errors import DataError
from fdml.models.layers import Layer, PlainModel
from fdml.models.onnx_file import INPUT, OUTPUT, check_same, onnx_bytes, predicted

PLAIN = PlainModel((Layer(np.array([[2.0], [3.0]]), np.array([1.0])),))
ROWS = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]])


def test_it_names_its_features_and_what_it_is_of():
    made = onnx.load_from_string(onnx_bytes(PLAIN, ["age", "city=Paris"], {"version": "abc", "party": "shop"}))
    facts = {each.key: each.value for each in made.metadata_props}
    assert json.loads(facts["feature_names"]) == ["age", "city=Paris"]
    assert (facts["version"], facts["party"]) == ("abc", "shop")
    assert [each.name for each in made.graph.input] == [INPUT]
    assert [each.name for each in made.graph.output] == [OUTPUT]


def test_it_predicts():
    assert predicted(onnx_bytes(PLAIN, ["a", "b"], {}), ROWS).tolist() == [[3.0], [4.0], [2.0]]


@pytest.mark.parametrize("wrong", [1e-3, np.nan])
def test_a_file_that_predicts_otherwise_is_an_error(wrong):
    file = onnx_bytes(PLAIN, ["a", "b"], {})
    right = np.array([[3.0], [4.0], [2.0]])
    assert check_same(file, ROWS, right) == 0.0
    with pytest.raises(DataError, match="predicts otherwise than the model"):
        check_same(file, ROWS, right + wrong)
