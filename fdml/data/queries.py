"""The rows of a query: by DuckDB over files, or by a database's ADBC driver.

A query runs once. Its rows go, batch by batch, to a temporary file that has no name any more, and are read from there
as often as needed: the database is not asked again, and what it holds may change meanwhile.

A query's rows have no order of their own, but an alignment knows rows by their numbers. So the database sorts them by
`data.id`, whatever the query says, and they have the same numbers when the party starts again. An `order by` of the
query itself would be there to be forgotten.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet

from fdml.data.locations import FilePart
from fdml.data.parquet_files import ParquetFiles
from fdml.data.table_source import BATCH_ROWS, even_batches, rows_per_batch
from fdml.errors import DataError, MissingExtra, SettingsError
from fdml.extras import EXTRAS, missing, need
from fdml.settings.data import DataSettings

DUCKDB_MEMORY = "1GB"
"""What DuckDB may use for sorting and joining; the rest goes to a temporary folder."""
_PRIVATE_STATES = ("22", "23")
"""Classes of SQLSTATE whose text quotes values."""
_PLAIN_ERRORS = ("BinderException", "CatalogException", "IOException", "ParserException", "PermissionException")
"""Errors of DuckDB whose text has names of tables, columns and files, and no value."""


def run_query(query: str, settings: DataSettings) -> ParquetFiles:
    """The rows of a query, sorted by the id columns."""
    text = _sorted_by_id(query, settings)
    opened = _duckdb_batches(text, settings) if settings.driver is None else _adbc_batches(text, settings)
    with opened as reader:
        return _spooled(reader)


def _sorted_by_id(query: str, settings: DataSettings) -> str:
    if not settings.id:
        raise SettingsError("the rows of data.query have no order of their own; set data.id, they are sorted by it")
    if settings.ids.duplicates == "first":
        raise SettingsError(
            'data.ids.duplicates = "first" needs rows in a known order, which a query has not among rows of one id; '
            'choose one in the query, or set data.ids.duplicates = "drop"'
        )
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in settings.id)
    inner = query.strip().rstrip(";")
    return f"select * from (\n{inner}\n) as fdml_rows order by {columns}"  # noqa: S608 (the party's own query)


@contextmanager
def _duckdb_batches(text: str, settings: DataSettings) -> Iterator[Any]:
    need("duckdb", "data.query without data.driver")
    import duckdb  # noqa: PLC0415 (an extra)

    with tempfile.TemporaryDirectory(prefix="fdml-query-") as spill:
        config: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": "false",  # nothing is downloaded
            "allow_community_extensions": "false",
            "memory_limit": DUCKDB_MEMORY,
            "temp_directory": spill,
            "file_search_path": str(settings.folder.absolute()),
        }
        try:
            with closing(duckdb.connect(":memory:", config=config)) as database:
                if settings.attach is not None:
                    database.execute(f"attach {_quoted(settings.attach)} as fdml_attached (read_only)")
                    database.execute("use fdml_attached")
                yield database.sql(text).to_arrow_reader(BATCH_ROWS)
        except (duckdb.Error, pa.ArrowException) as error:
            kind = type(error).__name__
            told = str(error).splitlines()[0] if kind in _PLAIN_ERRORS else f"{kind}, of a value that is not shown"
            raise DataError(f"DuckDB refuses it: {told}{_extension_hint(str(error))}") from None


def _quoted(path: Path) -> str:
    return "'" + str(path.absolute()).replace("'", "''") + "'"


def _extension_hint(text: str) -> str:
    if "extension" not in text.lower():
        return ""
    return '; fdml downloads no extension: set data.driver, "adbc_driver_sqlite" or "adbc_driver_postgresql" for one'


@contextmanager
def _adbc_batches(text: str, settings: DataSettings) -> Iterator[Any]:
    driver = str(settings.driver)
    try:
        manager: Any = importlib.import_module("adbc_driver_manager")
        dbapi: Any = importlib.import_module(f"{driver}.dbapi")
    except ModuleNotFoundError as error:
        if error.name not in ("adbc_driver_manager", driver):
            raise
        raise _not_installed(error.name, driver) from None
    address = _address(settings)
    try:
        with closing(dbapi.connect(address)) as connection, closing(connection.cursor()) as cursor:
            if driver == "adbc_driver_sqlite":  # it goes by the first batch for the types of columns
                cursor.adbc_statement.set_options(**{"adbc.sqlite.query.batch_rows": str(BATCH_ROWS)})
            cursor.execute(text)
            yield _with_decimals(cursor.fetch_record_batch())
    except (manager.Error, pa.ArrowException, OSError) as error:
        raise DataError(f"{driver} refuses it: {_without_secrets(error, address)}") from None


def _not_installed(module: str, driver: str) -> MissingExtra:
    if module in EXTRAS:
        return missing(module, f'data.driver = "{driver}"')
    package = driver.replace("_", "-")
    return MissingExtra(f'data.driver = "{driver}" needs its package; install it with `pip install {package}`')


def _address(settings: DataSettings) -> str:
    if settings.attach is not None:
        if not settings.attach.is_file():
            raise DataError(f"there is no file {str(settings.attach)!r}; correct data.attach")
        return f"{settings.attach.absolute().as_uri()}?mode=ro"
    address = os.environ.get(str(settings.connection))
    if not address:
        raise SettingsError(f"data.connection names the environment variable {settings.connection!r}; set it")
    return address


def _without_secrets(error: Exception, address: str) -> str:
    """A database's error without the address, which may hold a password, and without values of the rows."""
    state = getattr(error, "sqlstate", None)
    if isinstance(error, pa.ArrowException | OSError) or (state or "").startswith(_PRIVATE_STATES):
        return f"{type(error).__name__} of a value that is not shown (SQLSTATE {state})"
    text = str(error).splitlines()[0]
    secrets = [address]
    if "://" in address:
        secrets.append(urlsplit(address).password or "")
    for secret in secrets:
        text = text.replace(secret, "...") if secret else text
    return text


def _with_decimals(reader: Any) -> Any:
    """The reader; PostgreSQL's driver hands over `numeric` as text, which is made numbers here."""
    schema = reader.schema
    decimal = [_postgres_type(field) == b"numeric" for field in schema]
    if not any(decimal):
        return reader
    fields = [
        pa.field(field.name, pa.float64()) if is_decimal else field
        for field, is_decimal in zip(schema, decimal, strict=True)
    ]
    wanted = pa.schema(fields)
    return pa.RecordBatchReader.from_batches(wanted, (batch.cast(wanted) for batch in reader))


def _postgres_type(field: Any) -> bytes:
    found: bytes = (field.metadata or {}).get(b"ADBC:postgresql:typname", b"")
    return found


def _spooled(reader: Any) -> ParquetFiles:
    """The rows on disk, in a file that is gone when nobody reads it any more, also after a crash."""
    rows = rows_per_batch(len(reader.schema))
    with tempfile.NamedTemporaryFile(prefix="fdml-query-", suffix=".parquet") as file:
        with pa.parquet.ParquetWriter(file.name, reader.schema.remove_metadata()) as writer:
            for batch in even_batches(reader, rows):
                writer.write(_as_table(batch))
        with pa.memory_map(file.name) as mapped:
            content = mapped.read_buffer()
    return ParquetFiles([FilePart(_Spool(content), "", "the query's rows")])


def _as_table(batch: Any) -> Any:
    table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
    return table.replace_schema_metadata()


class _Spool:
    """A file system of one file that has no name any more."""

    def __init__(self, content: Any) -> None:
        self._content = content

    def open_input_file(self, _: str) -> Any:
        return pa.BufferReader(self._content)
