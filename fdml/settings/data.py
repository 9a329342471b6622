"""Settings of a party's data: `[data]` of its party.toml, and how its ids are written."""

from __future__ import annotations

import codecs
import math
import re
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import parse_qsl, urlsplit

from pydantic import BeforeValidator, Field, PositiveInt, model_validator

from fdml.errors import SettingsError
from fdml.settings.file import Settings

Format = Literal["csv", "parquet", "libsvm", "numpy"]
Driver = Literal[
    "adbc_driver_bigquery",
    "adbc_driver_flightsql",
    "adbc_driver_postgresql",
    "adbc_driver_snowflake",
    "adbc_driver_sqlite",
]
"""The database drivers that a settings file may name; no other module is imported by it."""
PLACES = ("path", "test_path", "query", "test_query", "attach", "driver", "connection", "folder")
"""Settings that say where rows are, not what they mean."""
Missing = Literal["indicator", "error", "mean", "zero"]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _located(value: object) -> object:
    """An address like s3://bucket/rows stays a text; all else is a path."""
    return Path(value) if isinstance(value, str) and "://" not in value else value


Names = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Location = Annotated[Path | str, BeforeValidator(_located)]
"""A file, a folder or a pattern like rows/*.parquet; or the address of one, s3://bucket/rows."""
Range = tuple[float, float]
"""The least and the largest number of a column."""

_SECRET = re.compile(r"key|token|secret|password|credential", re.IGNORECASE)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class IdSettings(Settings):
    """How a party spells its ids, so that all parties spell the same id alike, and what becomes of bad ones."""

    trim: bool = True
    """Whether white space around an id is taken off."""
    case: Literal["keep", "lower"] = "keep"
    """Whether letters stay as they are or become small."""
    unicode: Literal["keep", "NFC", "NFKC"] = "NFC"
    """The normal form of letters, so that one letter has one spelling."""
    numbers: Literal["typed", "all"] = "typed"
    """Which whole numbers are written plainly, as 7: those of number columns, or also text like "007" and "7.0"."""
    duplicates: Literal["error", "first", "drop"] = "error"
    """What becomes of rows with a duplicate id: an error, the first is kept, or none is."""
    missing: Literal["error", "drop"] = "error"
    """What becomes of rows without an id."""


