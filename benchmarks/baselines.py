"""Pooled training by others: scikit-learn's SGDClassifier, and torch on sparse rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import cycle, islice
from typing import cast

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from sklearn.linear_model import SGDClassifier

from benchmarks.measure import Work
from benchmarks.torch_baselines import Batch, Trainer, one_thread
from fdml.data.rows import SparseRows, row_count
from fdml.models.compiled import CompiledModel
from fdml.models.kind import ModelSpec
from fdml.models.registry import build_model
from fdml.settings import ModelSettings

TORCH_BATCHES = 500
_SEED = 7


class ScikitLearn:
    """Logistic regression by SGD, row by row; the matrix has the index type it needs, so that it copies nothing."""

    def __init__(
        self, rows: SparseRows, labels: NDArray[np.float64], *, rate: float, l2: float, shuffle: bool = True
    ) -> None:
        self._matrix = _csr(rows)
        self._labels = labels
        self._classifier = SGDClassifier(
            loss="log_loss",
            penalty="l2",
            alpha=l2,
            learning_rate="constant",
            eta0=rate,
            shuffle=shuffle,
            tol=None,
            random_state=_SEED,
        )

    def epoch(self) -> float:
        """One pass over all rows; gives its seconds."""
        began = time.perf_counter()
        self._classifier.partial_fit(self._matrix, self._labels, classes=(0.0, 1.0))
        return time.perf_counter() - began

    def score(self, rows: SparseRows) -> NDArray[np.float64]:
        """The log-odds of other rows."""
        found: NDArray[np.float64] = self._classifier.decision_function(_csr(rows))
        return found


def _csr(rows: SparseRows) -> sp.csr_matrix:
    shape = (row_count(rows), rows.width)
    return sp.csr_matrix((rows.values, rows.indices, rows.indptr.astype(np.int32)), shape=shape)


def torch_work(trainer: Trainer, batches: Sequence[Batch], count: int) -> Work:
    """Updates with the next so many batches, from the first again after the last."""
    endless = cycle(batches)

    def work() -> float:
        trainer.learn(list(islice(endless, count)))
        return count

    return work


class TorchPooled:
    """A model's twin in torch on one thread, timed on the first batches of an epoch."""

    def __init__(
        self, model: ModelSettings, rows: SparseRows, labels: NDArray[np.float64], *, rate: float, batch: int
    ) -> None:
        spec = ModelSpec(inputs=rows.width, width=1, bias=True, key=(_SEED, "torch"))
        start = cast(CompiledModel, build_model(model, spec)).parameters
        trainer = Trainer(model.kind, start, rows.width, sparse=True, rate=rate, l2=model.weight_decay)
        batches = batches_in_order(rows, labels, batch, TORCH_BATCHES)
        self._work = torch_work(trainer, batches, len(batches))
        self._batches = -(-len(labels) // batch)

    def epoch(self) -> float:
        """Seconds that an epoch would take."""
        with one_thread():
            began = time.perf_counter()
            count = self._work()
            return (time.perf_counter() - began) / count * self._batches


def batches_in_order(rows: SparseRows, labels: NDArray[np.float64], size: int, count: int) -> list[Batch]:
    """The first so many batches of consecutive rows, cut out beforehand: torch is charged for its updates alone."""
    found = []
    for start in range(0, min(count * size, row_count(rows)), size):
        stop = min(start + size, row_count(rows))
        begin, end = rows.indptr[start], rows.indptr[stop]
        found.append(
            Batch(
                torch.as_tensor(rows.indices[begin:end], dtype=torch.int64),
                torch.as_tensor(rows.indptr[start:stop] - begin),
                torch.as_tensor(rows.values[begin:end]),
                torch.as_tensor(labels[start:stop], dtype=torch.float32),
            )
        )
    return found
