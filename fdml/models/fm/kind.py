"""The factorization machine: a linear model with a product of factors for every pair of features."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import PositiveInt

from fdml.models.compiled import CompiledModel, Kernels, float_type
from fdml.models.fm import kernel
from fdml.models.initialisation import generator
from fdml.models.kind import ModelKind, ModelSpec, l2_of_nets
from fdml.models.layers import PlainModel, fm_layers
from fdml.models.losses import Floats
from fdml.models.vectors.machine import build_vectors
from fdml.settings import ModelSettings

_FACTOR_SPREAD = 0.05


class FmSettings(ModelSettings):
    """Its pairs of features."""

    kind: Literal["fm"] = "fm"
    factors: PositiveInt = 8
    """How many each feature has; under `joint = "fm"` as many as the run's vectors have numbers."""


class FactorizationMachine(CompiledModel):
    """A weight and factors for each feature and float of the prediction."""

    kernels: ClassVar[Kernels] = kernel


def initial_weights(cells: int, factors: int, random: np.random.Generator) -> Floats:
    """Weights zero, factors small and random: equal factors would stay equal for ever. One cell per feature and float
    of the prediction."""
    weights = np.zeros((cells, 1 + factors))
    weights[:, 1:] = random.normal(0.0, _FACTOR_SPREAD, (cells, factors))
    return weights.ravel()


def build(settings: FmSettings, spec: ModelSpec) -> CompiledModel:
    """The factors are drawn from the key; where vectors interact, its factors are the run's and make the vector."""
    if spec.joint.factors:
        return build_vectors(settings, spec)
    cells = spec.inputs * spec.width
    return FactorizationMachine(
        settings,
        spec,
        initial_weights(cells, settings.factors, generator(*spec.key)),
        biases=spec.width if spec.bias else 0,
        extras=(settings.factors,),
        scratch=(np.zeros(cells, float_type(settings)),),
    )


def layers(settings: FmSettings, spec: ModelSpec, parameters: Floats) -> PlainModel:
    """One layer, and the factors."""
    return fm_layers(parameters, spec.inputs, spec.width, settings.factors)


FM = ModelKind("fm", "FM", FmSettings, build, default_l2=l2_of_nets, added_shards=4, added_with_adam=4, layers=layers)
