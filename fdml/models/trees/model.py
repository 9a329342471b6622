"""Boosted trees as a party's local model: a pass over rows adds trees that lower the loss of the totals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import lightgbm
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from fdml.data.rows import (
    DenseRows,
    PlainRows,
    PointedRows,
    Rows,
    check_width,
    plain_rows,
    row_count,
    span,
    take,
    to_scipy,
)
from fdml.models.kind import ModelSpec
from fdml.models.losses import Floats
from fdml.models.model import State
from fdml.models.signals import BlockUpdate, Scores
from fdml.models.states import check_shapes
from fdml.models.trees.kind import TreesSettings
from fdml.models.trees.text import joined, leaf_values, split_gains
from fdml.protocol.shuffle import stream

_LEAVES, _MANY_LEAVES, _MANY_ROWS = 15, 31, 100_000
"""Of a tree; the larger number from so many rows on."""
_MOST_ROWS_PER_LEAF = 50
_ROWS_PER_LEAF = 100
"""Of all rows, one in so many."""
_FIXED = {
    "objective": "none",
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
    "boost_from_average": False,
    "feature_pre_filter": False,
}


@dataclass
class _Known:
    """Predictions of rows that are asked for again, by the trees so far."""

    rows: Rows
    passes: int
    sums: NDArray[np.float64]


class TreesModel:
    """A forest that grows. Its prediction is the sum over passes of the sums over each pass's trees, in double."""

    concurrent: ClassVar[bool] = False
    """LightGBM has threads of its own."""

    def __init__(self, settings: TreesSettings, spec: ModelSpec) -> None:
        self._settings = settings
        self._inputs = spec.inputs
        self._width = spec.width
        self._key = spec.key
        self._per_pass = max(1, round(settings.trees / spec.passes))
        self._text = ""
        self._ends = np.zeros(0, np.int64)
        """After each pass: how many rounds of trees there were."""
        self._gains = np.zeros(spec.inputs)
        self._booster: Any = None
        self._dataset: tuple[Rows, Any] | None = None
        self._known: list[_Known] = []

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it predicts in."""
        return np.dtype(np.float64 if self._settings.precision == "double" else np.float32)

    @property
    def text(self) -> str:
        """The forest as LightGBM writes it; empty before the first tree."""
        return self._text

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, width)`."""
        check_width(rows, self._inputs)
        stop = row_count(rows) if stop is None else stop
        if (known := self._known_of(rows)) is not None:
            return self._shaped(self._up_to_date(known)[start:stop])
        part = rows if stop - start == row_count(rows) else span(rows, start, stop)
        return self._shaped(self._sums(part, 0))

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """Add trees that lower the loss of the block's rows; all batches at once, with their mean step size."""
        check_width(rows, self._inputs)
        if not len(block.rates):
            return
        chosen = np.sort(block.order)
        whole = len(chosen) == row_count(rows)
        data = self._bound(rows) if whole else self._data_of(take(rows, block.start + chosen))
        known = self._known_of(rows) if whole else None
        base = self._sums(take(rows, block.start + chosen), 0) if known is None else self._up_to_date(known)
        rate = float(block.rates.mean())
        if rate > 0.0 and data is not None:
            self._grow(data, base, rate, chosen, scores)

    def learn_block(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """Nothing: too few rows for a tree."""

    def learn_epoch(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """As `learn`."""
        self.learn(rows, block, scores)

    def _grow(
        self, data: Any, base: NDArray[np.float64], rate: float, chosen: NDArray[np.int64], scores: Scores
    ) -> None:
        outputs = scores.objective.scores
        weights = scores.weights[chosen, None]

        def slopes(moved: NDArray[np.float64], _: Any) -> tuple[Floats, Floats]:
            own = np.zeros((len(chosen), self._width))
            own[:, : base.shape[1]] = base
            own[:, :outputs] += moved.reshape(len(chosen), outputs, order="F")
            _, score = scores.moved(chosen, own)
            gradient = scores.objective.loss.gradient(score, scores.labels[chosen]) * weights
            curvature = scores.objective.loss.curvatures(score, scores.labels[chosen]) * weights
            return gradient.ravel(order="F"), curvature.ravel(order="F")

        booster = lightgbm.Booster({**self._parameters(len(chosen), rate), "num_class": outputs}, data)
        for _ in range(self._per_pass):
            if booster.update(fobj=slopes):
                break
        grown = booster.model_to_string()
        if booster.num_trees() and "Tree=0" in grown:
            self._append(grown, booster.current_iteration())

    def _parameters(self, rows: int, rate: float) -> dict[str, Any]:
        settings = self._settings
        least, leaves = settings.min_rows, settings.leaves
        return {
            **_FIXED,
            "learning_rate": rate,
            "num_leaves": (_LEAVES if rows < _MANY_ROWS else _MANY_LEAVES) if leaves == "auto" else leaves,
            "min_data_in_leaf": min(max(rows // _ROWS_PER_LEAF, 1), _MOST_ROWS_PER_LEAF) if least == "auto" else least,
            "lambda_l2": settings.weight_decay * rows,
            "num_threads": settings.threads,
            "seed": stream(*self._key, len(self._ends)) % 2**31,
        }

    def _append(self, grown: str, rounds: int) -> None:
        before = int(self._ends[-1]) if len(self._ends) else 0
        self._text = joined([self._text, grown] if self._text else [grown])
        self._ends = np.append(self._ends, before + rounds)
        self._gains = self._gains + split_gains(grown, self._inputs)
        self._booster = _loaded(self._text)

    def _bound(self, rows: Rows) -> Any:
        """The rows as LightGBM bins them, which is done once."""
        if self._dataset is None or self._dataset[0] is not rows:
            self._dataset = (rows, self._data_of(plain_rows(rows)))
        return self._dataset[1]

    def _data_of(self, rows: PlainRows) -> Any:
        """None where no feature has two values to split between."""
        count = row_count(rows)
        if not self._inputs or not count:
            return None
        data = lightgbm.Dataset(
            _matrix(rows),
            label=np.zeros(count),
            categorical_feature=list(self._settings.categories),
            params={
                **_FIXED,
                "num_threads": self._settings.threads,
                "min_data_in_bin": min(3, max(count // _ROWS_PER_LEAF, 1)),
            },
        ).construct()
        return data if any(data.feature_num_bin(each) > 1 for each in range(self._inputs)) else None

    def bind(self, *rows: Rows) -> None:
        """Remember the predictions of these rows from now on: then only trees that are new are looked at."""
        self._known = [_Known(each, 0, np.zeros((row_count(each), 0))) for each in rows]

    def _known_of(self, rows: Rows) -> _Known | None:
        return next((each for each in self._known if each.rows is rows), None)

    def _up_to_date(self, known: _Known) -> NDArray[np.float64]:
        if known.passes < len(self._ends):
            known.sums = self._sums(known.rows, known.passes, known.sums)
            known.passes = len(self._ends)
        return known.sums

    def _sums(self, rows: Rows, first: int, before: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        """The sums of the trees from pass `first` on, added to those `before`; zero for a row that is not held.

        Passes are added one by one: so the bits are the same, however many passes ago rows were last asked for.
        """
        count = row_count(rows)
        sums = np.zeros((count, self._outputs)) if before is None or not before.shape[1] else before
        if not count or first == len(self._ends):
            return sums
        plain, places = _looked_at(rows)
        features = _matrix(plain)
        edges = [0, *self._ends.tolist()]
        for begin, end in zip(edges[first:-1], edges[first + 1 :], strict=True):
            part = self._booster.predict(
                features, begin, end - begin, raw_score=True, num_threads=self._settings.threads
            )
            sums = sums + part.reshape(row_count(plain), -1)[places]
        if isinstance(rows, PointedRows):
            sums[rows.pointers < 0] = 0.0
        return sums

    @property
    def _outputs(self) -> int:
        """Of a round, how many trees there are."""
        return 0 if self._booster is None else int(self._booster.num_model_per_iteration())

    def _shaped(self, sums: NDArray[np.float64]) -> Floats:
        out = np.zeros((len(sums), self._width), self.dtype)
        out[:, : sums.shape[1]] = sums
        return out

    def contributions(self, rows: Rows) -> NDArray[np.float64]:
        """TreeSHAP: by row and output, what each feature adds to the prediction and, last, what every row has."""
        check_width(rows, self._inputs)
        count = row_count(rows)
        if self._booster is None:
            return np.zeros((count, 1, self._inputs + 1))
        found: NDArray[np.float64] = self._booster.predict(
            _matrix(plain_rows(rows)), pred_contrib=True, num_threads=self._settings.threads
        )
        return found.reshape(count, -1, self._inputs + 1)

    def penalty(self) -> float:
        """This party's part of the regulariser: l2 / 2 times the squared values of all leaves."""
        return 0.5 * self._settings.weight_decay * float(np.square(leaf_values(self._text)).sum())

    def state(self) -> State:
        """The forest as text, where its passes end, and what each feature has brought."""
        return {
            "gains": self._gains.copy(),
            "text": np.frombuffer(self._text.encode(), np.uint8).copy(),
            "ends": self._ends.copy(),
        }

    def check(self, state: State, under: str = "") -> None:
        """Raise unless the state is of such a model."""
        check_shapes(state, {"text": (None,), "ends": (None,), "gains": (self._inputs,)}, under)

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self.check(state)
        text = state["text"].astype(np.uint8).tobytes().decode()
        booster = _loaded(text) if text else None
        self._text, self._booster = text, booster
        self._ends, self._gains = state["ends"].astype(np.int64), state["gains"].astype(np.float64)
        self.bind(*(known.rows for known in self._known))

    def __getstate__(self) -> dict[str, Any]:
        """All but what LightGBM holds and what can be found again."""
        return {**vars(self), "_booster": None, "_dataset": None, "_known": []}

    def __setstate__(self, values: dict[str, Any]) -> None:
        """As it was."""
        vars(self).update(values)
        self._booster = _loaded(self._text) if self._text else None


def _loaded(text: str) -> Any:
    return lightgbm.Booster(model_str=text)


def _looked_at(rows: Rows) -> tuple[PlainRows, NDArray[np.int64] | slice]:
    """Rows to predict, and where the given ones are among them; a stored one once where many rows point to it."""
    if isinstance(rows, PointedRows) and len(rows.pointers) >= row_count(rows.stored):
        return rows.stored, rows.pointers
    return plain_rows(rows), slice(None)


def _matrix(rows: PlainRows) -> Any:
    """As LightGBM reads it."""
    if isinstance(rows, DenseRows):
        return rows.values
    found = to_scipy(rows)
    return sp.csr_matrix((np.ascontiguousarray(found.data), found.indices, found.indptr), shape=found.shape)
