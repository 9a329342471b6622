"""Rows for trees: a feature for each column, categories by their numbers, NaN where a value is missing."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.encoders import native_of
from fdml.data.encoding import Encoder, fit
from fdml.data.matrix_encoding import MatrixEncoder
from fdml.data.native_features import NATIVE, BucketNumber, CategoryNumber, PlainNumber, is_category, native_features
from fdml.data.origins import frame_origins
from fdml.data.readers import load
from fdml.data.rows import DenseRows, NativeFeatures
from fdml.data.samples.adult_parties import adult_parties
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.data.frames import data_settings, tables

FRAME = pa.table(
    {
        "age": pa.array([30.0, None, 50.0, 7.5]),
        "city": pa.array(["Paris", "Evora", "", "Paris"]),
        "day": pa.array([0, 1, None, 31], pa.date32()),
        "code": pa.array([3, 5, None, 3]),
    }
)
NEW = pa.table(
    {
        "age": pa.array([1.0]),
        "city": pa.array(["Rome"]),
        "day": pa.array([4], pa.date32()),
        "code": pa.array([5]),
    }
)


def native(frame=FRAME, **settings):
    given = DataSettings(path="unused", categorical=("code",), **settings)
    return fit([frame], tuple(frame.column_names), given, "native")


def dense(encoder, frame):
    rows = encoder.encode(frame)
    assert isinstance(rows, DenseRows)
    return rows.values


def test_columns_are_features_as_they_are():
    encoder = native()
    assert encoder.names == ("age", "city", "day days", "day month", "day weekday", "code")
    nan = np.nan
    np.testing.assert_array_equal(
        dense(encoder, FRAME),
        [[30, 1, 0, 0, 3, 0], [nan, 0, 1, 0, 4, 1], [50, nan, nan, nan, nan, nan], [7.5, 1, 31, 1, 6, 0]],
    )


def test_the_places_of_categories_are_known_and_parts_of_dates_are_none():
    assert native().native.categories == (1, 5)
    numeric = fit([FRAME], tuple(FRAME.column_names), DataSettings(path="unused"))
    assert numeric.native.categories == ()


def test_a_category_that_was_not_seen_is_missing():
    np.testing.assert_array_equal(dense(native(), NEW), [[1, np.nan, 4, 0, 0, 1]])


@pytest.mark.parametrize("rule", ["indicator", "mean", "zero"])
def test_a_missing_number_stays_missing_whatever_would_be_filled_in(rule):
    encoder = native(missing=rule)
    assert np.isnan(dense(encoder, FRAME)[1, 0])
    assert not any("is missing" in name for name in encoder.names)


def test_a_missing_number_is_an_error_where_that_is_asked_for():
    with pytest.raises(DataError, match="'age' has no value in data row 2"):
        native(missing="error")
    whole = FRAME.slice(0, 1)
    with pytest.raises(DataError, match="'age' has no value in data row 12"):
        native(whole, missing="error").encode(FRAME, 10)


def test_a_hashed_column_is_the_number_of_its_bucket():
    frame = pa.table({"name": pa.array(["a", "b", None])})
    given = DataSettings(path="unused", hashed="name", hash_size=64)
    encoder = fit([frame], ("name",), given, "native")
    values = dense(encoder, frame)[:, 0]
    assert encoder.native.categories == (0,)
    assert 0 <= values[0] < 64
    assert np.isnan(values[2])


@given(tables(min_size=2), st.sampled_from(["mean", "indicator"]))
def test_every_column_gives_native_features_that_come_back_from_json(table, rule):
    given = data_settings(scale="none", missing=rule)
    encoder = fit([table], tuple(table.column_names), given, "native")
    assert Encoder.from_json(encoder.to_json()) == encoder
    assert all(len(feature.names) == 1 for feature in encoder.features)
    values, again = dense(encoder, table), dense(Encoder.from_json(encoder.to_json()), table)
    assert values.shape == (len(table), len(encoder.names))
    assert values.tobytes() == again.tobytes()
    assert np.isfinite(values[~np.isnan(values)]).all()


@given(tables(min_size=2), st.integers(0, 8))
def test_rows_are_encoded_the_same_together_and_apart(table, cut):
    encoder = fit([table], tuple(table.column_names), data_settings(scale="none"), "native")
    whole = dense(encoder, table)
    parts = [dense(encoder, table.slice(0, cut)), dense(encoder, table.slice(cut))]
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_features_that_are_native_already_or_have_a_range_stay():
    known = (PlainNumber("a", 0.0), CategoryNumber("b", ("x",)), BucketNumber("c", 4))
    assert native_features(known) == known
    assert [is_category(each) for each in known] == [False, True, True]
    assert len({each.kind for each in NATIVE}) == len(NATIVE)


def test_a_loaded_table_knows_its_categories_and_keeps_them_when_rows_are_taken():
    found = load(DataSettings(categorical=("code",)), origins=frame_origins(FRAME), encoding="native").train
    assert found.native.categories == (1, 5)
    assert found.take(np.array([0, 2])).native.categories == (1, 5)
    assert load(DataSettings(), origins=frame_origins(FRAME)).train.native.categories == ()


def test_an_encoder_of_a_matrix_has_no_categories():
    assert native_of(MatrixEncoder(2, (0.0, 0.0), 1, ())) == NativeFeatures()
    found = native_of(native())
    assert found == NativeFeatures(0, (1, 5), found.columns)
    assert tuple(dict.fromkeys(column for column, _ in found.columns)) == native().columns


def test_a_sample_data_set_is_encoded_either_way():
    few = adult_parties().first(60, seed=1)
    numeric, trees = few.encoded(), few.encoded("native")
    assert trees["store"].train.names == ("age", "workclass", "education", "education-num")
    assert trees["store"].train.native.categories == (1, 2)
    assert len(numeric["store"].train.names) > len(trees["store"].train.names)
    assert numeric["store"].train.ids.tolist() == trees["store"].train.ids.tolist()


def test_times_are_hours_and_days_with_a_fraction_and_nothing_is_scaled():
    noon = 12 * 3600
    frame = pa.table(
        {
            "at": pa.array([noon, None, 86400 + 6 * 3600], pa.timestamp("s")),
            "clock": pa.array([noon + 1800, 0, None], pa.time32("s")),
            "took": pa.array([None, 86400, noon], pa.duration("s")),
        }
    )
    encoder = fit([frame], tuple(frame.column_names), DataSettings(path="unused"), "native")
    assert encoder.names[:4] == ("at days", "at month", "at weekday", "at hour")
    assert encoder.names[4:] == ("clock hours", "clock hour", "took days")
    nan = np.nan
    expected = [[0.5, 0, 3, 12, 12.5, 12, nan], [nan, nan, nan, nan, 0, 0, 1], [1.25, 0, 4, 6, nan, nan, 0.5]]
    np.testing.assert_array_equal(dense(encoder, frame), expected)
    assert encoder.native.categories == ()


@pytest.mark.parametrize("number", [0.1, 1e-30, -123456.789, 3e38])
def test_a_number_is_its_nearest_float_whatever_the_others_are(number):
    frame = pa.table({"x": pa.array([number, 1e6, -5.0])})
    assert dense(fit([frame], ("x",), DataSettings(path="unused"), "native"), frame)[0, 0] == np.float32(number)
