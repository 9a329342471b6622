"""What a party's training must not take from its rows before noise hides them, where it has [guard.training].

A record-level epsilon holds for all that one row can reach. Whatever is computed from all rows without noise, a mean
of a column or a step size, carries each of them to every prediction. So it must follow from settings
(docs/decisions/0017).
"""

from __future__ import annotations

from fdml.data.column_features import Feature, Hashed, Number, OneHot
from fdml.data.date_features import DateNumber
from fdml.data.encoders import AnyEncoder
from fdml.data.encoding import Encoder
from fdml.data.feature_kinds import MissingIndicator
from fdml.data.sources import format_of
from fdml.errors import SettingsError
from fdml.privacy.dp_sgd import WAY_OUT
from fdml.settings import GuardSettings, ModelSettings, RunSettings, TrainingSettings
from fdml.settings.data import DataSettings


def check_rate(training: TrainingSettings, model: ModelSettings) -> None:
    """Raise where the step size of a party with [guard.training] would follow from its rows."""
    if (training.learning_rate if model.learning_rate is None else model.learning_rate) == "auto":
        raise SettingsError(
            'learning_rate = "auto" is made of the lengths of all rows, without noise, and [guard.training] must cover '
            f"them; set model.learning_rate to a number, 0.1 for one, {WAY_OUT}"
        )


def check_repeats(guard: GuardSettings, run: RunSettings, party: str) -> None:
    """Raise where a party has noise and rows of a grain at which the ledger would count too little.

    Many rows of the run may point to one row of a party in [keys], and each of them releases it; held-out rows as
    well. The ledger counts a row once for each exchange.
    """
    if party in run.keys and (guard.noise != "none" or guard.training is not None):
        raise SettingsError(
            f"party {party!r} is in [keys] of run.toml: one of its rows is released with every row that points to it, "
            f"which its ledger does not count; leave the noise of [guard] and [guard.training] out (guard.clip may "
            f"stay), or give it a table with one row for each row of {run.label_party!r} and take it out of [keys]"
        )


def check_record_level(
    guard: GuardSettings, training: TrainingSettings, model: ModelSettings, data: DataSettings
) -> None:
    """Raise where a party has [guard.training] and settings by which its rows are used without noise."""
    if guard.training is None:
        return
    check_rate(training, model)
    if training.joint == "head":
        raise SettingsError(
            'training.joint = "head" learns a network from all rows and their labels, without noise, and '
            f'[guard.training] must cover them; set training.joint = "fm", {WAY_OUT}'
        )
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
    if guard.training is None:
        return
    if not isinstance(encoder, Encoder):
        if encoder.indicated:
            raise _indicated(f"feature {encoder.indicated[0] + 1}")
        return
    for feature in encoder.features:
        _check_feature(feature, data)


def _check_feature(feature: Feature, data: DataSettings) -> None:
    name = feature.column
    if isinstance(feature, Number | DateNumber) and data.scale != "none":
        days = " in days since 1970 (hours for times of day)" if isinstance(feature, DateNumber) else ""
        raise SettingsError(
            f"column {name!r} is scaled by the mean and deviation of all rows, without noise, and [guard.training] "
            f"must cover them; give its range{days}, [data.ranges] with {_key(name)} = [lowest, highest], or set "
            f'data.scale = "none", {WAY_OUT}'
        )
    if isinstance(feature, MissingIndicator):
        raise _indicated(f"column {name!r}")
    if isinstance(feature, OneHot) and name not in data.categories:
        raise SettingsError(
            f"column {name!r} has the categories that its rows hold, and [guard.training] must cover these; list "
            f'them, [data.categories] with {_key(name)} = ["one", "two"], or name the column in data.hashed, '
            f"{WAY_OUT}"
        )
    if isinstance(feature, Hashed) and name not in data.hashed:
        raise SettingsError(
            f"column {name!r} is hashed as its rows hold more than {data.max_categories} categories, and "
            f"[guard.training] must cover that; name the column in data.hashed, {WAY_OUT}"
        )


def _indicated(what: str) -> SettingsError:
    return SettingsError(
        f"{what} has an indicator of missing numbers as some row misses one, and [guard.training] must cover that; "
        f'set data.missing = "zero", {WAY_OUT}'
    )


def _key(name: str) -> str:
    """A column's name as a key of TOML."""
    return name if name.replace("_", "").replace("-", "").isalnum() and name.isascii() else f'"{name}"'