class DataSettings(Settings):
    """Where a party's rows are and what their columns mean."""

    path: Location | None = None
    """A file, a folder or a pattern of CSV or Parquet files, here or at an address that pyarrow knows."""
    test_path: Location | None = None
    """The test rows, in the same format."""
    format: Format | None = None
    """None goes by the file's ending."""
    delimiter: str = ","
    """Between the cells of a CSV file."""
    decimal: Literal[".", ","] = "."
    """Before the fraction of a number in a CSV file."""
    encoding: str = "utf-8"
    """Of a CSV file."""
    query: str | None = None
    """SQL in place of `path`: by DuckDB over files, or by a database's driver."""
    test_query: str | None = None
    """SQL in place of `test_path`."""
    attach: Path | None = None
    """A database file that the query reads: of DuckDB, or of SQLite with its driver."""
    driver: Driver | None = None
    """Which ADBC driver runs the query; None is DuckDB."""
    connection: str | None = None
    """The name of the environment variable that holds the database's address; the address may hold a password."""
    folder: Path = Path()
    """Where names of files in a query start."""
    id: Names = ()
    """The columns that name a row at all parties; without them rows are matched by position."""
    ids: IdSettings = IdSettings()
    keys: dict[str, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """At the label party, by other party: the columns that lead to its rows, where they have other names here than in
    `[keys]` of run.toml."""
    label: str | None = None
    """The column that is to be predicted; at the label party alone."""
    weight: str | None = None
    """The column that says how much a row counts; only the label party's is used."""
    group: str | None = None
    """The column that says which rows are ranked together, of loss "pairwise"; at the label party alone, and it stays
    there."""
    columns: Names | None = None
    """The feature columns; None takes every column that is not id, label, weight, group or ignored."""
    ignore: Names = ()
    """Columns to leave alone."""
    categorical: Names = ()
    """Columns of numbers that are codes; columns of text are categorical anyway."""
    hashed: Names = ()
    """Categorical columns to hash instead of one-hot."""
    hash_size: PositiveInt = 1024
    """Features of a hashed column."""
    max_categories: PositiveInt = 10_000
    """A categorical column with more categories in training is hashed, as if it were named in `hashed`."""
    missing: Missing = "indicator"
    """What a missing number becomes: the mean, beside one more feature that is 1 where it is missing; or the mean or
    zero alone; or an error. A missing category gives no feature."""
    scale: Literal["standard", "none"] = "standard"
    """Numeric columns of tables: to mean 0 and variance 1, or as they are."""
    ranges: dict[str, Range] = Field(default_factory=dict)
    """Of numeric columns: they are cut to the range and scaled to -1 at its low end and 1 at its high end, whatever the
    rows are."""
    categories: dict[str, Annotated[Names, Field(min_length=1)]] = Field(default_factory=dict)
    """Of categorical columns: these give a feature each, whatever the rows are; others give none."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """All columns that lead to rows of other parties, each once."""
        return tuple(dict.fromkeys(name for names in self.keys.values() for name in names))

    @model_validator(mode="after")
    def _check_places(self) -> Self:
        for location in (self.path, self.test_path):
            if isinstance(location, str):
                check_address(location)
        if self.path is not None and self.query is not None:
            raise SettingsError("data.path and data.query are both set; keep one of them")
        if self.test_path is not None and self.query is not None:
            raise SettingsError("data.test_path goes with data.path; give the test rows of a query in data.test_query")
        for name in ("test_query", "attach", "driver", "connection"):
            if getattr(self, name) is not None and self.query is None:
                raise SettingsError(f"data.{name} is set but no query; set data.query, or leave data.{name} out")
        _check_connection(self.driver, self.attach, self.connection)
        return self

    @model_validator(mode="after")
    def _check_text(self) -> Self:
        if len(self.delimiter) != 1 or not self.delimiter.isascii() or self.delimiter in '\r\n"':
            raise SettingsError(f'data.delimiter is {self.delimiter!r}; it is one character, like ";" or "\\t"')
        if self.delimiter == self.decimal:
            raise SettingsError(f"data.delimiter and data.decimal are both {self.decimal!r}; they must differ")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise SettingsError(f'data.encoding is {self.encoding!r}; try "utf-8", "latin-1" or "cp1252"') from None
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        for name, (low, high) in self.ranges.items():
            if not 0.0 < high - low < math.inf:
                raise SettingsError(f"data.ranges of column {name!r} is [{low:g}, {high:g}]; give the lower end first")
        for name, categories in self.categories.items():
            if len(set(categories)) < len(categories):
                raise SettingsError(f"data.categories of column {name!r} lists one twice; list each once")
        for name in self.ranges.keys() & {*self.categories, *self.categorical, *self.hashed}:
            raise SettingsError(f"column {name!r} has data.ranges, but is categorical by other settings; choose one")
        for name in self.categories.keys() & {*self.hashed}:
            raise SettingsError(f"column {name!r} is in data.categories and in data.hashed; choose one")
        return self


def check_address(address: str) -> None:
    """Raise where an address carries a secret: those come from the environment. The secret is not repeated."""
    found = urlsplit(address)
    keys = found.scheme in ("s3", "gs", "gcs") and found.username is not None
    if found.password is not None or keys or any(_SECRET.search(name) for name, _ in parse_qsl(found.query)):
        raise SettingsError(
            f"the {found.scheme}:// address of data.path has a user, password or key in it; take it out, and set it in "
            "the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, ...)"
        )


def _check_connection(driver: Driver | None, attach: Path | None, connection: str | None) -> None:
    if connection is not None and not _VARIABLE.fullmatch(connection):
        raise SettingsError(
            "data.connection is no name of an environment variable; put the database's address, which may hold a "
            'password, into one, and name it here: connection = "BANK_DATABASE"'
        )
    if connection is not None and driver is None:
        raise SettingsError('data.connection needs a driver; set data.driver, "adbc_driver_postgresql" for one')
    if attach is not None and driver not in (None, "adbc_driver_sqlite"):
        raise SettingsError(f"data.attach is a database file, but {driver} takes an address; set data.connection")
    if driver is not None and (attach is None) == (connection is None):
        files = " (or data.attach, a file)" if driver == "adbc_driver_sqlite" else ""
        raise SettingsError(f"{driver} needs the database's address: set data.connection{files}")
