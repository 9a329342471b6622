"""A party's rows, looked at before a run: every column with its kind, counts and warnings, and all faults at once.

One pass over the file, a batch at a time; ids, labels and weights are kept whole, as a run keeps them. Nothing here
holds or names a value of a row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from fdml.data.column_features import Feature, Hashed, OneHot
from fdml.data.column_roles import ColumnRoles, check_columns, roles_of
from fdml.data.column_types import groups_of, is_text, labels_of, plain, weights_of
from fdml.data.column_warnings import ColumnLook
from fdml.data.date_features import DateInRange, DateNumber
from fdml.data.encoders import AnyEncoder
from fdml.data.encoding import Encoder
from fdml.data.error_context import errors_about, no_such
from fdml.data.feature_kinds import MissingIndicator
from fdml.data.first_line import row_by_its_names, row_by_what_is_below
from fdml.data.fitting import Fit, KnownFit, fit_for
from fdml.data.id_profile import IdLook, IdProfile
from fdml.data.origins import Origin
from fdml.data.rows import PointedRows
from fdml.data.sources import open_sources
from fdml.data.table_source import TableSource
from fdml.errors import DataError
from fdml.settings.data import DataSettings

T = TypeVar("T")
_NAMING = ("id", "columns", "ignore", "categorical", "hashed")
"""Settings that list columns."""
_TABLES = ("ranges", "categories")


@dataclass(frozen=True)
class ColumnProfile:
    """One column."""

    name: str
    kind: str
    """"number", "date", "category", "hashed"; or what else it is for: "id", "label", "weight", "group", "key" or
    "ignored"."""
    missing: int = 0
    distinct: int = 0
    is_estimate: bool = False
    """Whether `distinct` is one."""
    features: int = 0
    warnings: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class DataProfile:
    """One table of a party."""

    place: str
    rows: int = 0
    columns: tuple[ColumnProfile, ...] = ()
    ids: IdProfile | None = None
    has_ids: bool = False
    """Whether rows have ids, so are not matched by position."""
    faults: tuple[str, ...] = ()
    """Of the file as a whole."""
    encoder: AnyEncoder | None = None
    """Of the columns without a fault."""
    entries: float = 0.0
    """Values of a row that may be other than zero, on average."""
    roles: ColumnRoles | None = None
    labels: NDArray[np.generic] | None = None
    seconds: float = 0.0
    """That the pass took."""

    @property
    def all_faults(self) -> list[str]:
        """Those of the file, of its ids and of every column, with the file's name."""
        own = [*self.faults, *(self.ids.faults if self.ids is not None else ())]
        own += [fault for column in self.columns for fault in column.faults]
        return [f"{self.place}: {fault}" for fault in own]


def profile_rows(origin: Origin, settings: DataSettings) -> DataProfile:
    """Look at training rows with named columns."""
    return _Pass(origin, settings).run()


def profile_test_rows(origin: Origin, settings: DataSettings, train: DataProfile) -> DataProfile:
    """Look at test rows: they must have the columns of the training rows, of the same types."""
    text = [*settings.id, *(train.encoder.text_columns if isinstance(train.encoder, Encoder) else ())]
    return _Pass(origin, settings, known=train, text=text).run()


def profile_matrices(origins: Sequence[Origin], settings: DataSettings) -> list[DataProfile]:
    """Look at files of numbered features (LIBSVM, numpy), which have no columns; raises their first fault."""
    found = []
    for source, origin in zip(open_sources(settings, origins=origins), origins, strict=True):
        began, entries = time.monotonic(), 0
        for rows in source.chunks():
            stored = rows.stored if isinstance(rows, PointedRows) else rows
            entries += stored.values.size
        ids = source.ids()
        found.append(
            DataProfile(
                origin.name,
                source.count,
                has_ids=ids is not None,
                encoder=source.encoder,
                entries=entries / source.count,
                labels=source.labels(),
                seconds=time.monotonic() - began,
            )
        )
    return found


