"""Local models: each maps a party's features to `outputs` floats and learns from updates.

`CompiledModel` serves all built-in kinds; what differs between them are a kernel
and its layout. `build_model` makes any kind from its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows, row_count, width
from fdml.errors import DataError
from fdml.models import fm_kernel, linear_kernel, mlp_kernel
from fdml.models.initialisation import fm_weights, generator, mlp_weights
from fdml.models.kernels import (
    ADAGRAD,
    ADAM,
    MOMENTUM,
    SGD,
    BlockUpdate,
    Floats,
    OptimizerState,
    UpdateRule,
    kernel_view,
    new_optimizer_state,
    one_batch,
)
from fdml.privacy.dp_sgd import DpSgd, check_private
from fdml.settings import Kind, ModelSettings, OptimizerName

RULES: dict[OptimizerName, int] = {"sgd": SGD, "momentum": MOMENTUM, "adagrad": ADAGRAD, "adam": ADAM}
_KERNELS: dict[Kind, Any] = {"linear": linear_kernel, "fm": fm_kernel, "mlp": mlp_kernel}
State = Mapping[str, NDArray[Any]]


class Model(Protocol):
    """What a party trains. Its parameters never leave the party."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        ...

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, outputs)`."""
        ...

    def learn(self, rows: Rows, update: BlockUpdate) -> None:
        """One pass over one block."""
        ...

    def penalty(self) -> float:
        """This party's part of the regulariser: l2 / 2 times its squared weights."""
        ...

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        ...

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        ...


@dataclass(frozen=True)
class KernelSpec:
    """What tells the kernels of one kind from another."""

    kind: Kind
    extras: tuple[Any, ...] = ()
    """Arguments both kernels take besides the usual."""
    scratch: tuple[Any, ...] = ()
    """Arguments only `train` takes, last."""

    @property
    def kernels(self) -> Any:
        """The module with this kind's compiled `predict` and `train`."""
        return _KERNELS[self.kind]


class CompiledModel:
    """A built-in model: a flat parameter vector and the kernels that read it."""

    def __init__(
        self,
        layout: KernelSpec,
        recipe: UpdateRule,
        theta: Floats,
        outputs: int,
        inputs: int,
        private: DpSgd | None = None,
    ) -> None:
        self._layout = layout
        self._recipe = recipe
        self._memory = new_optimizer_state(theta, recipe.rule)
        self._outputs = outputs
        self._inputs = inputs
        self._private = private

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return self._memory.theta.dtype

    @property
    def parameters(self) -> Floats:
        """The parameters as they are meant, weights first and then biases; a copy."""
        theta = self._memory.theta.copy()
        theta[: self._recipe.decayed] *= theta.dtype.type(self._memory.counters[0])
        return theta

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, outputs)`."""
        self._check(rows)
        stop = row_count(rows) if stop is None else stop
        out = np.empty((stop - start, self._outputs), self.dtype)
        self._layout.kernels.predict(kernel_view(rows), start, self._recipe, self._memory, *self._layout.extras, out)
        return out

    def learn(self, rows: Rows, update: BlockUpdate) -> None:
        """One pass over one block."""
        self._check(rows)
        if self._private is None or not len(update.rates):
            self._train(rows, update)
            return
        for batch, rate in enumerate(update.rates):
            alone = one_batch(update, batch)
            self._train(rows, alone)
            self._add_noise(self._private, rate / len(alone.order))

    def _train(self, rows: Rows, update: BlockUpdate) -> None:
        layout = self._layout
        layout.kernels.train(kernel_view(rows), update, self._recipe, self._memory, *layout.extras, *layout.scratch)

    def _add_noise(self, private: DpSgd, amount: float) -> None:
        """Subtract `amount` times the noise of this update from the parameters as they are meant, and count it."""
        theta, counters, decayed = self._memory.theta, self._memory.counters, self._recipe.decayed
        noise = private.noise(int(counters[1]), len(theta))
        theta[:decayed] -= amount / counters[0] * noise[:decayed]
        theta[decayed:] -= amount * noise[decayed:]
        counters[1] += 1.0

    def penalty(self) -> float:
        """This party's part of the regulariser: l2 / 2 times its squared weights."""
        weights = self.parameters[: self._recipe.decayed].astype(np.float64)
        return 0.5 * self._recipe.l2 * float(weights @ weights)

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        return {name: array.copy() for name, array in self._memory._asdict().items()}

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        for name, mine in self._memory._asdict().items():
            theirs = state.get(name)
            if theirs is None or theirs.shape != mine.shape:
                shape = None if theirs is None else theirs.shape
                raise DataError(
                    f"saved {name!r} has shape {shape}, this model needs {mine.shape}; was it another model?"
                )
        self._memory = OptimizerState(
            **{name: state[name].astype(mine.dtype) for name, mine in self._memory._asdict().items()}
        )

    def _check(self, rows: Rows) -> None:
        if width(rows) != self._inputs:
            raise DataError(f"rows have {width(rows)} features, the model was made for {self._inputs}")


def build_compiled(
    settings: ModelSettings,
    inputs: int,
    outputs: int,
    *,
    bias: bool,
    key: tuple[int | str, ...],
    private: DpSgd | None = None,
) -> CompiledModel:
    """A linear, FM or MLP model with parameters drawn from the key."""
    if private is not None:
        check_private(settings)
    clip = None if private is None else float(private.clip)
    random = generator(*key)
    match settings.kind:
        case "fm":
            weights = fm_weights(inputs, outputs, settings.factors, random)
            pull = np.zeros(inputs * outputs, _dtype(settings))
            layout = KernelSpec("fm", (settings.factors,), (pull,))
            biases = outputs if bias else 0
        case "mlp":
            sizes = [*settings.hidden, outputs]
            weights = mlp_weights(inputs, sizes, random)
            layout = KernelSpec("mlp", (np.array(sizes), inputs), (clip,))
            biases = sum(settings.hidden) + (outputs if bias else 0)
        case _:
            weights = np.zeros(inputs * outputs)
            layout = KernelSpec("linear", scratch=(clip,))
            biases = outputs if bias else 0
    theta = np.concatenate([weights, np.zeros(biases)]).astype(_dtype(settings))
    recipe = UpdateRule(RULES[settings.optimizer], settings.l2, settings.momentum, len(weights))
    return CompiledModel(layout, recipe, theta, outputs, inputs, private)


def _dtype(settings: ModelSettings) -> type[np.floating[Any]]:
    return np.float64 if settings.precision == "double" else np.float32
