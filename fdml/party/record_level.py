"""What a party's training must not take from its rows before noise hides them, where it has [guard.training].

A record-level epsilon holds for all that one row can reach. Whatever is computed from all rows without noise, a mean
of a column or a step size, carries each of them to every prediction. So it must follow from settings
(docs/decisions/0017).
"""

from __future__ import annotations

from fdml.data.column_features import Number, OneHot
from fdml.data.encoders import AnyEncoder
from fdml.data.encoding import Encoder
from fdml.data.sources import format_of
from fdml.errors import SettingsError
from fdml.privacy.dp_sgd import WAY_OUT
from fdml.settings import GuardSettings, ModelSettings, TrainingSettings
from fdml.settings_data import DataSettings


def check_rate(training: TrainingSettings, model: ModelSettings) -> None:
    """Raise where the step size of a party with [guard.training] would follow from its rows."""
    if (training.learning_rate if model.learning_rate is None else model.learning_rate) == "auto":
        raise SettingsError(
            'learning_rate = "auto" is made of the lengths of all rows, without noise, and [guard.training] must cover '
            f"them; set model.learning_rate to a number, 0.1 for one, {WAY_OUT}"
        )


def check_record_level(
    guard: GuardSettings, training: TrainingSettings, model: ModelSettings, data: DataSettings
) -> None:
    """Raise where a party has [guard.training] and settings by which its rows are used without noise."""
    if guard.training is None:
        return
    check_rate(training, model)
    if data.missing == "mean":
        raise SettingsError(
            'data.missing = "mean" takes the mean of all rows, without noise, and [guard.training] must cover them; '
            f'set data.missing = "zero", {WAY_OUT}'
        )
    if format_of(data) == "libsvm":
        raise SettingsError(
            "a LIBSVM file has as many features as the largest number in its rows says, and [guard.training] must "
            f"cover that; give the rows as numpy, CSV or Parquet, {WAY_OUT}"
        )


def check_encoder(guard: GuardSettings, data: DataSettings, encoder: AnyEncoder) -> None:
    """Raise where a party has [guard.training] and a column is encoded by what its rows hold."""
    if guard.training is None or not isinstance(encoder, Encoder):
        return
    for feature in encoder.features:
        name = feature.column
        if isinstance(feature, Number) and data.scale != "none":
            raise SettingsError(
                f"column {name!r} is scaled by the mean and deviation of all rows, without noise, and [guard.training] "
                f"must cover them; give its range, [data.ranges] with {_key(name)} = [lowest, highest], or set "
                f'data.scale = "none", {WAY_OUT}'
            )
        if isinstance(feature, OneHot) and name not in data.categories:
            raise SettingsError(
                f"column {name!r} has the categories that its rows hold, and [guard.training] must cover these; list "
                f'them, [data.categories] with {_key(name)} = ["one", "two"], or name the column in data.hashed, '
                f"{WAY_OUT}"
            )


def _key(name: str) -> str:
    """A column's name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else f'"{name}"'
