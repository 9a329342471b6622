"""Random tables of every kind of column, for property tests."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa
from hypothesis import strategies as st

from fdml.settings.data import DataSettings

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6) | st.sampled_from(
    ["", "?", "é", "01", "1.0", "NaN"]
)
"""Words, and what is easily taken for something else."""
numbers = st.floats(-1e30, 1e30) | st.sampled_from([0.0, -0.0, 1e-300, 0.1, float("nan")])
COLUMNS = {
    "number": (st.none() | numbers, pa.float64()),
    "small": (st.none() | st.floats(-1e3, 1e3, width=32) | st.just(float("nan")), pa.float32()),
    "count": (st.none() | st.integers(-(2**63), 2**63 - 1), pa.int64()),
    "word": (st.none() | texts, pa.string()),
    "paid": (st.none() | st.booleans(), pa.bool_()),
    "code": (st.none() | st.integers(-5, 300), pa.int16()),
    "share code": (st.none() | st.sampled_from([0.1, 1.0, 1e20, -2.5, float("nan")]), pa.float64()),
    "city": (st.none() | texts, pa.dictionary(pa.int32(), pa.string())),
    "bucket": (st.none() | texts, pa.large_string()),
    "age": (st.none() | st.integers(-50, 250), pa.int32()),
    "day": (st.none() | st.dates(), pa.date32()),
    "moment": (st.none() | st.datetimes(), pa.timestamp("us", "UTC")),
    "clock": (st.none() | st.times(), pa.time64("us")),
    "span": (st.none() | st.timedeltas(timedelta(-(10**5)), timedelta(10**5)), pa.duration("us")),
    "birthday": (st.none() | st.dates(), pa.date32()),
    "colour": (st.none() | st.sampled_from(["red", "blue", "green"]), pa.string()),
}
"""The values of each column and their type."""


@st.composite
def tables(draw, columns=tuple(COLUMNS), min_size=1):
    """A table of these columns; the values of one row have nothing to do with each other."""
    size = draw(st.integers(min_size, 8))
    return pa.table(
        {
            name: pa.array(draw(st.lists(COLUMNS[name][0], min_size=size, max_size=size)), COLUMNS[name][1])
            for name in columns
        }
    )


def data_settings(missing="mean", scale="standard", hash_size=16):
    """Settings for a table of all columns."""
    return DataSettings(
        path="unused",
        categorical=("code", "share code"),
        hashed="bucket",
        hash_size=hash_size,
        missing=missing,
        scale=scale,
        ranges={"age": (0.0, 120.0), "birthday": (-10_000.0, 20_000.0)},
        categories={"colour": ("red", "blue")},
    )
