"""How a run's model may be asked once it is trained: `[serving]` of run.toml."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat

from fdml.errors import SettingsError
from fdml.settings.choices import LossName
from fdml.settings.file import Settings

_PROBABLE: tuple[LossName, ...] = ("logistic", "softmax")
"""Losses whose scores are probabilities."""
Chance = Annotated[float, Field(ge=0, lt=1)]


class ServingSettings(Settings):
    """Who may ask for predictions, and what becomes of a row of which a party's part is missing."""

    may_ask: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    """The parties that may ask for scores, and so learn them; None is the label party alone."""
    absent: Literal["fail", "calibrated"] = "fail"
    """Without a party's part a row has no score, or one of the others' parts, recalibrated. Either way the answer says
    who is missing. With "calibrated" an asker can learn the part of a single party."""
    ask: Literal["all", "unsure"] = "all"
    """Whether the label party asks the others for all rows, or answers alone where it is sure. The answer says which
    rows were asked for."""
    band: tuple[Chance, Chance] = (0.1, 0.9)
    """Between these probabilities of class 1 the label party is unsure; of several classes, where its likeliest is
    below the second."""
    deadline_seconds: PositiveFloat = 10.0
    """How long an asker waits for the parties' answers to one question."""


def check_absence(chance: float) -> None:
    """Raise where a run with few exchanges would leave parties out: each exchange is all that it learns of them."""
    if chance:
        raise SettingsError(
            f"training.absence = {chance:g} leaves a party out of some blocks, and training.exchanges has no blocks; "
            f"leave one of them out"
        )


def check_unsure(serving: ServingSettings, loss: LossName) -> None:
    """Raise where a run asks only for unsure rows and nobody could be sure."""
    low, high = serving.band
    if not low < high:
        raise SettingsError(f"serving.band = [{low:g}, {high:g}] has nothing inside; the first is the smaller one")
    if serving.ask == "unsure" and loss not in _PROBABLE:
        raise SettingsError(
            f'serving.ask = "unsure" goes by probabilities, and loss {loss!r} gives none; set ask = "all"'
        )


def check_askers(serving: ServingSettings, parties: Sequence[str]) -> None:
    """Raise if somebody may ask who is no party."""
    for name in serving.may_ask or ():
        if name not in parties:
            raise SettingsError(f"serving.may_ask names {name!r}, which is not among the parties {', '.join(parties)}")
