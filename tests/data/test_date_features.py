import datetime

import numpy as np
import pyarrow as pa
import pytest

from fdml.data.column_types import is_temporal
from fdml.data.date_features import DateNumber, DatePart, since
from fdml.data.encoding import Encoder, fit
from fdml.data.rows import to_dense
from fdml.errors import DataError
from fdml.settings.data import DataSettings

DAY = datetime.date(2026, 11, 15)
"""A Sunday."""


def fitted(values, kind=None, **settings):
    table = pa.table({"t": pa.array(values, kind)})
    return fit([table], ("t",), DataSettings(**settings)), table


def on(encoder, values, kind):
    """The features that are not zero, by name."""
    (row,) = to_dense(encoder.encode(pa.table({"t": pa.array(values, kind)})))
    return {name: float(value) for name, value in zip(encoder.names, row, strict=True) if value}


def test_a_date_is_days_month_and_weekday():
    encoder, _ = fitted([DAY, datetime.date(1970, 1, 2)], scale="none")
    assert len(encoder.names) == 1 + 12 + 7
    assert encoder.columns == ("t",)
    assert on(encoder, [DAY], pa.date32()) == {"t days": 20772.0, "t month=11": 1.0, "t weekday=Sunday": 1.0}
    assert on(encoder, [DAY], pa.date64()) == on(encoder, [DAY], pa.date32())


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_has_a_fraction_of_a_day_and_an_hour(unit):
    noon = datetime.datetime(1970, 1, 11, 12)
    encoder, _ = fitted([noon], pa.timestamp(unit), scale="none")
    wanted = {"t days": 10.5, "t month=1": 1.0, "t weekday=Sunday": 1.0, "t hour=12": 1.0}
    assert on(encoder, [noon], pa.timestamp(unit)) == wanted


def test_time_zones_are_those_of_utc():
    moment = datetime.datetime(2026, 11, 15, 23, 30, tzinfo=datetime.UTC)
    encoder, _ = fitted([moment], pa.timestamp("us", "UTC"), scale="none")
    found = on(encoder, [moment], pa.timestamp("us", "Asia/Tokyo"))
    assert found == on(encoder, [moment], pa.timestamp("us", "UTC"))
    assert {"t weekday=Sunday", "t hour=23"} <= set(found)


@pytest.mark.parametrize("kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")])
def test_a_time_of_day_is_hours_and_an_hour(kind):
    encoder, _ = fitted([datetime.time(7, 30)], kind, scale="none")
    assert on(encoder, [datetime.time(7, 30)], kind) == {"t hours": 7.5, "t hour=7": 1.0}


def test_a_duration_is_days():
    encoder, _ = fitted([datetime.timedelta(days=2, hours=12)], pa.duration("ms"), scale="none")
    assert on(encoder, [datetime.timedelta(hours=6)], pa.duration("ms")) == {"t days": 0.25}


def test_days_are_scaled_as_numbers_are():
    encoder, table = fitted([datetime.date(2020, 1, 1), datetime.date(2020, 1, 3)])
    assert to_dense(encoder.encode(table))[:, 0].tolist() == [-1.0, 1.0]


def test_a_range_of_days_is_scaled_by_it():
    encoder, table = fitted([datetime.date(1970, 1, 1), datetime.date(1970, 1, 11)], ranges={"t": (0, 20)})
    assert to_dense(encoder.encode(table))[:, 0].tolist() == [-1.0, 0.0]


def test_a_missing_date_is_the_mean_has_an_indicator_and_no_part():
    encoder, _ = fitted([datetime.date(2020, 1, 1), None, datetime.date(2020, 3, 1)])
    assert on(encoder, [None], pa.date32()) == {"t is missing": 1.0}
    with pytest.raises(DataError, match="column 't' has no value in data row 2"):
        fitted([DAY, None], missing="error")


def test_dates_named_in_categorical_are_categories():
    encoder, _ = fitted([DAY, datetime.date(2020, 1, 1)], categorical="t")
    assert encoder.names == ("t=2020-01-01", "t=2026-11-15")


def test_an_encoder_of_dates_takes_timestamps_too():
    encoder, _ = fitted([DAY], pa.date32())
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert on(again, [datetime.datetime(2026, 11, 15)], pa.timestamp("s"))["t month=11"] == 1.0


def test_text_where_training_had_dates_is_refused():
    for feature in (DateNumber("t", "days", None), DatePart("t", "month")):
        with pytest.raises(DataError, match="column 't' held dates in training but holds string here"):
            feature.entries(pa.chunked_array([["15.11.2026"]]))


def test_numbers_since_keep_what_is_missing():
    found = since("t", pa.array([DAY, None]))
    assert found.to_pylist() == [20772.0, None]
    assert np.isnan(found.to_numpy(zero_copy_only=False)[1])
    assert [is_temporal(kind) for kind in (pa.date32(), pa.time32("s"), pa.duration("s"), pa.int64())] == [True] * 3 + [
        False
    ]
