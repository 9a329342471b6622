"""Boosted trees and a multi-layer perceptron as one local model. LightGBM is an extra."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from fdml.data.rows import Rows, split_features
from fdml.extras import need
from fdml.models.averaging import AveragedModel
from fdml.models.kind import ModelKind, ModelSpec, l2_of_nets
from fdml.models.learning_rate import RateInputs
from fdml.models.mlp.kind import MlpSettings
from fdml.models.mlp.kind import build as build_mlp
from fdml.models.mlp.kind import rate as mlp_rate
from fdml.models.model import Model
from fdml.models.trees.kind import TreesSettings, l2_of_leaves
from fdml.settings import ModelSettings
from fdml.settings.choices import Auto


class TreesMlpSettings(ModelSettings):
    """Those of its trees and of its network; step size, L2, optimizer and averaging are the network's."""

    takes_factored: ClassVar[bool] = True
    kind: Literal["trees+mlp"] = "trees+mlp"
    hidden: Annotated[tuple[PositiveInt, ...], Field(min_length=1)] = (64,)
    """Units of each hidden layer."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The chance that a hidden unit is left out of a row's update."""
    trees: PositiveInt = 300
    """In the whole training, about: every pass over all rows adds its share of them."""
    leaves: Annotated[int, Field(ge=2, le=4096)] | Auto = "auto"
    """Of a tree, at most; "auto" is 15, and 31 from 100,000 rows on."""
    min_rows: PositiveInt | Auto = "auto"
    """That a leaf must have; "auto" is a hundredth of the rows, between 1 and 50."""
    tree_rate: PositiveFloat = 0.075
    """How much of each tree is added, from the first to the last."""
    categories: tuple[NonNegativeInt, ...] = ()
    """Features that hold numbers of categories, counted from 0: of a matrix. Those of a table are known."""
    native_from: NonNegativeInt = 0
    """The first feature that the trees read, where those before it are the network's; 0: both read all features. Of a
    matrix; of a table it is known."""
    threads: PositiveInt = 1
    """That grow a tree together; another number may give other bits."""

    @property
    def of_network(self) -> MlpSettings:
        """The network's own."""
        return MlpSettings(**_shared(self, MlpSettings))

    def of_trees(self, rows: int) -> TreesSettings:
        """The trees' own, which are to learn from so many rows."""
        places = tuple(place - self.native_from for place in self.categories)
        return TreesSettings(**{**_shared(self, TreesSettings), "categories": places, "l2": l2_of_leaves(rows, 0.0)})


def _shared(settings: TreesMlpSettings, kind: type[ModelSettings]) -> dict[str, object]:
    """What the settings of a part have in common with those of the whole."""
    names = kind.model_fields.keys() & TreesMlpSettings.model_fields.keys() - {"kind"}
    if kind is TreesSettings:
        names -= {"optimizer", "average"}
    return {name: getattr(settings, name) for name in names}


def build(settings: TreesMlpSettings, spec: ModelSpec) -> Model:
    """A model without trees, whose network begins as one of kind "mlp" does."""
    need("lightgbm", "a party of trees")
    from fdml.models.trees.model import TreesModel  # noqa: PLC0415 (an extra)
    from fdml.models.trees_mlp.model import TreesAndNetwork  # noqa: PLC0415 (an extra)

    first = settings.native_from
    trees = TreesModel(settings.of_trees(spec.rows), spec._replace(inputs=spec.inputs - first))
    network = build_mlp(settings.of_network, spec._replace(inputs=first or spec.inputs))
    averaged = network if settings.average is None else AveragedModel(network, settings.average)
    return TreesAndNetwork(trees, averaged, settings, spec)


def rate(settings: TreesMlpSettings, given: RateInputs) -> float:
    """The network's default step size."""
    return mlp_rate(settings.of_network, given)


def network_rows(settings: TreesMlpSettings, rows: Rows) -> Rows:
    """The features that the network reads."""
    return split_features(rows, settings.native_from)[0]


TREES_MLP = ModelKind(
    "trees+mlp",
    "trees+NN",
    TreesMlpSettings,
    build,
    encoding="both",
    default_l2=l2_of_nets,
    default_rate=rate,
    stepped_rows=network_rows,
    learns_from_all_rows=True,
)
