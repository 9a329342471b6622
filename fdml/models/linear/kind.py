"""The linear model: logistic or linear regression, or an SVM, by the loss."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fdml.models.compiled import CompiledModel, Kernels, clip_of
from fdml.models.kind import ModelKind, ModelSpec
from fdml.models.learning_rate import RateInputs, default_rate
from fdml.models.linear import kernel
from fdml.settings import ModelSettings


class LinearSettings(ModelSettings):
    """It has no settings of its own."""

    kind: Literal["linear"] = "linear"


class LinearModel(CompiledModel):
    """A weight for each feature and float of the prediction."""

    kernels: ClassVar[Kernels] = kernel


def build(settings: LinearSettings, spec: ModelSpec) -> LinearModel:
    """All weights start at zero."""
    weights = np.zeros(spec.inputs * spec.width)
    return LinearModel(settings, spec, weights, biases=spec.width if spec.bias else 0, scratch=(clip_of(spec),))


def rate(settings: LinearSettings, given: RateInputs) -> float:
    """The default step size: its loss is convex, so Adam may take large steps."""
    return default_rate(settings, given, adam=0.03)


LINEAR = ModelKind("linear", "LR", LinearSettings, build, default_rate=rate, supports_dp_sgd=True)
