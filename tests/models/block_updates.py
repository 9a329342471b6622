"""Random rows and updates for tests of models."""

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from fdml.data.rows import as_rows
from fdml.models.kernels import BlockUpdate
from fdml.models.losses import LOSSES

OUTPUTS_OF = {"logistic": 1, "hinge": 1, "squared": 1, "softmax": 3}
DTYPES = {"single": np.float32, "double": np.float64}


@dataclass(frozen=True)
class Shape:
    """By default the last batch is short and the block begins behind the first row."""

    rows: int = 23
    width: int = 7
    start: int = 4
    batch: int = 5


USUAL = Shape()


def random_features(random, shape=USUAL, *, density=0.5):
    """Many entries are zero, and at least one row has none at all."""
    x = random.normal(size=(shape.rows, shape.width)) * (random.random((shape.rows, shape.width)) < density)
    x[shape.start + (shape.rows - shape.start) // 2] = 0.0
    return x.astype(np.float32)


def stored(x, form):
    return as_rows(sp.csr_array(x) if form == "sparse" else x)


def random_labels(random, rows, loss):
    if loss == "squared":
        return random.normal(size=rows)
    return random.integers(0, 3 if loss == "softmax" else 2, rows).astype(np.float64)


def random_lesson(random, loss, precision, shape=USUAL, *, rate=0.3, echo=2.0):
    """A update over the rows from `shape.start` to the last."""
    size, outputs, dtype = shape.rows - shape.start, OUTPUTS_OF[loss], DTYPES[precision]
    batch_bounds = np.minimum(np.arange(0, size + shape.batch, shape.batch), size)
    return BlockUpdate(
        shape.start,
        random.permutation(size),
        batch_bounds,
        rate * random.uniform(0.5, 1.0, len(batch_bounds) - 1),
        random.normal(size=(size, outputs)).astype(dtype),
        random.normal(size=(size, outputs)).astype(dtype),
        echo,
        random_labels(random, size, loss),
        random.uniform(0.5, 1.5, size),
        LOSSES[loss].code,
    )


def set_parameters(model, theta):
    """Begin at these parameters; the update rule's memory stays as it is."""
    model.restore({**model.state(), "theta": theta.astype(model.dtype)})
