"""A data set whose label depends on what two parties hold together: a cross-party XOR, by a documented generator.

Two parties have 10 independent standard normal columns each, a and c. The label is 1 with the probability of the
log-odds

    1.5 (2 sign(a0 c0) + 1.5 a1 c1 + 2 sin(1.5 (a2 + c2)) + .7 a3 - .7 c3 + .5 a4 a5).

The first term is XOR of two signs, the second a product, the third a wave that no sum of functions of a and of c makes;
the rest is what each party has by itself. The best possible test AUC is about .963.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.data.label_encoding import LabelEncoding
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.experiments.dataset import JointDataset

COLUMNS = 10
TRAIN, TEST = 20_000, 10_000


def log_odds(a: NDArray[np.float64], c: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the label, by both parties' columns."""
    together = 2.0 * np.sign(a[:, 0] * c[:, 0]) + 1.5 * a[:, 1] * c[:, 1] + 2.0 * np.sin(1.5 * (a[:, 2] + c[:, 2]))
    apart = 0.7 * a[:, 3] - 0.7 * c[:, 3] + 0.5 * a[:, 4] * a[:, 5]
    return np.asarray(1.5 * (together + apart))


def cross_party_xor(seed: int, rows: int = TRAIN, test_rows: int = TEST) -> JointDataset:
    """Training and test rows of parties `a` and `c`; `a` has the labels."""
    random = np.random.default_rng([seed, 17])

    def drawn(count: int) -> RowSet:
        a, c = random.normal(size=(2, count, COLUMNS))
        labels = (random.random(count) < 1.0 / (1.0 + np.exp(-log_odds(a, c)))).astype(np.float64)
        parts = {"a": as_rows(a.astype(np.float32)), "c": as_rows(c.astype(np.float32))}
        return RowSet(parts, labels, np.ones(count))

    encoding = LabelEncoding("binary", np.array([0, 1]))
    return JointDataset("a", encoding, "logistic", drawn(rows), drawn(test_rows))
