"""The coefficients of linear parties, in the units of the input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fdml.experiments.input_scaling import InputScaling
from fdml.models.linear.kind import LinearModel
from fdml.models.model import Model


def are_linear(models: Mapping[str, Model]) -> bool:
    """Whether every party has a linear model, so that the joint score has coefficients."""
    return all(isinstance(model, LinearModel) for model in models.values())


def coefficients(
    models: Mapping[str, Model], groups: Sequence[Sequence[int]], scaling: InputScaling, outputs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights `(features, outputs)` and intercept `(outputs,)` of the joint score.

    A feature that several parties have counts with the sum of their weights, one that none has with zero.
    """
    # A feature may be in several groups, so weights are added up.
    weights, intercept = np.zeros((len(scaling.centre), outputs)), np.zeros(outputs)
    for model, group in zip(models.values(), groups, strict=True):
        if not isinstance(model, LinearModel):
            raise AttributeError("only linear parties have coefficients")
        parameters = model.parameters.astype(np.float64)
        own = len(group) * outputs
        np.add.at(weights, np.asarray(group), parameters[:own].reshape(len(group), outputs))
        if len(parameters) > own:
            intercept += parameters[own:]
    weights /= scaling.spread[:, None]
    return weights, intercept - scaling.centre @ weights
