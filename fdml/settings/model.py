"""`[model]` of a party.toml, as far as all kinds have it."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from fdml.errors import SettingsError
from fdml.settings.choices import Auto, OptimizerName
from fdml.settings.data import Names
from fdml.settings.file import Settings


class ModelSettings(Settings):
    """One party's local model and how it is updated: what all kinds have. `fdml.models.registry` knows the kinds."""

    takes_factored: ClassVar[bool] = False
    """Whether the kind has the optimizer `factored`."""
    kind: str
    l2: NonNegativeFloat | Auto = "auto"
    optimizer: OptimizerName | Auto = "auto"
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of the rules `momentum`, `adam` and `factored`."""
    learning_rate: PositiveFloat | Auto | None = None
    """This party's own step size; None takes the run's."""
    precision: Literal["single", "double"] = "single"
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    """What a batch leaves of the weights' moving average, which is evaluated and kept; None: the weights are."""
    shards: Annotated[int, Field(ge=1, le=1024)] = 1
    """Parts that every block is cut into, each learned from by itself at the same time; the result depends on it."""
    column_groups: dict[str, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """Columns by group; each group, and all other columns, have a model of their own, whose predictions are added."""
    group_features: tuple[tuple[NonNegativeInt, PositiveInt], ...] = ()
    """Of which group features are, as runs of (group, features): of a matrix; those of a table are known."""

    @model_validator(mode="after")
    def _check_optimizer(self) -> Self:
        if self.optimizer == "factored" and not self.takes_factored:
            raise ValueError(f'optimizer is "factored", which a model of kind {self.kind!r} has not; set "adam"')
        return self

    @property
    def weight_decay(self) -> float:
        """`l2` as a number; of settings whose "auto" was replaced."""
        if self.l2 == "auto":
            raise SettingsError('l2 is "auto" and no rule has replaced it yet; give a number')
        return self.l2

    @property
    def update_rule(self) -> OptimizerName:
        """`optimizer` by name; of settings whose "auto" was replaced."""
        if self.optimizer == "auto":
            raise SettingsError('optimizer is "auto" and no rule has replaced it yet; give its name')
        return self.optimizer

    @classmethod
    def subject(cls) -> str:
        """The kind of model, where it is known."""
        return f" of model kind {kind!r}" if isinstance(kind := cls.model_fields["kind"].default, str) else ""
