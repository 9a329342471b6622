"""Columns of a table to features: an encoder, fitted on training rows and applied to any rows.

The rules:
- text, dictionary and bool columns, and those named in `categorical`, are categories: one feature
  per category seen in training, in sorted order, named like "city=Paris". A category that is missing
  (null, NaN or empty text) or was not seen in training gives no feature. "?" is a category like any other.
  Of a column in `categories` the features are those listed there.
- `hashed` columns get `hash_size` features each, named like "city#17": a value falls into bucket
  blake2b("city=Paris") mod `hash_size`, the same at every party and in every Python.
  A column with more than `max_categories` categories in training is hashed too, to more features.
- numbers are float32. `scale = "standard"` brings each column to mean 0 and variance 1 with the
  statistics of training (a constant column is only centred), "none" leaves it. A missing number (null
  or NaN) becomes the training mean before scaling (zero where nothing is scaled, the middle of a range),
  and a column with some of them in training gets one more feature, named like "income is missing"; or,
  by `missing`, it is an error, or becomes the mean or zero alone. Infinity is an error.
  A column in `ranges` is cut to its range and scaled by it, to -1 and 1 at its ends.
- dates and times give a number and parts (`date_features`). Binary and nested types are an error.
- trees get "native" rows: a feature for each column, as it is (`native_features`). A model that wants "both" gets
  them behind the numeric ones, in the same rows.
- rows are sparse if at most a quarter of a row's features can be other than zero, else dense. This depends
  on the columns alone, so training and test rows are always of one kind.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import NonNegativeInt

from fdml.data.column_features import Entries, Feature, Hashed, OneHot
from fdml.data.documents import checked, read_document, write_document
from fdml.data.error_context import no_such
from fdml.data.feature_kinds import FEATURES
from fdml.data.fitting import Fit, fit_for
from fdml.data.native_features import is_category, native_features
from fdml.data.rows import DenseRows, NativeFeatures, RowEncoding, Rows, SparseRows
from fdml.settings.data import DataSettings

LAYOUT = 1
"""Of the JSON text."""
SPARSE_SHARE = 0.25
"""The greatest share of features that may be other than zero in sparse rows."""
_MOST_REPEATED = 2**15
"""Rows per batch where rows are repeated."""


@dataclass(frozen=True)
class Encoder:
    """All columns of a table, fitted."""

    features: tuple[Feature, ...]
    remarks: tuple[str, ...] = field(default=(), compare=False)
    """What a person should know of the columns it was fitted on; not stored."""
    native_from: int = 0
    """Where columns are encoded both ways: the number of the first native feature of a row."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all features, in order."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it was fitted on, in order."""
        return tuple(dict.fromkeys(feature.column for feature in self.features))

    @property
    def text_columns(self) -> tuple[str, ...]:
        """The columns that held text in training."""
        found = (each.column for each in self.features if isinstance(each, OneHot | Hashed) and each.type == "text")
        return tuple(dict.fromkeys(found))

    @property
    def native(self) -> NativeFeatures:
        """Where features for trees begin, which of them are numbers of categories, and of which columns all are."""
        kinds = (is_category(feature) for feature in self.features for _ in feature.names)
        columns = tuple((feature.column, len(feature.names)) for feature in self.features)
        return NativeFeatures(self.native_from, tuple(place for place, found in enumerate(kinds) if found), columns)

    @property
    def row_bytes(self) -> int:
        """The memory for one row while it is encoded, at most."""
        return 20 * len(self.features) + 4 * min(len(self.names), int(len(self.features) / SPARSE_SHARE)) + 8

    def encode(self, frame: Any, first: int = 0) -> Rows:
        """The features of a pyarrow table that has the columns fitted; others are ignored.

        `first` is the number of its first row in the file.
        """
        entries = [feature.entries(frame.column(feature.column), first) for feature in self.features]
        return gather(entries, [len(feature.names) for feature in self.features], len(frame))

    def to_json(self) -> str:
        """All of it as JSON; `from_json` gives an encoder that makes the same bits."""
        features = [{"kind": each.kind, **vars(each)} for each in self.features]
        both = {"native_from": self.native_from} if self.native_from else {}
        return write_document({"layout": LAYOUT, "encoder": "table", **both, "features": features})

    @classmethod
    def from_json(cls, text: str | bytes) -> Encoder:
        """What `to_json` wrote."""
        found = checked(_Stored, read_document(text, "the encoder", LAYOUT), "the encoder")
        return cls(tuple(map(_stored_feature, found.features)), native_from=found.native_from)


@dataclass(frozen=True)
class _Stored:
    """The JSON text's keys."""

    encoder: Literal["table"]
    features: tuple[dict[str, Any], ...]
    native_from: NonNegativeInt = 0


