import datetime

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from fdml.data.frames import FrameTable, arrow_table
from fdml.data.origins import frame_origins
from fdml.data.rows import to_dense, vstack
from fdml.data.sources import open_encoded, open_sources
from fdml.errors import DataError
from fdml.settings.data import DataSettings

ROWS = {
    "user": ["a", "b", "c", "d"],
    "city": ["Paris", None, "Lima", "Paris"],
    "size": [1.5, None, 2.5, 4.0],
    "many": [1, 2, 3, 4],
    "day": [datetime.date(2026, 11, day) for day in (1, 2, 3, 4)],
    "paid": [True, False, True, False],
}
FRAMES = {
    "pandas": lambda rows: pd.DataFrame(rows),
    "pandas with an index": lambda rows: pd.DataFrame(rows, index=[9, 3, 3, 1]),
    "pandas categories": lambda rows: pd.DataFrame(rows).astype({"city": "category"}),
    "polars": lambda rows: pl.DataFrame(rows),
    "polars categories": lambda rows: pl.DataFrame(rows).with_columns(pl.col("city").cast(pl.Categorical)),
    "a record batch": lambda rows: pa.RecordBatch.from_pydict(rows),
    "an Arrow reader": lambda rows: pa.Table.from_pydict(rows).to_reader(),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_every_frame_gives_the_rows_of_an_arrow_table(kind):
    settings = DataSettings(id="user", label="paid")
    (wanted,) = open_sources(settings, origins=frame_origins(pa.table(ROWS)))
    (source,) = open_sources(settings, origins=frame_origins(FRAMES[kind](ROWS)))
    assert source.encoder == wanted.encoder
    assert to_dense(vstack(list(source.chunks()))).tobytes() == to_dense(vstack(list(wanted.chunks()))).tobytes()
    assert source.labels().tolist() == ROWS["paid"]
    assert source.ids().as_objects().tolist() == ROWS["user"]


def test_a_test_frame_is_encoded_as_the_training_frame():
    more = {name: values[:2] for name, values in ROWS.items()}
    train, test = open_sources(
        DataSettings(id="user", label="paid"), origins=frame_origins(pd.DataFrame(ROWS), pd.DataFrame(more))
    )
    whole = to_dense(vstack(list(train.chunks())))
    assert to_dense(vstack(list(test.chunks()))).tobytes() == whole[:2].tobytes()


def test_new_rows_of_a_frame_are_encoded_by_an_encoder_of_before():
    settings = DataSettings(id="user", label="paid")
    (source,) = open_sources(settings, origins=frame_origins(pl.DataFrame(ROWS)))
    (new,) = frame_origins(pl.DataFrame({name: ROWS[name][3:] for name in ROWS if name != "paid"}))
    found = open_encoded(settings, source.encoder, new)
    assert found.labels() is None
    assert to_dense(vstack(list(found.chunks()))).tobytes() == to_dense(vstack(list(source.chunks())))[3:].tobytes()


def test_columns_of_pandas_that_are_numbers_have_names():
    assert FrameTable(pd.DataFrame({0: [1], 1: [2]})).names == ["0", "1"]


def test_two_columns_of_one_name_are_refused():
    with pytest.raises(DataError, match="two columns are named 'a'; rename one"):
        arrow_table(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_mixed_values_are_refused_and_not_shown():
    with pytest.raises(DataError, match="columns of one type each") as raised:
        arrow_table(pd.DataFrame({"a": [1, "HIV-positive", 2.5]}))
    assert "HIV" not in str(raised.value)


@pytest.mark.parametrize("frame", [[[1, 2]], {"a": [1]}, "rows.csv", 7])
def test_what_is_no_frame_is_named(frame):
    with pytest.raises(DataError, match=f"data is a {type(frame).__name__}; give a pandas or polars frame"):
        arrow_table(frame)


def test_an_error_about_a_frame_says_so():
    with pytest.raises(DataError, match="the frame: there is no id column 'usr'; did you mean 'user'"):
        open_sources(DataSettings(id="usr"), origins=frame_origins(pa.table(ROWS)))
