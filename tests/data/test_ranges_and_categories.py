"""Columns whose encoding follows from settings: ranges of numbers, and lists of categories."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.column_features import NumberInRange, OneHot
from fdml.data.encoding import Encoder, fit
from fdml.data.readers import load
from fdml.data.rows import to_dense
from fdml.data.sources import open_encoded, open_sources
from fdml.errors import DataError, SettingsError
from fdml.settings.data import DataSettings


def settings(**values):
    return DataSettings(path="unused", **values)


def encoded(table, **values):
    encoder = fit([pa.table(table)], tuple(table), settings(**values))
    return to_dense(encoder.encode(pa.table(table))), encoder


def test_a_range_is_scaled_to_its_ends_and_cut_beyond_them():
    found, encoder = encoded({"age": [0, 30, 60, 120, 500, -7]}, ranges={"age": (0, 120)})
    np.testing.assert_allclose(found[:, 0], [-1.0, -0.5, 0.0, 1.0, 1.0, -1.0])
    assert encoder.features == (NumberInRange("age", 60.0, 0.0, 120.0),)
    assert encoder.names == ("age",)


@given(st.lists(st.floats(-1e30, 1e30), min_size=1, max_size=8), st.floats(-1e6, 1e6), st.floats(1e-3, 1e9))
def test_whatever_the_rows_are_a_range_keeps_them_within_1(values, low, wide):
    found, _ = encoded({"x": values}, ranges={"x": (low, low + wide)})
    assert (np.abs(found) <= 1.0).all()


@pytest.mark.parametrize(("missing", "fill"), [("zero", -1.0), ("mean", 0.0)])
def test_a_missing_number_is_filled_before_it_is_scaled(missing, fill):
    found, _ = encoded({"age": [0.0, None, 120.0]}, ranges={"age": (0, 120)}, missing=missing)
    assert found[1, 0] == fill


def test_a_missing_number_in_a_range_is_an_error_if_it_is_anywhere():
    with pytest.raises(DataError, match="column 'age' has no value in data row 2"):
        encoded({"age": [0.0, None]}, ranges={"age": (0, 120)}, missing="error")


def test_listed_categories_have_a_feature_each_in_the_order_of_the_list():
    found, encoder = encoded({"colour": ["red", "pink", None, "blue"]}, categories={"colour": ["red", "green", "blue"]})
    assert encoder.names == ("colour=red", "colour=green", "colour=blue")
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]])
    assert encoder.features == (OneHot("colour", ("red", "green", "blue"), "text"),)


def test_codes_that_are_numbers_are_listed_as_text(tmp_path):
    (tmp_path / "rows.csv").write_text("code\n1\n02\n3\n")
    pa.parquet.write_table(pa.table({"code": [1, 2, 3]}), tmp_path / "rows.parquet")
    for name, second in (("rows.csv", 0.0), ("rows.parquet", 1.0)):
        rows = load(DataSettings(path=tmp_path / name, categories={"code": ["1", "2"]})).train.rows
        np.testing.assert_array_equal(to_dense(rows), [[1, 0], [0, second], [0, 0]])


def test_new_rows_are_encoded_as_those_of_training(tmp_path):
    (tmp_path / "old.csv").write_text("age,code\n30,1\n40,2\n")
    (tmp_path / "new.csv").write_text("age,code\n400,2\n")
    given = DataSettings(path=tmp_path / "old.csv", ranges={"age": (0, 100)}, categories={"code": ["2"]})
    encoder = Encoder.from_json(open_sources(given)[0].encoder.to_json())
    (rows,) = open_encoded(DataSettings(path=tmp_path / "new.csv"), encoder).chunks()
    np.testing.assert_array_equal(to_dense(rows), [[1.0, 1.0]])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ranges": {"age": (5, 5)}}, r"data.ranges of column 'age' is \[5, 5\]; give the lower end first"),
        ({"ranges": {"age": (9, 5)}}, r"data.ranges of column 'age' is \[9, 5\]"),
        ({"ranges": {"age": (0, float("inf"))}}, "setting 'ranges'"),
        ({"ranges": {"age": (1,)}}, "setting 'ranges'"),
        ({"categories": {"colour": []}}, "setting 'categories'"),
        ({"categories": {"colour": ["red", "red"]}}, "data.categories of column 'colour' lists one twice"),
        ({"ranges": {"age": (0, 1)}, "categorical": "age"}, "column 'age' has data.ranges, but is categorical"),
        ({"ranges": {"age": (0, 1)}, "categories": {"age": "1"}}, "column 'age' has data.ranges, but is categorical"),
        ({"categories": {"age": "1"}, "hashed": "age"}, "column 'age' is in data.categories and in data.hashed"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(SettingsError, match=message):
        settings(**wrong)


@pytest.mark.parametrize("setting", [{"ranges": {"size": (0, 1)}}, {"categories": {"size": ["small"]}}])
def test_a_column_that_is_not_there_is_named(tmp_path, setting):
    (tmp_path / "rows.csv").write_text("age\n30\n")
    with pytest.raises(DataError, match="no column 'size'"):
        open_sources(DataSettings(path=tmp_path / "rows.csv", **setting))


def test_a_file_without_named_columns_takes_neither(tmp_path):
    np.save(tmp_path / "rows.npy", np.eye(2))
    with pytest.raises(DataError, match=r"data.ranges names a column, but a numpy file has no named columns"):
        open_sources(DataSettings(path=tmp_path / "rows.npy", ranges={"1": (0, 1)}))
