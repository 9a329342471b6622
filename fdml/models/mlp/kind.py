"""The multi-layer perceptron with ReLU units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from fdml.models.compiled import CompiledModel, Kernels, clip_of
from fdml.models.initialisation import generator
from fdml.models.kind import ModelKind, ModelSpec, l2_of_nets
from fdml.models.layers import PlainModel, mlp_layers
from fdml.models.learning_rate import RateInputs, default_rate
from fdml.models.losses import Floats
from fdml.models.mlp import kernel
from fdml.protocol.shuffle import stream
from fdml.settings import ModelSettings


class MlpSettings(ModelSettings):
    """Its hidden layers."""

    takes_factored: ClassVar[bool] = True
    kind: Literal["mlp"] = "mlp"
    hidden: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (64,)
    """Units of each hidden layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The chance that a hidden unit is left out of a row's update."""


class Perceptron(CompiledModel):
    """Layers of weights, all with biases but the last, which has them where the prediction has a bias."""

    kernels: ClassVar[Kernels] = kernel


def initial_weights(inputs: int, sizes: Sequence[int], random: np.random.Generator) -> Floats:
    """He's initial weights for hidden layers, half that variance for the last."""
    fans = [inputs, *sizes[:-1]]
    gains = [2.0] * (len(sizes) - 1) + [1.0]
    return np.concatenate(
        [
            random.normal(0.0, np.sqrt(gain / max(fan_in, 1)), fan_in * units)
            for fan_in, units, gain in zip(fans, sizes, gains, strict=True)
        ]
    )


def build(settings: MlpSettings, spec: ModelSpec) -> Perceptron:
    """The weights are drawn from the key."""
    sizes = [*settings.hidden, spec.width]
    weights = initial_weights(spec.inputs, sizes, generator(*spec.key))
    if not spec.joint.is_identity:
        last = weights[len(weights) - sizes[-2] * spec.width :].reshape(spec.width, sizes[-2])
        last *= spec.joint.starting_scale(spec.width)[:, None]
    return Perceptron(
        settings,
        spec,
        weights,
        biases=sum(settings.hidden) + (spec.width if spec.bias else 0),
        extras=(np.array(sizes), spec.inputs),
        table=(spec.inputs, sizes[0]),
        scratch=(
            clip_of(spec),
            settings.dropout or None,
            stream(*spec.key, "dropout") % 2**63,
            settings.update_rule == "factored" or None,
        ),
    )


def rate(settings: MlpSettings, given: RateInputs) -> float:
    """The default step size: hidden units start out about as long as the rows, per unit, and count as more inputs."""
    growth = 1.0 + sum(settings.hidden) / max(given.inputs, 1)
    return default_rate(settings, given, growth=growth, adam=0.003 if given.vectors else 0.005)


def layers(settings: MlpSettings, spec: ModelSpec, parameters: Floats) -> PlainModel:
    """The hidden layers and the last."""
    return mlp_layers(parameters, spec.inputs, [*settings.hidden, spec.width])


MLP = ModelKind(
    "mlp",
    "NN",
    MlpSettings,
    build,
    optimizer="factored",
    optimizer_elsewhere="adam",
    default_l2=l2_of_nets,
    default_rate=rate,
    supports_dp_sgd=True,
    added_shards=4,
    added_with_adam=8,
    layers=layers,
)
