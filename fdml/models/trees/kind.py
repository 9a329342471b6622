"""Boosted trees as a local model. LightGBM is an extra and is imported when the first model is built."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from fdml.extras import need
from fdml.models.kind import ModelKind, ModelSpec
from fdml.models.learning_rate import RateInputs
from fdml.models.model import Model
from fdml.settings import ModelSettings
from fdml.settings.choices import Auto

_DEFAULT_RATE = 0.15
_SHRINKAGE = 1.0
"""What L2 has beside the sum of a leaf's curvatures, where none is set."""


class TreesSettings(ModelSettings):
    """How many trees there are and how large they grow."""

    kind: Literal["trees"] = "trees"
    optimizer: Auto = "auto"
    """Trees have no update rule; the run's step size is how much of each tree is added."""
    average: None = None
    """Trees have no weights."""
    trees: PositiveInt = 300
    """In the whole training, about: every pass over all rows adds its share of them."""
    leaves: Annotated[int, Field(ge=2, le=4096)] | Auto = "auto"
    """Of a tree, at most; "auto" is 15, and 31 from 100,000 rows on."""
    min_rows: PositiveInt | Auto = "auto"
    """That a leaf must have; "auto" is a hundredth of the rows, between 1 and 50."""
    categories: tuple[NonNegativeInt, ...] = ()
    """Features that hold numbers of categories, counted from 0: of a matrix. Those of a table are known."""
    threads: PositiveInt = 1
    """That grow a tree together; another number may give other bits."""


def build(settings: TreesSettings, spec: ModelSpec) -> Model:
    """A model without trees, whose predictions are zero."""
    need("lightgbm", "a party of trees")
    from fdml.models.trees.model import TreesModel  # noqa: PLC0415 (an extra)

    return TreesModel(settings, spec)


def l2_of_leaves(rows: int, _: float) -> float:
    """One beside the sum of a leaf's curvatures, as boosting has it: 1 / rows beside a mean loss."""
    return _SHRINKAGE / max(rows, 1)


def rate_of_trees(_: TreesSettings, __: RateInputs) -> float:
    """How much of the first tree is added."""
    return _DEFAULT_RATE


TREES = ModelKind(
    "trees",
    "trees",
    TreesSettings,
    build,
    encoding="native",
    optimizer=None,
    default_l2=l2_of_leaves,
    default_rate=rate_of_trees,
    learns_from_all_rows=True,
)
