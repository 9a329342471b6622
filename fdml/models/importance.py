"""Which of a party's own columns matter to its local predictions: for its own eyes, as names and values are its own.

A column's importance is how far predictions move, on average, when its values are dealt out anew among the rows
(Breiman 2001); no labels are needed. Contributions say what each column adds to one row's prediction: exact for linear
models, TreeSHAP for trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from fdml.data.encoders import AnyEncoder
from fdml.data.encoding import Encoder
from fdml.data.rows import DenseRows, Rows, SparseRows, as_rows, row_count, to_dense, to_scipy
from fdml.models.compiled import CompiledModel
from fdml.models.model import Model

Groups = Mapping[str, NDArray[np.int64]]
"""By column, the numbers of its features."""


@runtime_checkable
class Contributing(Protocol):
    """A model that can tell what each feature adds to a row's prediction."""

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """`(rows, outputs, features + 1)`; the last is what every row has."""
        ...


def columns_of(encoder: AnyEncoder) -> dict[str, NDArray[np.int64]]:
    """The features of each column; of a matrix every feature is a column."""
    if not isinstance(encoder, Encoder):
        return {name: np.array([place]) for place, name in enumerate(encoder.names)}
    found: dict[str, list[int]] = {}
    for place, column in enumerate(feature.column for feature in encoder.features for _ in feature.names):
        found.setdefault(column, []).append(place)
    return {column: np.array(places) for column, places in found.items()}


def permutation_importance(model: Model, rows: Rows, groups: Groups, *, seed: int) -> dict[str, float]:
    """By column, the root of the mean squared change of the prediction when its values are dealt out anew."""
    values = to_dense(rows)
    before = model.predict(rows).astype(np.float64)
    random, found = np.random.default_rng(seed), {}
    sparse = isinstance(rows, SparseRows)
    for column, places in groups.items():
        dealt = values.copy()
        dealt[:, places] = values[random.permutation(len(values))][:, places]
        changed = as_rows(_csr(dealt)) if sparse else DenseRows(dealt)
        found[column] = float(np.sqrt(np.square(model.predict(changed) - before).sum(axis=1).mean()))
    return found


def contributions(model: Model, rows: Rows, groups: Groups, kind: str) -> NDArray[np.float64] | None:
    """By row and column, what the column adds to the first output, less its mean over the rows; None if not known."""
    each = _of_features(model, rows, kind)
    if each is None:
        return None
    by_column = np.column_stack([each[:, places].sum(axis=1) for places in groups.values()])
    centred: NDArray[np.float64] = by_column - by_column.mean(axis=0)
    return centred


def coefficients(model: Model, names: tuple[str, ...], kind: str) -> dict[str, float] | None:
    """Of a linear model with one output: the weight of each feature."""
    if kind != "linear" or not isinstance(model, CompiledModel):
        return None
    weights = model.parameters[: len(names)].astype(np.float64)
    return dict(zip(names, weights.tolist(), strict=True))


def reason_codes(added: NDArray[np.float64], columns: tuple[str, ...], most: int = 3) -> list[list[tuple[str, float]]]:
    """Of each row, the columns that move its prediction most, and by how much."""
    order = np.argsort(-np.abs(added), axis=1, kind="stable")[:, :most]
    return [[(columns[place], float(row[place])) for place in places] for row, places in zip(added, order, strict=True)]


def _of_features(model: Model, rows: Rows, kind: str) -> NDArray[np.float64] | None:
    if isinstance(model, Contributing):
        return model.contributions(rows)[:, 0, :-1]
    if kind == "linear" and isinstance(model, CompiledModel):
        values = to_dense(rows).astype(np.float64)
        width = model.predict(rows).shape[1] if row_count(rows) else 1
        weights = model.parameters[: values.shape[1] * width].astype(np.float64).reshape(values.shape[1], width)
        found: NDArray[np.float64] = values * weights[:, 0]
        return found
    return None


def _csr(values: NDArray[np.float32]) -> object:
    return to_scipy(_sparse(values))


def _sparse(values: NDArray[np.float32]) -> SparseRows:
    places = np.nonzero(values)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(places[0], minlength=len(values)))]).astype(np.int64)
    return SparseRows(indptr, places[1].astype(np.int32), values[places], values.shape[1])
