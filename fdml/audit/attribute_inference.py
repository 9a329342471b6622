"""A6: an insider knows a binary attribute of some rows and guesses it of the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

Values = NDArray[np.float64]
Maker = Callable[[], Any]
_LEAST, _MOST = 0.05, 0.95
_ATTRIBUTES = 11
_FOLDS = 3
_SCORED_ROWS = 5000
"""Unknown rows that a guess is scored on."""
_LINEAR: list[Maker] = [partial(LogisticRegression, C=strength, max_iter=200) for strength in (0.01, 0.3)]
_TREES: Maker = partial(HistGradientBoostingClassifier, max_iter=30, max_leaf_nodes=8, random_state=0)


class _Try(NamedTuple):
    """A way to guess, and its AUC on the known rows, each guessed by the others."""

    inputs: Values
    maker: Maker
    chance: float


@dataclass(frozen=True)
class Gains:
    """Of every attribute tried, the AUC without and with what the run gave."""

    without: Values
    having: Values

    @property
    def mean(self) -> float:
        """The mean gain."""
        return float((self.having - self.without).mean())

    @property
    def worst(self) -> float:
        """The largest gain."""
        return float((self.having - self.without).max())


def binary_columns(features: Values) -> list[int]:
    """The columns of two values that are not too rare, the most evenly spread first."""
    found = []
    for column, values in enumerate(features.T):
        share = float((values == values.max()).mean())
        if _LEAST <= share <= _MOST and np.isin(values, (values.min(), values.max())).all():
            found.append((-share * (1.0 - share), column))
    return [column for _, column in sorted(found)[:_ATTRIBUTES]]


def gains(
    features: Values,
    chosen: Sequence[int],
    own: Values,
    aided: Sequence[Values],
    known_rows: int,
    seed: int,
) -> Gains:
    """Guess every chosen column of the unknown rows: from own inputs, and from those or aided ones.

    Of several inputs those are taken that do best on the known rows.
    """
    order = np.random.default_rng(seed).permutation(len(features))
    known, unknown = order[:known_rows], order[known_rows : known_rows + _SCORED_ROWS]
    without, having = [], []
    for column in chosen:
        values = features[:, column] == features[:, column].max()
        if min(values[known].sum(), (~values[known]).sum()) < _FOLDS or len(set(values[unknown])) < 2:
            continue
        with threadpool_limits(limits=1):  # these are small: threads would only wait for each other
            alone = _best(values[known], [own], known)
            aided_try = max(alone, _best(values[known], aided, known), key=lambda each: each.chance)
            without.append(_unknown_auc(alone, values, known, unknown))
            having.append(_unknown_auc(aided_try, values, known, unknown))
    return Gains(np.array(without), np.array(having))


def _best(values: NDArray[np.bool_], inputs: Sequence[Values], known: NDArray[np.int64]) -> _Try:
    """The inputs and the kind of model that do best on known rows."""
    tries = [(each, maker) for each in inputs for maker in _LINEAR] + [(inputs[-1], _TREES)]
    found = [_Try(each, maker, _validated(maker, each[known], values)) for each, maker in tries]
    return max(found, key=lambda each: each.chance)


def _validated(maker: Maker, inputs: Values, values: NDArray[np.bool_]) -> float:
    folds = StratifiedKFold(_FOLDS, shuffle=True, random_state=0)
    guess = np.empty(len(values))
    for rest, fold in folds.split(inputs, values):
        guess[fold] = maker().fit(inputs[rest], values[rest]).predict_proba(inputs[fold])[:, 1]
    return float(roc_auc_score(values, guess))


def _unknown_auc(
    chosen: _Try, values: NDArray[np.bool_], known: NDArray[np.int64], unknown: NDArray[np.int64]
) -> float:
    """The AUC on unknown rows."""
    model = chosen.maker().fit(chosen.inputs[known], values[known])
    return float(roc_auc_score(values[unknown], model.predict_proba(chosen.inputs[unknown])[:, 1]))
