"""Columns encoded for networks and for trees in the same rows, and split again."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from fdml.data.encoding import Encoder, fit
from fdml.data.origins import frame_origins
from fdml.data.readers import load
from fdml.data.rows import (
    NO_NATIVE,
    DenseRows,
    NativeFeatures,
    PointedRows,
    SparseRows,
    as_rows,
    split_features,
    to_dense,
)
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.data.frames import data_settings, tables

FRAME = pa.table({"age": pa.array([30.0, None, 50.0, 7.5]), "city": pa.array(["Paris", "Evora", "", "Paris"])})
COLUMNS = ("age", "city")
X = np.random.default_rng(3).normal(size=(12, 4)).astype(np.float32)


def fitted(encoding, frame=FRAME, **settings):
    return fit([frame], tuple(frame.column_names), DataSettings(path="unused", **settings), encoding)


def test_the_native_features_are_behind_the_numeric_ones():
    both, numeric, native = (fitted(encoding) for encoding in ("both", "numeric", "native"))
    assert both.names == numeric.names + native.names
    assert both.native == NativeFeatures(len(numeric.names), (len(numeric.names) + 1,), both.native.columns)
    assert numeric.native._replace(columns=()) == NO_NATIVE
    assert both.native.columns == numeric.native.columns + native.native.columns
    assert sum(features for _, features in both.native.columns) == len(both.names)
    assert both.columns == COLUMNS
    assert both.text_columns == ("city",)


@given(tables(min_size=2))
def test_split_again_they_are_what_each_encoding_makes_alone(table):
    given = data_settings(scale="none")
    both, numeric, native = (
        fit([table], tuple(table.column_names), given, encoding) for encoding in ("both", "numeric", "native")
    )
    before, behind = split_features(both.encode(table), both.native.first)
    np.testing.assert_array_equal(to_dense(before), to_dense(numeric.encode(table)))
    np.testing.assert_array_equal(to_dense(behind), to_dense(native.encode(table)))


@given(tables(min_size=2))
def test_an_encoder_of_both_comes_back_from_json(table):
    encoder = fit([table], tuple(table.column_names), data_settings(scale="none"), "both")
    again = Encoder.from_json(encoder.to_json())
    assert again == encoder
    assert again.native == encoder.native


def test_an_encoder_of_one_encoding_has_the_text_it_always_had():
    assert "native_from" in fitted("both").to_json()
    assert "native_from" not in fitted("native").to_json() + fitted("numeric").to_json()


def test_a_text_whose_place_is_no_number_is_refused():
    with pytest.raises(DataError, match="native_from"):
        Encoder.from_json(fitted("both").to_json().replace('"native_from": 4', '"native_from": -4'))


def test_a_missing_number_is_filled_for_networks_and_stays_missing_for_trees():
    before, behind = split_features(fitted("both").encode(FRAME), fitted("both").native.first)
    assert np.isfinite(to_dense(before)).all()
    assert np.isnan(to_dense(behind)[1, 0])


def test_many_categories_make_sparse_rows_whose_native_part_is_dense():
    frame = pa.table({"age": np.arange(40.0), "city": [f"c{at}" for at in range(40)]})
    encoder = fitted("both", frame)
    rows = encoder.encode(frame)
    assert isinstance(rows, SparseRows)
    before, behind = split_features(rows, encoder.native.first)
    assert isinstance(before, SparseRows)
    assert isinstance(behind, DenseRows)
    assert behind.values[:, 0].tolist() == list(range(40))
    assert sorted(behind.values[:, 1].tolist()) == list(range(40))


def test_a_loaded_table_keeps_what_it_knows_when_rows_are_taken():
    found = load(DataSettings(), origins=frame_origins(FRAME), encoding="both").train
    assert found.native == fitted("both").native
    assert found.take(np.array([0, 2])).native == found.native


def test_features_are_all_of_them_where_no_place_is_known():
    rows = as_rows(X)
    assert split_features(rows, 0) == (rows, rows)


@pytest.mark.parametrize("first", [1, 3, 4])
def test_rows_that_point_to_stored_ones_still_do(first):
    pointed = PointedRows(as_rows(X), np.array([2, -1, 0]))
    before, behind = split_features(pointed, first)
    assert isinstance(before, PointedRows)
    assert isinstance(behind, PointedRows)
    np.testing.assert_array_equal(to_dense(before), X[[2, -1, 0], :first])
    np.testing.assert_array_equal(to_dense(behind), X[[2, -1, 0], first:])
