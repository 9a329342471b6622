"""A party inside a party: every group of columns has a model of its own, and their predictions are added.

It is the outer algorithm once more. A group learns from the totals of all parties with its own part exact, and assumes
that the party's other groups move as it does: its echo is that of the party times the number of groups. Predictions
are added in the order of groups, so that their sum has the same bits whoever makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import PlainRows, PointedRows, Rows, columns, plain_rows, row_count, span
from fdml.errors import SettingsError
from fdml.models.averaging import AveragedModel
from fdml.models.compiled import CompiledModel
from fdml.models.losses import Floats
from fdml.models.model import Model, State
from fdml.models.row_pointers import learn_rows, predict_rows
from fdml.models.signals import BlockUpdate, Scores
from fdml.settings import ModelSettings

Features = NDArray[np.int64]


def grouped_features(settings: ModelSettings, found: Sequence[tuple[str, int]]) -> tuple[tuple[int, int], ...]:
    """Of which group the features of a row are, as runs of (group, features); `found` has the columns in order.

    Columns that no group names are one more group, the last.
    """
    names = list(settings.column_groups)
    group_of = {column: names.index(name) for name in names for column in settings.column_groups[name]}
    known = dict(found)
    for column in group_of:
        if column not in known:
            raise SettingsError(
                f"model.column_groups names column {column!r}, which is no feature of this party; it has "
                f"{', '.join(known) or 'a matrix without names of columns'}"
            )
    runs: list[tuple[int, int]] = []
    for column, features in (each for each in found if each[1]):  # a column without a category has no feature
        group = group_of.get(column, len(names))
        if runs and runs[-1][0] == group:
            runs[-1] = (group, runs[-1][1] + features)
        else:
            runs.append((group, features))
    return tuple(runs)


def features_by_group(settings: ModelSettings, inputs: int) -> list[Features]:
    """The numbers of each group's features, of settings that know the columns of a table."""
    runs = settings.group_features
    if sum(size for _, size in runs) != inputs:
        raise SettingsError(
            f"model.column_groups needs to know the columns of {inputs} features, and knows those of "
            f"{sum(size for _, size in runs)}; of a matrix set model.group_features, or leave column_groups out"
        )
    group = np.repeat([number for number, _ in runs], [size for _, size in runs])
    return [np.flatnonzero(group == number) for number in sorted({number for number, _ in runs})]


def group_rows(rows: Rows, features: Features) -> Rows:
    """The rows with one group's features alone, copied; those that point to stored ones still do."""
    if isinstance(rows, PointedRows):
        return rows._replace(stored=columns(rows.stored, features))
    return columns(rows, features)


def added(predictions: Sequence[Floats]) -> Floats:
    """The predictions of all groups as the party's one, added in the order of groups."""
    total = predictions[0].copy()
    for each in predictions[1:]:
        total += each
    return total


def group_scores(scores: Scores, own: Sequence[Floats]) -> list[Scores]:
    """What each group learns from in a pass, where the groups predict `own` as it begins.

    What the party has moved since its push counts with the party's own echo.
    """
    moved = added(own) - scores.own_at_push
    total = scores.total + scores.total.dtype.type(scores.echo) * moved
    return [scores._replace(total=total, own_at_push=each, echo=scores.echo * len(own)) for each in own]


class GroupedModel:
    """A model for each group of columns; its prediction is their sum."""

    concurrent: ClassVar[bool] = True

    def __init__(self, models: Sequence[CompiledModel], features: Sequence[Features]) -> None:
        self.models = tuple(models)
        self.features = tuple(features)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return self.models[0].dtype

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """The outputs of the rows from `start` to `stop`, `(rows, width)`."""
        chosen = span(rows, start, row_count(rows) if stop is None else stop)
        return added([model.predict(part) for model, part in zip(self.models, self._parts(chosen), strict=True)])

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block, by all groups from the same totals."""
        parts = self._parts(span(rows, block.start, block.start + len(scores.total)))
        own = [model.predict(part) for model, part in zip(self.models, parts, strict=True)]
        given = group_scores(scores, own)
        for model, part, signal in zip(self.models, parts, given, strict=True):
            model.learn(part, block._replace(start=0), signal)

    def _parts(self, rows: Rows) -> list[PlainRows]:
        plain = plain_rows(rows)
        return [columns(plain, features) for features in self.features]

    def penalty(self) -> float:
        """This party's part of the regulariser: that of all groups."""
        return sum(model.penalty() for model in self.models)

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        return joined_states([model.state() for model in self.models])

    def move_towards(self, other: Self, share: float) -> None:
        """Let the parameters be `1 - share` of what they are and `share` of another's."""
        for mine, theirs in zip(self.models, other.models, strict=True):
            mine.move_towards(theirs, share)

    def check(self, state: State, under: str = "") -> None:
        """Raise unless the state is of such a model."""
        for number, model in enumerate(self.models):
            model.check(state_of(state, number), f"{under}{number}/")

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self.check(state)
        for number, model in enumerate(self.models):
            model.restore(state_of(state, number))


def joined_states(states: Sequence[State]) -> State:
    """The states of all groups as one."""
    return {f"{number}/{name}": array for number, state in enumerate(states) for name, array in state.items()}


def state_of(state: Mapping[str, NDArray[Any]], number: int) -> State:
    """One group's part of a state."""
    prefix = f"{number}/"
    return {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}


def learn_group(model: CompiledModel, rows: Rows, state: State, block: BlockUpdate, scores: Scores) -> State:
    """One group's state after a pass that began with this one. The same arguments give the same bits."""
    model.restore(state)
    learn_rows(model, rows, block, scores)
    return model.state()


def predict_group(model: CompiledModel, rows: Rows, state: State, start: int, stop: int) -> Floats:
    """One group's predictions of the rows from `start` to `stop`."""
    model.restore(state)
    return predict_rows(model, rows, start, stop)


def grouped_model(model: Model) -> GroupedModel:
    """The model in column groups within one that is trained so."""
    current = model.current if isinstance(model, AveragedModel) else model
    if not isinstance(current, GroupedModel):
        raise SettingsError(f"a {type(current).__name__} is no model in column groups")
    return current
