"""A local model as an ONNX file: encoded features in, the local prediction out. Needs the extra `onnx`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime  # type: ignore[import-untyped]
from onnx import TensorProto, helper, numpy_helper

from fdml.errors import DataError
from fdml.models.layers import PlainModel
from fdml.models.losses import Floats

INPUT, OUTPUT = "features", "local_prediction"
_OPSET, _IR = 17, 8
"""Of onnx 1.12, so that old runtimes read it."""
_NEAR = 1e-6


def onnx_bytes(model: PlainModel, names: Sequence[str], facts: Mapping[str, str]) -> bytes:
    """The file, in double precision; the names of the features and the `facts` are in its metadata."""
    graph = _Graph()
    score = graph.layers(model)
    if model.factors is not None:
        score = graph.add("Add", score, graph.pairs(model.factors))
    graph.nodes.append(helper.make_node("Identity", [score], [OUTPUT]))
    width = len(model.layers[-1].bias)
    whole = helper.make_graph(
        graph.nodes,
        "local model",
        [helper.make_tensor_value_info(INPUT, TensorProto.DOUBLE, ["rows", len(names)])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.DOUBLE, ["rows", width])],
        graph.constants,
    )
    made = helper.make_model(whole, opset_imports=[helper.make_opsetid("", _OPSET)], producer_name="fdml")
    made.ir_version = _IR
    helper.set_model_props(made, {**facts, "feature_names": json.dumps(list(names))})
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString())


def predicted(file: bytes, rows: Floats) -> Floats:
    """What onnxruntime makes of encoded rows."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    found: Floats = session.run([OUTPUT], {INPUT: rows.astype(np.float64)})[0]
    return found


def check_same(file: bytes, rows: Floats, expected: Floats) -> float:
    """Raise unless onnxruntime predicts the same of these rows, to 1e-6; gives the largest difference."""
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    worst = float(np.abs(predicted(file, rows) - expected).max(initial=0.0)) / scale
    if not worst <= _NEAR:
        raise DataError(
            f"onnxruntime {onnxruntime.__version__} predicts otherwise than the model, by {worst:g}; nothing was "
            f"written: please report it"
        )
    return worst


class _Graph:
    """Nodes and constants, with names of their own."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, kind: str, *inputs: str) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name]))
        return name

    def constant(self, value: Floats) -> str:
        name = f"weights_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value, np.float64), name))
        return name

    def layers(self, model: PlainModel) -> str:
        """h = relu(h W + b), the last layer without relu."""
        here = INPUT
        for depth, layer in enumerate(model.layers):
            here = self.add("Relu", here) if depth else here
            here = self.add("Add", self.add("MatMul", here, self.constant(layer.weights)), self.constant(layer.bias))
        return here

    def pairs(self, factors: Floats) -> str:
        """1/2 sum_f ((x V_f)^2 - x^2 V_f^2), for each float of the prediction."""
        inputs, width, count = factors.shape
        flat = factors.reshape(inputs, width * count)
        sums = self.add("MatMul", INPUT, self.constant(flat))
        squares = self.add("MatMul", self.add("Mul", INPUT, INPUT), self.constant(flat * flat))
        difference = self.add("Sub", self.add("Mul", sums, sums), squares)
        halves = np.kron(np.eye(width), np.full((count, 1), 0.5))
        return self.add("MatMul", difference, self.constant(halves))
