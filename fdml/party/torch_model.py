"""Any torch.nn.Module as a party's local model. Rows reach it dense, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from fdml.data.rows import Rows, row_count, take, to_dense, width
from fdml.data.shuffle import stream
from fdml.errors import DataError, SettingsError
from fdml.party.kernels import Floats, Lesson
from fdml.party.losses import LOSSES
from fdml.party.models import State
from fdml.settings import ModelSettings, Rule

_PREDICT_ROWS = 8192
_MODULE, _RULE = "module/", "rule/"
_SLOTS: dict[Rule, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("momentum_buffer",),
    "adagrad": ("step", "sum"),
    "adam": ("step", "exp_avg", "exp_avg_sq"),
}
"""What torch's optimizer remembers of each parameter."""
_LOSS_OF_CODE = {loss.code: loss for loss in LOSSES.values()}


def _optimizers(settings: ModelSettings) -> dict[Rule, Callable[[Any], torch.optim.Optimizer]]:
    return {
        "sgd": lambda groups: torch.optim.SGD(groups, lr=1.0),
        "momentum": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=settings.momentum),
        "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=1.0),
        "adam": lambda groups: torch.optim.Adam(groups, lr=1.0, betas=(settings.momentum, 0.999)),
    }


def make_module(
    factory: Callable[[int, int], Any], inputs: int, outputs: int, key: tuple[int | str, ...]
) -> torch.nn.Module:
    """Let the user's function make a module, with torch's generator seeded from the key and put back after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(*key) % 2**63)
        module: torch.nn.Module = factory(inputs, outputs)
    return module


class TorchModel:
    """A module, with an optimizer that follows the run's step sizes.

    L2 shrinks parameters of two or more dimensions; biases are left alone.
    """

    def __init__(self, module: torch.nn.Module, settings: ModelSettings, outputs: int, inputs: int) -> None:
        if not isinstance(module, torch.nn.Module):
            raise SettingsError(f"a torch party needs a torch.nn.Module, not {type(module).__name__}")
        kind = torch.float64 if settings.precision == "double" else torch.float32
        self._module = module.to(kind)
        self._kind = kind
        self._l2 = settings.l2
        self._rule = settings.rule
        self._outputs = outputs
        self._inputs = inputs
        self._optimizer = _optimizers(settings)[settings.rule](
            [
                {"params": self._parameters(weights=True), "weight_decay": settings.l2},
                {"params": self._parameters(weights=False)},
            ]
        )

    def _parameters(self, *, weights: bool) -> list[torch.nn.Parameter]:
        return [each for each in self._module.parameters() if (each.ndim > 1) == weights]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return np.dtype(np.float64 if self._kind == torch.float64 else np.float32)

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, outputs)`."""
        stop = row_count(rows) if stop is None else stop
        out = np.empty((stop - start, self._outputs), self.dtype)
        self._module.eval()
        with torch.no_grad():
            for first in range(start, stop, _PREDICT_ROWS):
                last = min(first + _PREDICT_ROWS, stop)
                out[first - start : last - start] = self._forward(rows, np.arange(first, last)).numpy()
        return out

    def learn(self, rows: Rows, lesson: Lesson) -> None:
        """One pass over one block."""
        loss = _LOSS_OF_CODE[lesson.loss]
        self._module.train()
        for batch, rate in enumerate(lesson.rates):
            chosen = lesson.order[lesson.edges[batch] : lesson.edges[batch + 1]]
            own = self._forward(rows, lesson.start + chosen)
            score = lesson.scores[chosen] + lesson.echo * (own.detach().numpy() - lesson.own_then[chosen])
            gradient = loss.gradient(score, lesson.labels[chosen]) * lesson.weights[chosen, None] / len(chosen)
            for group in self._optimizer.param_groups:
                group["lr"] = float(rate)
            self._optimizer.zero_grad()
            own.backward(torch.as_tensor(gradient, dtype=self._kind))  # type: ignore[no-untyped-call]
            self._optimizer.step()

    def _forward(self, rows: Rows, index: np.ndarray[Any, Any]) -> torch.Tensor:
        if width(rows) != self._inputs:
            raise DataError(f"rows have {width(rows)} features, the model was made for {self._inputs}")
        features = torch.as_tensor(to_dense(take(rows, index)), dtype=self._kind)
        out: torch.Tensor = self._module(features)
        if tuple(out.shape) != (len(index), self._outputs):
            raise DataError(
                f"the torch module returned shape {tuple(out.shape)} for {len(index)} rows; "
                f"it must return ({len(index)}, {self._outputs})"
            )
        return out

    def penalty(self) -> float:
        """This party's part of the regulariser: l2 / 2 times its squared weights."""
        return (
            0.5
            * self._l2
            * sum(float(each.detach().double().square().sum()) for each in self._parameters(weights=True))
        )

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        arrays = {
            f"{_MODULE}{name}": value.numpy(force=True).copy() for name, value in self._module.state_dict().items()
        }
        for number, slots in self._optimizer.state_dict()["state"].items():
            for slot, value in slots.items():
                if value is not None:
                    arrays[f"{_RULE}{number}/{slot}"] = torch.as_tensor(value).numpy(force=True).copy()
        return arrays

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        needed = {**self._module_shapes(), **self._slot_shapes(state)}
        for name, shape in needed.items():
            theirs = state[name].shape if name in state else None
            if theirs != shape:
                raise DataError(f"saved {name!r} has shape {theirs}, this model needs {shape}; was it another model?")
        if unknown := sorted(state.keys() - needed.keys()):
            raise DataError(f"saved {unknown[0]!r} has no place in this model; was it another model?")
        slots: dict[int, dict[str, torch.Tensor]] = {}
        for name in needed:
            if name.startswith(_RULE):
                number, slot = name.removeprefix(_RULE).split("/")
                slots.setdefault(int(number), {})[slot] = torch.tensor(state[name])
        module = {name.removeprefix(_MODULE): torch.tensor(state[name]) for name in self._module_shapes()}
        self._module.load_state_dict(module)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": slots})

    def _module_shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{_MODULE}{name}": tuple(value.shape) for name, value in self._module.state_dict().items()}

    def _slot_shapes(self, state: State) -> dict[str, tuple[int, ...]]:
        """What the update rule remembers; only Adagrad does so before a parameter's first gradient."""
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        return {
            name: () if slot == "step" else tuple(each.shape)
            for number, each in enumerate(parameters)
            for slot in _SLOTS[self._rule]
            if (name := f"{_RULE}{number}/{slot}") in state or self._rule == "adagrad"
        }
