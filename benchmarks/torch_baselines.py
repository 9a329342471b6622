"""The built-in models again in torch, for benchmarks: same parameters, same batches, same updates.

Rows must all have the same number of entries, which lets the FM look its
factors up as one block, the fastest of the ways tried in torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from fdml.data.rows import SparseRows, row_count
from fdml.models.signals import BlockUpdate, Scores


class Batch(NamedTuple):
    """One batch as `EmbeddingBag` reads it."""

    indices: torch.Tensor
    offsets: torch.Tensor
    values: torch.Tensor
    labels: torch.Tensor


def batches_of(rows: SparseRows, updates: Sequence[tuple[BlockUpdate, Scores]]) -> list[Batch]:
    """The batches of all updates, in their order."""
    indices = rows.indices.reshape(row_count(rows), -1)
    values = rows.values.reshape(row_count(rows), -1)
    found = []
    for block, scores in updates:
        for batch in range(len(block.rates)):
            chosen = block.batch(batch)
            at = block.start + chosen
            found.append(
                Batch(
                    torch.as_tensor(indices[at].ravel(), dtype=torch.int64),
                    torch.arange(0, values[at].size, values.shape[1]),
                    torch.as_tensor(values[at].ravel()),
                    torch.as_tensor(scores.labels[chosen], dtype=torch.float32),
                )
            )
    return found


class Linear(torch.nn.Module):
    """Weights in an `EmbeddingBag`, and a bias."""

    def __init__(self, theta: torch.Tensor, width: int, *, sparse: bool) -> None:
        super().__init__()
        self.weights = torch.nn.EmbeddingBag(width, 1, mode="sum", sparse=sparse, _weight=theta[:width, None].clone())
        self.bias = torch.nn.Parameter(theta[width:].clone())

    def forward(self, batch: Batch) -> torch.Tensor:
        """Scores of a batch."""
        sums: torch.Tensor = self.weights(batch.indices, batch.offsets, per_sample_weights=batch.values)
        return sums[:, 0] + self.bias


class Fm(torch.nn.Module):
    """Weight and factors of a feature side by side in an `Embedding`, and a bias."""

    def __init__(self, theta: torch.Tensor, width: int, *, sparse: bool) -> None:
        super().__init__()
        cells = theta[:-1].reshape(width, -1)
        self.cells = torch.nn.Embedding(width, cells.shape[1], sparse=sparse, _weight=cells.clone())
        self.bias = torch.nn.Parameter(theta[-1:].clone())

    def forward(self, batch: Batch) -> torch.Tensor:
        """Scores of a batch."""
        found = self.cells(batch.indices) * batch.values[:, None]
        found = found.view(len(batch.offsets), -1, found.shape[1])
        factors = found[:, :, 1:]
        pairs = factors.sum(1).square() - factors.square().sum(1)
        total: torch.Tensor = found[:, :, 0].sum(1) + 0.5 * pairs.sum(1) + self.bias
        return total


class Mlp(torch.nn.Module):
    """A hidden layer as an `EmbeddingBag`, ReLU, and a linear output."""

    def __init__(self, theta: torch.Tensor, width: int, *, sparse: bool) -> None:
        super().__init__()
        hidden = (len(theta) - 1) // (width + 2)
        weights, rest = theta[: width * hidden], theta[width * hidden :]
        first = weights.reshape(width, hidden).clone()
        self.first = torch.nn.EmbeddingBag(width, hidden, mode="sum", sparse=sparse, _weight=first)
        self.biases = torch.nn.Parameter(rest[hidden : 2 * hidden].clone())
        self.second = torch.nn.Linear(hidden, 1)
        with torch.no_grad():
            self.second.weight.copy_(rest[None, :hidden])
            self.second.bias.copy_(rest[2 * hidden :])

    def forward(self, batch: Batch) -> torch.Tensor:
        """Scores of a batch."""
        sums = self.first(batch.indices, batch.offsets, per_sample_weights=batch.values)
        scores: torch.Tensor = self.second(torch.relu(sums + self.biases))
        return scores[:, 0]


TWINS: dict[str, type[Linear] | type[Fm] | type[Mlp]] = {"linear": Linear, "fm": Fm, "mlp": Mlp}


class Trainer:
    """A twin and its plain SGD.

    torch refuses L2 with sparse gradients; a sparse twin trains without it, which spares it work.
    """

    def __init__(self, kind: str, theta: NDArray[Any], width: int, *, sparse: bool, rate: float, l2: float) -> None:
        self.module = TWINS[kind](torch.as_tensor(theta, dtype=torch.float32), width, sparse=sparse)
        groups: list[dict[str, Any]] = [
            {
                "params": [each for each in self.module.parameters() if each.ndim > 1],
                "weight_decay": 0.0 if sparse else l2,
            },
            {"params": [each for each in self.module.parameters() if each.ndim == 1]},
        ]
        self._optimizer = torch.optim.SGD(groups, lr=rate)

    def learn(self, batches: Sequence[Batch]) -> None:
        """One update per batch."""
        for batch in batches:
            self._optimizer.zero_grad()
            loss = functional.binary_cross_entropy_with_logits(self.module(batch), batch.labels)
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()

    def predict(self, batch: Batch) -> NDArray[np.float32]:
        """Scores of a batch."""
        with torch.no_grad():
            scores: NDArray[np.float32] = self.module(batch).numpy()
        return scores


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch to one thread inside the `with`."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
