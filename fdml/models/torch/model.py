"""Any torch.nn.Module as a party's local model. Rows reach it dense, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch.func import functional_call, grad, vmap

from fdml.data.rows import Rows, check_width, row_count, take, to_dense
from fdml.errors import DataError, SettingsError
from fdml.models.kernels.gradients import LONGEST
from fdml.models.kind import ModelSpec
from fdml.models.losses import Floats
from fdml.models.model import State
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.states import check_shapes
from fdml.privacy.dp_sgd import WAY_OUT, DpSgd
from fdml.protocol.shuffle import stream
from fdml.settings import ModelSettings
from fdml.settings.choices import OptimizerName

_PREDICT_ROWS = 8192
_GRADIENT_CELLS = 2**24
"""How many numbers the gradients of rows may have that are held at once."""
_MODULE, _RULE, _UPDATES = "module/", "rule/", "private/updates"
_SLOTS: dict[OptimizerName, tuple[str, ...]] = {
    "sgd": (),
    "momentum": ("momentum_buffer",),
    "adagrad": ("step", "sum"),
    "adam": ("step", "exp_avg", "exp_avg_sq"),
}
"""What torch's optimizer keeps of each parameter."""


def _optimizers(settings: ModelSettings) -> dict[OptimizerName, Callable[[Any], torch.optim.Optimizer]]:
    return {
        "sgd": lambda groups: torch.optim.SGD(groups, lr=1.0),
        "momentum": lambda groups: torch.optim.SGD(groups, lr=1.0, momentum=settings.momentum),
        "adagrad": lambda groups: torch.optim.Adagrad(groups, lr=1.0),
        "adam": lambda groups: torch.optim.Adam(groups, lr=1.0, betas=(settings.momentum, 0.999)),
    }


def make_module(factory: Callable[[int, int], Any], spec: ModelSpec) -> torch.nn.Module:
    """Let the user's function make a module, with torch's generator seeded from the key and put back after."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream(*spec.key) % 2**63)
        module: torch.nn.Module = factory(spec.inputs, spec.width)
    return module


def _tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers; what the module assigns to their names while it runs on these is undone after."""
    return {name: each.detach() for name, each in (*module.named_parameters(), *module.named_buffers())}