class _Pass:
    """One table while it is read; a fault ends what depends on it and nothing else."""

    def __init__(
        self, origin: Origin, settings: DataSettings, *, known: DataProfile | None = None, text: Sequence[str] = ()
    ) -> None:
        self._origin = origin
        self._settings = settings
        self._known = known
        keys = [name for name in settings.key_columns if name not in (settings.columns or ())]
        named = [*settings.id, *keys, *settings.categorical, *settings.hashed, *settings.categories]
        self._text = [*named, *text]
        self._faults: list[str] = []
        self._column_faults: dict[str, str] = {}
        self._looks: dict[str, ColumnLook] = {}
        self._fits: dict[str, Fit] = {}
        self._ids: IdLook | None = None
        self._kept: dict[str, list[Any]] = {}
        """Label and weight, whole."""
        self._rows = 0
        self._named_as_cells: set[str] = set()
        """Columns that hold their own name."""

    def run(self) -> DataProfile:
        began = time.monotonic()
        roles: ColumnRoles | None = None
        names: list[str] = []
        table = self._tried(lambda: self._origin.table(self._text))
        if table is not None:
            names = table.names
            roles = self._roles(names)
        if table is not None and roles is not None:
            self._tried(lambda: self._read(table, roles))
        if (
            self._known is None
            and roles is not None
            and (fault := row_by_what_is_below(names, self._settings, self._named_as_cells))
        ):
            return DataProfile(self._origin.name, self._rows, faults=(fault,))
        if roles is not None and not self._rows and not self._faults:
            self._faults.append("it has no rows; give a file with at least one")
        features = {name: self._features(name) for name in (() if roles is None else roles.features)}
        encoder = Encoder(tuple(feature for each in features.values() for feature in each))
        labels = self._labels(roles)
        ids = None if self._ids is None or self._ids.is_empty else self._tried(self._ids.profile)
        return DataProfile(
            self._origin.name,
            self._rows,
            tuple(self._column(name, roles, features) for name in names) if roles is not None else (),
            ids,
            roles is not None and bool(roles.ids),
            tuple(self._faults),
            encoder if self._known is None else self._known.encoder,
            float(len(encoder.features)),
            roles,
            labels,
            time.monotonic() - began,
        )

    def _tried(self, work: Callable[[], T]) -> T | None:
        """What some work gives; None where it has found a fault."""
        try:
            return work()
        except DataError as error:
            self._faults.append(str(error).removeprefix(f"{self._origin.name}: "))
            return None

    def _roles(self, names: Sequence[str]) -> ColumnRoles | None:
        if fault := row_by_its_names(names):
            self._faults.append(fault)
            return None
        if self._known is not None:
            known = self._known.roles
            before = len(self._faults)
            if known is not None:
                self._tried(lambda: check_columns(names, known))
            return known if len(self._faults) == before else None
        settings = self._without_unknown(names)
        return self._tried(lambda: roles_of(names, settings))

    def _without_unknown(self, names: Sequence[str]) -> DataSettings:
        """The settings without columns that the table lacks; each of them is a fault."""
        given = self._settings
        left: dict[str, Any] = {}
        for setting in _NAMING:
            columns = getattr(given, setting)
            left[setting] = None if columns is None else tuple(name for name in columns if name in names)
        for setting in _TABLES:
            left[setting] = {name: each for name, each in getattr(given, setting).items() if name in names}
        for setting in ("label", "weight", "group"):
            name = getattr(given, setting)
            left[setting] = name if name in names else None
        for setting, kept in left.items():
            wanted = getattr(given, setting)
            listed = (wanted,) if isinstance(wanted, str) else tuple(wanted or ())
            gone = [name for name in listed if name not in ((kept,) if isinstance(kept, str) else kept or ())]
            self._faults += [f"data.{setting}: {no_such('column', name, names)}" for name in gone]
        return given.model_copy(update=left)

    def _read(self, table: TableSource, roles: ColumnRoles) -> None:
        with errors_about(self._origin.name):
            self._rows = table.settle(roles.named)
            self._ids = IdLook(roles.ids, self._settings.ids) if roles.ids else None
            first = 0
            for batch in table.batches(roles.named):
                for name in roles.named:
                    self._look(name, batch.column(name), first, roles)
                self._add_ids(batch)
                first += len(batch)

    def _look(self, name: str, column: Any, first: int, roles: ColumnRoles) -> None:
        self._looks.setdefault(name, ColumnLook()).add(column)
        values = plain(column)
        if is_text(values.type) and pc.any(pc.equal(values, name)).as_py():
            self._named_as_cells.add(name)
        if name in (roles.label, roles.weight, roles.group):
            self._kept.setdefault(name, []).append(column)
        if name not in roles.features or name in self._column_faults:
            return
        try:
            if self._known is not None:
                self._encode(name, column, first)
                return
            if name not in self._fits:
                self._fits[name] = fit_for(name, column.type, self._settings)
            self._fits[name].add(column, first)
            if isinstance(self._fits[name], KnownFit):  # it learns nothing, so it has not looked
                _try_features(self._fits[name].features(), column, first)
        except DataError as error:
            self._column_faults[name] = str(error)

    def _encode(self, name: str, column: Any, first: int) -> None:
        """See that test rows can be encoded as the training rows were."""
        encoder = None if self._known is None else self._known.encoder
        features = encoder.features if isinstance(encoder, Encoder) else ()
        _try_features([feature for feature in features if feature.column == name], column, first)

    def _add_ids(self, batch: Any) -> None:
        if self._ids is None:
            return
        try:
            self._ids.add(batch)
        except DataError as error:
            self._faults.append(str(error))
            self._ids = None

    def _features(self, name: str) -> tuple[Feature, ...]:
        if name in self._column_faults or name not in self._fits:
            return ()
        try:
            return self._fits[name].features()
        except DataError as error:
            self._column_faults[name] = str(error)
            return ()

    def _labels(self, roles: ColumnRoles | None) -> NDArray[np.generic] | None:
        """The labels; label, weight and group are looked at as a run would."""
        if roles is None or not self._kept:
            return None
        for name, read in ((roles.group, groups_of), (roles.weight, weights_of)):
            if name is not None:
                self._try_column(name, partial(read, name, pa.chunked_array(self._kept[name])))
        if roles.label is None:
            return None
        label = roles.label
        return self._try_column(label, lambda: labels_of(label, pa.chunked_array(self._kept[label])))

    def _try_column(self, name: str, work: Callable[[], T]) -> T | None:
        try:
            return work()
        except DataError as error:
            self._column_faults[name] = str(error)
            return None

    def _column(self, name: str, roles: ColumnRoles, features: dict[str, tuple[Feature, ...]]) -> ColumnProfile:
        look = self._looks.get(name)
        own = features.get(name, ())
        kind = _kind(name, roles, own)
        if look is None:
            return ColumnProfile(name, kind)
        settings = self._settings
        categorical = name in (*settings.categorical, *settings.hashed, *settings.categories)
        fault = self._column_faults.get(name)
        is_feature = name in roles.features and fault is None
        return ColumnProfile(
            name,
            kind,
            look.missing,
            look.distinct.count,
            not look.distinct.is_exact,
            sum(len(feature.names) for feature in own),
            (*look.warnings(categorical=categorical), *_notes(own, settings)) if is_feature else (),
            () if fault is None else (fault,),
        )


