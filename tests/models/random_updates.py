"""Random rows, updates and models for tests."""

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.data.rows import as_rows
from fdml.models.joint import SUM
from fdml.models.kind import ModelSpec
from fdml.models.losses import loss_named
from fdml.models.objective import Objective, objective_for
from fdml.models.registry import build_model, kind_named, model_settings
from fdml.models.signals import BlockUpdate, Scores

CLASSES_OF = {"logistic": 2, "hinge": 2, "squared": 0, "softmax": 3, "poisson": 0, "quantile": 0, "quantile(0.9)": 0}
WIDTH_OF = {loss: objective_for(loss, classes).width for loss, classes in CLASSES_OF.items()}
DTYPES = {"single": np.float32, "double": np.float64}
FORM_OF = {"single": "dense", "double": "sparse"}
"""Each form of rows in each precision has kernels of its own, compiled in seconds: `make quick` has these two."""
PRECISION_OF = {form: precision for precision, form in FORM_OF.items()}
STORED = [
    pytest.param(form, precision, marks=[] if FORM_OF[precision] == form else pytest.mark.slow)
    for form in ("sparse", "dense")
    for precision in DTYPES
]
"""All forms with all precisions."""
FORMS_OF_DOUBLES = ["sparse", pytest.param("dense", marks=pytest.mark.slow)]


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
    if loss == "poisson":
        return random.poisson(1.0, rows).astype(np.float64)
    if CLASSES_OF[loss] == 0:
        return random.normal(size=rows)
    return random.integers(0, CLASSES_OF[loss], rows).astype(np.float64)


def random_update(random, loss, precision, shape=USUAL, *, rate=0.3, echo=2.0, joint=SUM):
    """A pass over the rows from `shape.start` to the last, and a signal for it.

    The scores and steps of Poisson are smaller: with exp in its gradient it would run away.
    """
    tame = 0.03 if loss == "poisson" else 1.0
    rate *= tame
    size, dtype = shape.rows - shape.start, DTYPES[precision]
    objective = Objective(loss_named(loss), CLASSES_OF[loss], joint)
    batch_bounds = np.minimum(np.arange(0, size + shape.batch, shape.batch), size)
    block = BlockUpdate(
        start=shape.start,
        order=random.permutation(size),
        batch_bounds=batch_bounds,
        rates=rate * random.uniform(0.5, 1.0, len(batch_bounds) - 1),
    )
    scores = Scores(
        total=(tame * random.normal(size=(size, objective.width))).astype(dtype),
        own_at_push=(tame * random.normal(size=(size, objective.width))).astype(dtype),
        labels=random_labels(random, size, loss),
        weights=random.uniform(0.5, 1.5, size),
        echo=echo,
        objective=objective,
    )
    return block, scores


def settings_of(kind, **values):
    """The settings of a kind, of these values those that it takes."""
    takes = set(kind_named(kind).settings.model_fields)
    if kind_named(kind).optimizer is None:
        takes.remove("optimizer")
    values = {"optimizer": "sgd", "l2": 1e-4, **values}
    return model_settings(kind, **{name: value for name, value in values.items() if name in takes})


def build(settings, inputs, scores, *, bias=True, key=(1, "test"), dp_sgd=None, joint=SUM):
    """A model for so many scores, whose predictions have as many floats as the joint function takes."""
    width = joint.width(scores)
    return build_model(settings, ModelSpec(inputs=inputs, width=width, bias=bias, key=key, dp_sgd=dp_sgd, joint=joint))


def set_parameters(model, theta):
    """Begin at these parameters; what the update rule keeps stays as it is."""
    model.restore({**model.state(), "theta": theta.astype(model.dtype)})
