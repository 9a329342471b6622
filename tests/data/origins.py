"""One table in every place that a party's rows may be in."""

from __future__ import annotations

import sqlite3

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fdml.data.csv_files import CsvFiles, CsvForm
from fdml.data.locations import find_parts
from fdml.data.origins import Origin, frame_origins, origins_of
from fdml.data.parquet_files import ParquetFiles
from fdml.settings.data import DataSettings


def csv_files(path, text=(), **form) -> CsvFiles:
    """The CSV files of a path as a table."""
    return CsvFiles(find_parts(path, "csv")[1], text, CsvForm(**form))


def parquet_files(path, text=()) -> ParquetFiles:
    """The Parquet files of a path as a table."""
    return ParquetFiles(find_parts(path, "parquet")[1], text)


def write_parts(table, folder, count, ending):
    """The rows of a table in so many files of a folder, whose names sort as the rows do."""
    folder.mkdir(parents=True)
    step = -(-len(table) // count)
    for number, start in enumerate(range(0, len(table), step)):
        write_one(table.slice(start, step), folder / f"part-{number:05d}{ending}")
    return folder


def write_one(table, path):
    """A table as one file of the format of its ending."""
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=7)
    else:
        pa.csv.write_csv(table, path)
    return path


def write_sqlite(table, path):
    """A table as the table `rows` of an SQLite database, its rows backwards."""
    kinds = {"string": "text", "int64": "integer", "bool": "integer"}
    columns = ", ".join(f'"{field.name}" {kinds.get(str(field.type), "real")}' for field in table.schema)
    with sqlite3.connect(path) as database:
        database.execute(f"create table rows ({columns})")
        marks = ", ".join("?" * table.num_columns)
        rows = list(zip(*table.to_pydict().values(), strict=True))
        database.executemany(f"insert into rows values ({marks})", rows[::-1])
    database.close()
    return path


def files(ending):
    return lambda table, folder, **named: settings(path=write_one(table, folder / f"x{ending}"), **named)


def folders(ending):
    return lambda table, folder, **named: settings(path=write_parts(table, folder / "parts", 5, ending), **named)


def pattern(table, folder, **named):
    write_parts(table, folder / "parts", 5, ".parquet")
    (folder / "parts" / "notes.txt").write_text("not rows")
    return settings(path=folder / "p*" / "*.parquet", **named)


def duckdb_query(table, folder, **named):
    write_one(table.take(list(range(len(table)))[::-1]), folder / "x.parquet")
    return settings(query="select * from 'x.parquet'; ", folder=folder, **named)


def sqlite_query(table, folder, **named):
    path = write_sqlite(table, folder / "x.db")
    return settings(query="select * from rows -- all", driver="adbc_driver_sqlite", attach=path, **named)


def settings(**named) -> DataSettings:
    return DataSettings(**{"id": "user", **named})


PLACES = {
    "a Parquet file": files(".parquet"),
    "a CSV file": files(".csv"),
    "a folder of Parquet files": folders(".parquet"),
    "a folder of CSV files": folders(".csv"),
    "a pattern": pattern,
    "a query of DuckDB": duckdb_query,
    "a query of SQLite": sqlite_query,
}
"""By name: writes a table there, and gives the settings that read it. Queries need a column `user` that sorts."""
FRAMES = {
    "an Arrow table": lambda table: table,
    "a pandas frame": lambda table: table.to_pandas(),
    "a polars frame": lambda table: __import__("polars").from_arrow(table),
}
"""By name: a table as another library's frame."""
ORIGINS = (*PLACES, *FRAMES)


def origin(name, table, folder) -> Origin:
    """The table in this place."""
    if name in FRAMES:
        return frame_origins(FRAMES[name](table))[0]
    return origins_of(PLACES[name](table, folder))[0]
