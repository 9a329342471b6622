"""The linear model: logistic or linear regression, or an SVM, by the loss."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fdml.models.compiled import CompiledModel, Kernels, clip_of
from fdml.models.kind import ModelKind, ModelSpec
from fdml.models.layers import PlainModel, linear_layers
from fdml.models.learning_rate import RateInputs, default_rate
from fdml.models.linear import kernel
from fdml.models.losses import Floats
from fdml.models.vectors.machine import build_vectors
from fdml.settings import ModelSettings


class LinearSettings(ModelSettings):
    """It has no settings of its own."""

    kind: Literal["linear"] = "linear"


class LinearModel(CompiledModel):
    """A weight for each feature and float of the prediction."""

    kernels: ClassVar[Kernels] = kernel


def build(settings: LinearSettings, spec: ModelSpec) -> CompiledModel:
    """All weights start at zero; where vectors interact, every feature has factors besides."""
    if spec.joint.factors:
        return build_vectors(settings, spec)
    weights = np.zeros(spec.inputs * spec.width)
    return LinearModel(settings, spec, weights, biases=spec.width if spec.bias else 0, scratch=(clip_of(spec),))


def rate(settings: LinearSettings, given: RateInputs) -> float:
    """The default step size: its loss is convex, so Adam may take large steps; with factors it is not."""
    return default_rate(settings, given) if given.vectors else default_rate(settings, given, adam=0.03)


def layers(_: LinearSettings, spec: ModelSpec, parameters: Floats) -> PlainModel:
    """One layer."""
    return linear_layers(parameters, spec.inputs, spec.width)


LINEAR = ModelKind(
    "linear", "LR", LinearSettings, build, default_rate=rate, supports_dp_sgd=True, added_shards=8, layers=layers
)