def _stored_feature(values: dict[str, Any]) -> Feature:
    kind = str(values.get("kind"))
    if kind not in FEATURES:
        raise no_such("kind of feature", kind, list(FEATURES))
    rest = {name: value for name, value in values.items() if name != "kind"}
    feature: Feature = checked(FEATURES[kind], rest, f"the encoder's column {values.get('column')!r}")
    return feature


class Statistics:
    """What an encoder is made of: categories, means and deviations of columns, from batches however they are cut."""

    def __init__(self, columns: Sequence[str], settings: DataSettings) -> None:
        self._columns = columns
        self._settings = settings
        self._fits: dict[str, Fit] = {}

    def learn(self, batches: Iterable[Any], first: int = 0) -> None:
        """Learn from record batches; `first` is the number of their first row in the file."""
        for frame in batches:
            for name in self._columns:
                column = frame.column(name)
                self._fit(name, column.type).add(column, first)
            first += len(frame)

    def state(self) -> dict[str, Any]:
        """What was learned so far by column, as JSON has it."""
        return {name: fit.state() for name, fit in self._fits.items()}

    def merge(self, state: Mapping[str, Any], types: Mapping[str, Any]) -> None:
        """Learn what others have learned from rows after these; `types` are those that the columns are read as."""
        for name in state:
            self._fit(name, types[name]).merge(state[name])

    def encoder(self, encoding: RowEncoding = "numeric") -> Encoder:
        """The encoder, once all is learned."""
        fits = self._fits.values()
        features = tuple(feature for each in fits for feature in each.features())
        remarks = tuple(filter(None, (each.remark() for each in fits)))
        match encoding:
            case "numeric":
                return Encoder(features, remarks)
            case "native":
                return Encoder(native_features(features), remarks)
            case "both":
                numeric = sum(len(each.names) for each in features)
                return Encoder((*features, *native_features(features)), remarks, native_from=numeric)

    def _fit(self, name: str, kind: Any) -> Fit:
        if name not in self._fits:
            self._fits[name] = fit_for(name, kind, self._settings)
        return self._fits[name]


def fit(
    batches: Iterable[Any], columns: tuple[str, ...], settings: DataSettings, encoding: RowEncoding = "numeric"
) -> Encoder:
    """The encoder of these columns, all learned here."""
    statistics = Statistics(columns, settings)
    statistics.learn(batches)
    return statistics.encoder(encoding)


def repeated_rows(batches: Iterable[Any], counts: NDArray[np.int64]) -> Iterator[Any]:
    """The rows of all batches, row i as often as `counts[i]` says, in batches of bounded size."""
    first = 0
    for frame in batches:
        index = np.repeat(np.arange(len(frame)), counts[first : first + len(frame)])
        for start in range(0, len(index), _MOST_REPEATED):
            yield frame.take(pa.array(index[start : start + _MOST_REPEATED]))
        first += len(frame)


def gather(entries: list[Entries], widths: list[int], count: int) -> Rows:
    """Rows made of the entries of all columns; a column has at most one entry per row."""
    width = sum(widths)
    if not entries:
        return DenseRows(np.zeros((count, 0), np.float32))
    starts = np.cumsum([0, *widths[:-1]], dtype=np.int32)
    index = np.column_stack([np.where(at < 0, -1, at + start) for (at, _), start in zip(entries, starts, strict=True)])
    values = np.column_stack([value for _, value in entries])
    kept = (index >= 0) & (values != 0)
    if len(entries) <= SPARSE_SHARE * width:
        indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))]).astype(np.int64)
        return SparseRows(indptr, index[kept], values[kept], width)
    dense = np.zeros((count, width), np.float32)
    dense[np.nonzero(kept)[0], index[kept]] = values[kept]
    return DenseRows(dense)
