"""Models whose passes are compiled kernels; every kind brings its kernels and the layout of its parameters."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import Rows, check_width, row_count, take
from fdml.models.kernels.gradients import SQUARED, InteractionScores, KernelScores
from fdml.models.kernels.optimizers import (
    ALL_RULES,
    COLLECT,
    FACTORED,
    OptimizerState,
    UpdateRule,
    descend,
    new_optimizer_state,
)
from fdml.models.kernels.rows import kernel_view
from fdml.models.kind import ModelSpec
from fdml.models.losses import Floats
from fdml.models.model import State
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.states import check_shapes
from fdml.privacy.dp_sgd import DpSgd
from fdml.settings import ModelSettings

AnyScores = KernelScores | InteractionScores


class Kernels(Protocol):
    """A kind's compiled passes: a module, or anything with these two functions.

    Both take the kind's extra arguments last, `predict` before `out`, `train` followed by its scratch.
    """

    predict: Any
    """predict(rows, start, rule, state, *extras, out): writes the predictions of the rows from `start` on to `out`."""
    train: Any
    """train(rows, block, scores, rule, state, *extras, *scratch): one pass over one block, batch by batch."""


class CompiledModel:
    """A flat parameter vector, weights first and then biases, and the kernels that read and change it."""

    concurrent: ClassVar[bool] = True
    kernels: ClassVar[Kernels]
    """Of the kind; set by its class."""

    def __init__(
        self,
        settings: ModelSettings,
        spec: ModelSpec,
        weights: Floats,
        *,
        biases: int,
        extras: tuple[Any, ...] = (),
        scratch: tuple[Any, ...] = (),
        table: tuple[int, int] = (0, 0),
    ) -> None:
        """`table` is the shape of the first weights, whose moments the rule `factored` keeps by feature and by unit."""
        theta = np.concatenate([weights, np.zeros(biases)]).astype(float_type(settings))
        self._rule = UpdateRule(ALL_RULES[settings.update_rule], settings.weight_decay, settings.momentum, len(weights))
        self._state = new_optimizer_state(theta, self._rule.optimizer, table)
        self._inputs = spec.inputs
        self._width = spec.width
        self._dp_sgd = spec.dp_sgd
        self._extras = extras
        self._scratch = scratch

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return self._state.theta.dtype

    @property
    def optimizer(self) -> int:
        """The number of its update rule."""
        return self._rule.optimizer

    @property
    def parameters(self) -> Floats:
        """The parameters with their scale multiplied in, weights first and then biases; a copy."""
        theta = self._state.theta.copy()
        theta[: self._rule.decayed] *= theta.dtype.type(self._state.counters[0])
        return theta

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """The outputs of the rows from `start` to `stop`, `(rows, width)`."""
        check_width(rows, self._inputs)
        stop = row_count(rows) if stop is None else stop
        out = np.empty((stop - start, self._width), self.dtype)
        self.kernels.predict(kernel_view(rows), start, self._rule, self._state, *self._extras, out)
        return out

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block. With DP-SGD, or gradients that kernels do not know, one batch at a time."""
        check_width(rows, self._inputs)
        code = scores.objective.kernel_code
        if self._dp_sgd is None and (code is not None or not len(block.rates)):
            of_kernels = _kernel_scores(scores, code)
            is_cut = self.optimizer == FACTORED and len(block.rates)
            for part in block.parts() if is_cut else (block,):  # it makes up for what it left at each one's end
                self._train(rows, part, of_kernels, self._rule, self._state)
            return
        if not len(block.rates):
            descend(self._rule, self._state, 0.0, self._collected(rows, block, _kernel_scores(scores, code)))
        for number in range(len(block.rates)):
            batch = block.only(number)
            given = (
                (rows, batch, _kernel_scores(scores, code)) if code is not None else self._given(rows, batch, scores)
            )
            if self._dp_sgd is None:
                self._train(*given, self._rule, self._state)
            else:
                self._learn_privately(self._dp_sgd, *given)

    def _train(
        self, rows: Rows, block: BlockUpdate, scores: AnyScores, rule: UpdateRule, state: OptimizerState
    ) -> None:
        self.kernels.train(kernel_view(rows), block, scores, rule, state, *self._extras, *self._scratch)

    def _given(self, rows: Rows, batch: BlockUpdate, scores: Scores) -> tuple[Rows, BlockUpdate, KernelScores]:
        """One batch by gradients found here: to the kernel they are scores of a squared loss, its own gradients."""
        chosen = take(rows, batch.start + batch.order)
        gradient = scores.gradient(batch.order, self.predict(chosen)).astype(self.dtype)
        count, zeros = len(batch.order), np.zeros_like(gradient)
        given = KernelScores(gradient, zeros, 0.0, np.zeros(count), np.ones(count), SQUARED)
        return chosen, BlockUpdate(0, np.arange(count), batch.batch_bounds, batch.rates), given

    def _learn_privately(self, dp_sgd: DpSgd, rows: Rows, batch: BlockUpdate, scores: AnyScores) -> None:
        """One batch by the noisy sum of its rows' clipped gradients."""
        size, updates = len(batch.order), self._state.counters
        noisy = dp_sgd.noisy(int(updates[1]), self._collected(rows, batch, scores) * size) / size
        descend(self._rule, self._state, float(batch.rates[0]), noisy)
        updates[1] += 1.0

    def _collected(self, rows: Rows, batch: BlockUpdate, scores: AnyScores) -> NDArray[np.float64]:
        """The mean of the rows' clipped gradients, in double precision whatever the parameters'."""
        gradient = np.zeros(len(self._state.theta))
        rule, state = self._rule._replace(optimizer=COLLECT), self._state._replace(gradient=gradient)
        self._train(rows, batch, scores, rule, state)
        return gradient

    def penalty(self) -> float:
        """This party's part of the regulariser: l2 / 2 times its squared weights."""
        weights = self.parameters[: self._rule.decayed].astype(np.float64)
        return 0.5 * self._rule.l2 * float(weights @ weights)

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def move_towards(self, other: Self, share: float) -> None:
        """Let the parameters be `1 - share` of what they are and `share` of another's; biases and weights alike."""
        kind = self.dtype.type
        self._state.theta[:] = kind(1.0 - share) * self.parameters + kind(share) * other.parameters
        self._state.counters[0] = 1.0

    def check(self, state: State, under: str = "") -> None:
        """Raise unless the state is of such a model."""
        check_shapes(state, {name: mine.shape for name, mine in self._state._asdict().items()}, under)

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self.check(state)
        self._state = OptimizerState(
            **{name: state[name].astype(mine.dtype) for name, mine in self._state._asdict().items()}
        )


def float_type(settings: ModelSettings) -> type[np.floating[Any]]:
    """The type that a model's precision means."""
    return np.float64 if settings.precision == "double" else np.float32


def clip_of(spec: ModelSpec) -> float | None:
    """How kernels take the clip of DP-SGD: None leaves clipping out of the compiled code."""
    return None if spec.dp_sgd is None else spec.dp_sgd.row_clip


def _kernel_scores(scores: Scores, loss: int | None) -> AnyScores:
    code = SQUARED if loss is None else loss
    given = KernelScores(scores.total, scores.own_at_push, scores.echo, scores.labels, scores.weights, code)
    factors = scores.objective.joint.factors
    return InteractionScores(*given, factors) if factors else given