def _try_features(features: Sequence[Feature], column: Any, first: int) -> None:
    """Raise where a batch of a column cannot be encoded."""
    for feature in features:
        feature.entries(column, first)


def _notes(features: Sequence[Feature], settings: DataSettings) -> list[str]:
    """What becomes of a column that a person may not expect."""
    notes = []
    if any(isinstance(feature, DateNumber | DateInRange) for feature in features):
        notes.append("dates become days and their parts: name it in data.ignore if it is none to learn from")
    if any(isinstance(feature, MissingIndicator) for feature in features):
        notes.append(
            f"missing numbers are filled in, beside a feature that says where (data.missing = {settings.missing!r})"
        )
    return notes


def _kind(name: str, roles: ColumnRoles, features: Sequence[Feature]) -> str:
    if name not in roles.features:
        single = {"label": roles.label, "weight": roles.weight, "group": roles.group}
        places = {kind: (named,) for kind, named in single.items()} | {"id": roles.ids, "key": roles.keys}
        return next((kind for kind, named in places.items() if name in named), "ignored")
    first = next(iter(features), None)
    if isinstance(first, Hashed):
        return "hashed"
    if isinstance(first, OneHot):
        return "category"
    return "date" if isinstance(first, DateNumber | DateInRange) else "number" if first is not None else "not usable"
