"""The same rows give the same bits wherever they are: encoded, and after a short training."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from fdml.data.origins import frame_origins, origins_of
from fdml.data.row_set import RowSet
from fdml.data.rows import to_dense
from fdml.experiments.in_memory import KEY
from fdml.experiments.in_process import train_in_process
from fdml.federation.party_files import PartyFiles
from fdml.models.registry import model_settings
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.plan import Plan
from fdml.party.settings import PartySettings
from fdml.settings import RunSettings, TrainingSettings
from fdml.settings.data import DataSettings
from tests.data.origins import FRAMES, duckdb_query, write_one, write_parts
from tests.data.postgres import postgres_server, write_table

ROWS = 2_000
FILES = 200
RUN = RunSettings(parties=("ann",), label_party="ann")
PLAN = Plan(
    TrainingSettings(epochs=2, batch_size=100, batches_per_block=4, value_bits=64, learning_rate=0.1),
    {"ann": model_settings()},
    "ann",
    "logistic",
    2,
)
COMMON = {"id": "user", "label": "paid"}


def sample():
    """Rows with everything that is learned from: scales, missing numbers, categories, dates. They sort by `user`."""
    chance = np.random.default_rng(3)
    first = datetime.date(2020, 1, 1)
    return pa.table(
        {
            "user": [f"u{number:05d}" for number in range(ROWS)],
            "wide": chance.lognormal(2, 3, ROWS),
            "narrow": chance.normal(1e6, 1e-3, ROWS),
            "income": pa.array(chance.normal(size=ROWS), mask=chance.random(ROWS) < 0.2),
            "count": chance.integers(0, 50, ROWS),
            "city": [f"city {number}" for number in chance.integers(0, 30, ROWS)],
            "joined": [first + datetime.timedelta(int(days)) for days in chance.integers(0, 2000, ROWS)],
            "paid": chance.integers(0, 2, ROWS),
            "part": [f"p{number // (ROWS // FILES):03d}" for number in range(ROWS)],
        }
    )


def hive_folder(table, folder):
    """200 files, each in its folder of a partitioned data set, as pyarrow writes it."""
    flavour = ds.partitioning(pa.schema([("part", pa.string())]), flavor="hive")
    ds.write_dataset(table, folder / "hive", format="parquet", partitioning=flavour, max_partitions=FILES)
    assert len(list((folder / "hive").glob("part=*/*.parquet"))) == FILES
    return origins_of(DataSettings(path=folder / "hive", **COMMON))


def csv_folder(table, folder):
    return origins_of(DataSettings(path=write_parts(table, folder / "csv", FILES, ".csv"), **COMMON))


def csv_file(table, folder):
    return origins_of(DataSettings(path=write_one(table, folder / "x.csv"), **COMMON))


def parquet_file(table, folder):
    return origins_of(DataSettings(path=write_one(table, folder / "x.parquet"), **COMMON))


PLACES = {
    "a partitioned folder of 200 Parquet files": hive_folder,
    "a folder of 200 CSV files": csv_folder,
    "a CSV file": csv_file,
    "a query of DuckDB": lambda table, folder: origins_of(duckdb_query(table, folder, **COMMON)),
    **{name: lambda table, _, make=make: frame_origins(make(table)) for name, make in FRAMES.items()},
}


def result(tmp_path, origins):
    """The fingerprint of the encoded rows, their labels and ids, and of a model trained on them."""
    files = PartyFiles(
        PartySettings(party="ann", federation=tmp_path, data=DataSettings(**COMMON)),
        RUN,
        tmp_path / "state",
        origins=origins,
    )
    order = np.random.default_rng(1).permutation(ROWS)
    report = AlignmentReport("tokens", {}, ROWS, ROWS - 200, 200, 0.0)
    shared = SharedRows(order[200:], order[:200], b"d" * 32, KEY, report)
    rows = files.rows(shared)
    labels, _ = files.labels(shared)
    trained = train_in_process(PLAN, RowSet({"ann": rows.train}, labels.train, labels.train_weights), in_turns=True)
    model = trained.models["ann"].state()
    return (
        files.encoder.names,
        to_dense(rows.train).tobytes() + to_dense(rows.held_out).tobytes(),
        files.row_ids().ids.train.to_pylist(),
        labels.train.tolist(),
        {name: np.asarray(value).tobytes() for name, value in model.items()},
    )


@pytest.fixture(scope="module")
def one_file(tmp_path_factory):
    """The table, and what one Parquet file of it gives."""
    folder, table = tmp_path_factory.mktemp("file"), sample()
    found = result(folder, parquet_file(table, folder))
    names = ("income is missing", "joined days", "joined month=12", "joined weekday=Monday", "part=p199", "city=city 0")
    assert set(names) < set(found[0])
    return table, found


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_every_place_gives_the_bits_of_one_file(place, one_file, tmp_path):
    table, wanted = one_file
    assert result(tmp_path, PLACES[place](table, tmp_path)) == wanted


@pytest.mark.slow
def test_postgresql_gives_the_bits_of_one_file(one_file, tmp_path, monkeypatch):
    table, wanted = one_file
    named = {"query": "select * from people", "driver": "adbc_driver_postgresql", "connection": "BANK_DATABASE"}
    with postgres_server() as address:
        monkeypatch.setenv("BANK_DATABASE", address)
        write_table(address, "people", table.take(np.random.default_rng(9).permutation(ROWS)))
        assert result(tmp_path, origins_of(DataSettings(**named, **COMMON))) == wanted


@pytest.mark.slow
def test_other_rows_give_other_bits(one_file, tmp_path):
    """Else the tests above could not fail."""
    table, wanted = one_file
    counts = table["count"].to_pylist()
    counts[-1] += 1
    other = table.set_column(table.column_names.index("count"), "count", pa.array(counts))
    found = result(tmp_path, frame_origins(other))
    assert found[0] == wanted[0]
    assert found[1] != wanted[1]
    assert found[4] != wanted[4]
