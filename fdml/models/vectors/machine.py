"""A party of a factorization machine over all parties' features: what `linear` and `fm` become under `joint = "fm"`."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fdml.errors import SettingsError
from fdml.models.compiled import CompiledModel, Kernels, float_type
from fdml.models.initialisation import generator
from fdml.models.kind import ModelSpec
from fdml.models.vectors import kernel
from fdml.privacy.dp_sgd import WAY_OUT
from fdml.settings import ModelSettings

FACTOR_SPREAD = 0.05
"""Standard deviation of a factor before training."""


class VectorMachine(CompiledModel):
    """A weight and factors for each feature and score; the sums of factors are its vector."""

    kernels: ClassVar[Kernels] = kernel


def build_vectors(settings: ModelSettings, spec: ModelSpec) -> VectorMachine:
    """Weights begin at zero, factors small and random by the key; a vector has no bias."""
    if spec.dp_sgd is not None:
        raise SettingsError(
            f'[guard.training] knows no way to clip model.kind {settings.kind!r} under training.joint = "fm"; take mlp '
            f"or torch, {WAY_OUT}"
        )
    factors = spec.joint.factors
    scores = spec.width // (1 + factors)
    cells = spec.inputs * scores
    weights = np.zeros((cells, 1 + factors))
    weights[:, 1:] = generator(*spec.key).normal(0.0, FACTOR_SPREAD, (cells, factors))
    return VectorMachine(
        settings,
        spec,
        weights.ravel(),
        biases=scores if spec.bias else 0,
        extras=(factors,),
        scratch=(np.zeros(cells, float_type(settings)),),
    )