def _one_row(tensors: dict[str, torch.Tensor], module: torch.nn.Module, row: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = functional_call(module, tensors, (row[None],))[0]
    return out


def _each_row(module: torch.nn.Module, features: torch.Tensor) -> torch.Tensor:
    """What the module gives for each row by itself."""
    tensors = _tensors(module)
    out: torch.Tensor = vmap(lambda row: _one_row(tensors, module, row), randomness="different")(features)
    return out


def _row_gradients(module: torch.nn.Module, features: torch.Tensor, towards: torch.Tensor) -> list[torch.Tensor]:
    """Each row's gradient of `towards` times the module's output, parameter by parameter, `(rows, *shape)`."""
    learned = {name: each.detach() for name, each in module.named_parameters() if each.requires_grad}
    fixed = _tensors(module)

    def pulled(tensors: dict[str, torch.Tensor], row: torch.Tensor, pull: torch.Tensor) -> torch.Tensor:
        return (_one_row({**fixed, **tensors}, module, row) * pull).sum()

    each = vmap(grad(pulled), in_dims=(None, 0, 0), randomness="different")(learned, features, towards)
    return list(each.values())


def _check_rows_apart(module: torch.nn.Module, inputs: int, kind: torch.dtype) -> None:
    """Raise if the module cannot be run one row at a time, or keeps some of them outside its parameters."""
    for each in module.modules():
        normal = torch.nn.modules.batchnorm
        if isinstance(each, normal._BatchNorm) or (isinstance(each, normal._NormBase) and each.track_running_stats):
            raise SettingsError(
                f"the torch module has a {type(each).__name__}, which mixes rows, and [guard.training] must keep them "
                f"apart; take GroupNorm or LayerNorm, {WAY_OUT}"
            )
    module.train()
    with torch.random.fork_rng(devices=[]):
        try:
            rows = torch.zeros(2, inputs, dtype=kind)
            _row_gradients(module, rows, torch.zeros_like(_each_row(module, rows)))
        except RuntimeError as error:
            raise SettingsError(
                f"the torch module cannot be run one row at a time by torch.func.vmap, as [guard.training] needs; "
                f"change the module, {WAY_OUT}. torch: {error}"
            ) from None


class TorchModel:
    """A module, with an optimizer that follows the run's step sizes.

    L2 shrinks parameters of two or more dimensions; biases are left alone.
    """

    concurrent: ClassVar[bool] = False
    """torch has threads of its own."""

    def __init__(self, module: torch.nn.Module, settings: ModelSettings, spec: ModelSpec) -> None:
        if not isinstance(module, torch.nn.Module):
            raise SettingsError(f"a torch party needs a torch.nn.Module, not {type(module).__name__}")
        kind = torch.float64 if settings.precision == "double" else torch.float32
        self._module = module.to(kind)
        self._kind = kind
        self._l2 = settings.weight_decay
        self._optimizer_name = settings.update_rule
        self._width = spec.width
        self._inputs = spec.inputs
        self._dp_sgd = spec.dp_sgd
        self._updates = 0
        """With DP-SGD alone."""
        self._optimizer = _optimizers(settings)[settings.update_rule](
            [
                {"params": self._parameters(weights=True), "weight_decay": settings.weight_decay},
                {"params": self._parameters(weights=False)},
            ]
        )
        if spec.dp_sgd is not None:
            _check_rows_apart(self._module, spec.inputs, kind)

    def _parameters(self, *, weights: bool) -> list[torch.nn.Parameter]:
        return [each for each in self._module.parameters() if (each.ndim > 1) == weights]

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return np.dtype(np.float64 if self._kind == torch.float64 else np.float32)

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, width)`."""
        stop = row_count(rows) if stop is None else stop
        out = np.empty((stop - start, self._width), self.dtype)
        self._module.eval()
        with torch.no_grad():
            for first in range(start, stop, _PREDICT_ROWS):
                last = min(first + _PREDICT_ROWS, stop)
                out[first - start : last - start] = self._forward(rows, np.arange(first, last)).numpy()
        return out

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block."""
        self._module.train()
        for batch, rate in enumerate(block.rates):
            chosen = block.batch(batch)
            for group in self._optimizer.param_groups:
                group["lr"] = float(rate)
            self._optimizer.zero_grad()
            if self._dp_sgd is None:
                own = self._forward(rows, block.start + chosen)
                gradient = self._loss_gradient(scores, chosen, own) / len(chosen)
                own.backward(gradient)  # type: ignore[no-untyped-call]
            else:
                self._set_noisy_gradient(self._dp_sgd, rows, block.start, scores, chosen)
            self._optimizer.step()

    def _loss_gradient(self, scores: Scores, chosen: NDArray[np.int64], own: torch.Tensor) -> torch.Tensor:
        """Of each row's weighted loss, `(rows, width)`, where the module predicts `own` now."""
        return torch.as_tensor(scores.gradient(chosen, own.detach().numpy()), dtype=self._kind)

    def _set_noisy_gradient(
        self, dp_sgd: DpSgd, rows: Rows, start: int, scores: Scores, chosen: NDArray[np.int64]
    ) -> None:
        """Give every parameter the mean of the rows' clipped gradients and its part of the noise."""
        learned = [each for each in self._module.parameters() if each.requires_grad]
        sums = [torch.zeros_like(each, dtype=torch.float64) for each in learned]
        size = sum(each.numel() for each in learned)
        at_once = max(1, _GRADIENT_CELLS // max(1, size))
        with torch.random.fork_rng(devices=[]):
            # What a module draws must not differ either when the update is computed again: the noise would not.
            torch.manual_seed(int.from_bytes(dp_sgd.key.stream("module", self._updates, 8)) % 2**63)
            for first in range(0, len(chosen), at_once):
                some = chosen[first : first + at_once]
                for total, part in zip(sums, self._clipped(dp_sgd.row_clip, rows, start, scores, some), strict=True):
                    total += part
        together = torch.cat([each.flatten() for each in sums]).numpy(force=True)
        noisy, at = torch.as_tensor(dp_sgd.noisy(self._updates, together) / len(chosen)), 0
        for each in learned:
            each.grad = noisy[at : at + each.numel()].reshape(each.shape).to(self._kind)
            at += each.numel()
        self._updates += 1

    def _clipped(
        self, clip: float, rows: Rows, start: int, scores: Scores, chosen: NDArray[np.int64]
    ) -> list[torch.Tensor]:
        """The sum of these rows' clipped gradients, parameter by parameter, in double precision."""
        features = self._features(rows, start + chosen)
        drawn = torch.get_rng_state()
        with torch.no_grad():
            own = self._checked(_each_row(self._module, features), len(chosen))
        torch.set_rng_state(drawn)
        each = _row_gradients(self._module, features, self._loss_gradient(scores, chosen, own))
        none = torch.zeros(len(chosen), dtype=torch.float64)
        square = sum((part.flatten(1).double().square().sum(1) for part in each), none)
        kept = square <= LONGEST**2  # not so where it is no number
        if not kept.all():
            square, each = square[kept], [part[kept] for part in each]
        factor = torch.clamp(clip / square.sqrt(), max=1.0)
        return [torch.tensordot(factor, part.double(), 1) for part in each]

    def _features(self, rows: Rows, index: NDArray[np.int64]) -> torch.Tensor:
        check_width(rows, self._inputs)
        return torch.as_tensor(to_dense(take(rows, index)), dtype=self._kind)

    def _forward(self, rows: Rows, index: NDArray[np.int64]) -> torch.Tensor:
        return self._checked(self._module(self._features(rows, index)), len(index))

    def _checked(self, out: torch.Tensor, count: int) -> torch.Tensor:
        if tuple(out.shape) != (count, self._width):
            raise DataError(
                f"the torch module returned shape {tuple(out.shape)} for {count} rows; "
                f"it must return ({count}, {self._width})"
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
        if self._dp_sgd is not None or self._updates:
            arrays[_UPDATES] = np.array(self._updates)
        return arrays

    def move_towards(self, other: Self, share: float) -> None:
        """Let the parameters be `1 - share` of what they are and `share` of another's; buffers are the other's."""
        with torch.no_grad():
            for mine, theirs in zip(self._module.parameters(), other._module.parameters(), strict=True):
                mine.mul_(1.0 - share).add_(theirs, alpha=share)
            for kept, newest in zip(self._module.buffers(), other._module.buffers(), strict=True):
                kept.copy_(newest)

    def check(self, state: State, under: str = "") -> None:
        """Raise unless the state is of such a model."""
        needed = self._needed(state)
        check_shapes(state, needed, under)
        if unknown := sorted(state.keys() - needed.keys()):
            raise DataError(f"saved {under + unknown[0]!r} has no place in this model; was it another model?")

    def _needed(self, state: State) -> dict[str, tuple[int, ...]]:
        """The shapes of all arrays that a state like this one must have."""
        updates: dict[str, tuple[int, ...]] = {_UPDATES: ()} if self._dp_sgd is not None or _UPDATES in state else {}
        return {**self._module_shapes(), **self._slot_shapes(state), **updates}

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self.check(state)
        needed = self._needed(state)
        slots: dict[int, dict[str, torch.Tensor]] = {}
        for name in needed:
            if name.startswith(_RULE):
                number, slot = name.removeprefix(_RULE).split("/")
                slots.setdefault(int(number), {})[slot] = torch.tensor(state[name])
        module = {name.removeprefix(_MODULE): torch.tensor(state[name]) for name in self._module_shapes()}
        self._module.load_state_dict(module)
        self._optimizer.load_state_dict({**self._optimizer.state_dict(), "state": slots})
        self._updates = int(state.get(_UPDATES, 0))

    def _module_shapes(self) -> dict[str, tuple[int, ...]]:
        return {f"{_MODULE}{name}": tuple(value.shape) for name, value in self._module.state_dict().items()}

    def _slot_shapes(self, state: State) -> dict[str, tuple[int, ...]]:
        """Of what the update rule keeps; only Adagrad does so before a parameter's first gradient."""
        parameters = [each for group in self._optimizer.param_groups for each in group["params"]]
        return {
            name: () if slot == "step" else tuple(each.shape)
            for number, each in enumerate(parameters)
            for slot in _SLOTS[self._optimizer_name]
            if (name := f"{_RULE}{number}/{slot}") in state or self._optimizer_name == "adagrad"
        }
