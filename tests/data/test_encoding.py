import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.encoding import fit
from fdml.data.rows import DenseRows, SparseRows, to_dense
from fdml.errors import DataError
from fdml.settings.data import DataSettings


def fitted(frame, **settings):
    return fit([frame], tuple(frame.column_names), DataSettings(path="unused", **settings))


def encoded(frame, **settings):
    return to_dense(fitted(frame, **settings).encode(frame))


def test_categories_become_features_in_sorted_order():
    frame = pa.table({"city": ["Paris", "Lima", "Paris"]})
    assert fitted(frame).names == ("city=Lima", "city=Paris")
    assert encoded(frame).tolist() == [[0, 1], [1, 0], [0, 1]]


def test_a_category_unseen_in_training_gives_no_feature():
    encoder = fitted(pa.table({"city": ["Paris", "Lima"]}))
    assert to_dense(encoder.encode(pa.table({"city": ["Oslo", None, "Lima"]}))).tolist() == [[0, 0], [0, 0], [1, 0]]


def test_a_missing_category_is_not_a_category_but_a_question_mark_is():
    assert fitted(pa.table({"city": ["?", None, ""]})).names == ("city=?",)


def test_bool_and_dictionary_columns_are_categories():
    frame = pa.table({"paid": [True, False], "code": pa.array([7, 5]).dictionary_encode()})
    assert fitted(frame).names == ("paid=false", "paid=true", "code=5", "code=7")


def test_a_column_of_codes_is_categorical_where_it_is_named():
    frame = pa.table({"code": [7, 12, None]})
    assert fitted(frame, categorical="code").names == ("code=12", "code=7")


def test_a_hashed_column_has_the_hash_size_and_goes_before_categorical():
    frame = pa.table({"city": ["Paris", "Lima"]})
    encoder = fitted(frame, hashed="city", categorical="city", hash_size=8)
    assert encoder.names == tuple(f"city#{bucket}" for bucket in range(8))
    assert to_dense(encoder.encode(frame)).sum(axis=1).tolist() == [1, 1]


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30).filter(lambda values: np.std(values) > 1e-3))
def test_standard_numbers_have_mean_0_and_variance_1_in_training(values):
    scaled = encoded(pa.table({"x": values})).astype(np.float64)
    assert scaled.mean() == pytest.approx(0, abs=1e-5)
    assert scaled.var() == pytest.approx(1, rel=1e-4)


def test_test_rows_are_scaled_with_the_statistics_of_training():
    encoder = fitted(pa.table({"x": [0.0, 4.0]}))
    assert to_dense(encoder.encode(pa.table({"x": [2.0, 8]}))).tolist() == [[0], [3]]


def test_a_constant_column_is_only_centred():
    encoder = fitted(pa.table({"x": [0.1] * 3}))
    assert to_dense(encoder.encode(pa.table({"x": [0.1, 1.1]}))).tolist() == [[0], [1]]


def test_numbers_stay_as_they_are_without_scaling():
    assert encoded(pa.table({"x": [1, 5]}), scale="none").tolist() == [[1], [5]]


@pytest.mark.parametrize(("rule", "expected"), [("mean", [3, 3, 5, 1]), ("zero", [0, 0, 5, 1])])
def test_a_missing_number_becomes_the_mean_or_zero(rule, expected):
    frame = pa.table({"x": [None, np.nan, 5.0, 1.0]})
    assert encoded(frame, missing=rule, scale="none").ravel().tolist() == expected


@pytest.mark.parametrize("rule", ["mean", "zero"])
def test_missing_numbers_are_filled_before_scaling(rule):
    scaled = encoded(pa.table({"x": [None, 5.0, 1.0]}), missing=rule)
    assert scaled.mean() == pytest.approx(0, abs=1e-6)
    assert scaled.var() == pytest.approx(1)


def test_the_mean_that_fills_a_test_row_is_the_mean_of_training():
    encoder = fitted(pa.table({"x": [2.0, 4.0]}), missing="mean", scale="none")
    assert to_dense(encoder.encode(pa.table({"x": [None, 100.0]}))).tolist() == [[3], [100]]


def test_a_missing_number_can_be_an_error():
    with pytest.raises(DataError, match="column 'x' has no value in data row 2"):
        fitted(pa.table({"x": [1.0, None]}), missing="error")


def test_a_missing_number_becomes_the_mean_and_has_an_indicator_beside_it():
    encoder = fitted(pa.table({"x": [1.0, None, 3.0], "y": [1.0, 2.0, 3.0]}))
    assert encoder.names == ("x", "x is missing", "y")
    assert encoder.columns == ("x", "y")
    rows = to_dense(encoder.encode(pa.table({"x": [2.0, None], "y": [2.0, None]})))
    assert rows.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_without_missing_numbers_in_training_there_is_no_indicator():
    whole = pa.table({"x": [1.0, 2.0, 4.0]})
    assert fitted(whole).names == ("x",)
    assert encoded(whole).tobytes() == encoded(whole, missing="error").tobytes()


@pytest.mark.parametrize(("more", "fill"), [({"scale": "none"}, 0.0), ({"ranges": {"x": (10, 30)}}, 0.0)])
def test_what_an_indicated_number_becomes_follows_from_settings_where_scaling_does(more, fill):
    rows = encoded(pa.table({"x": [11.0, None, 19.0]}), **more)
    assert rows[1].tolist() == [fill, 1.0]


@pytest.mark.parametrize("rule", ["indicator", "error", "mean", "zero"])
def test_an_infinite_number_is_always_an_error(rule):
    with pytest.raises(DataError, match="column 'x' is infinite or too large for float32 in data row 1"):
        fitted(pa.table({"x": [np.inf, 1.0]}), missing=rule)


def test_an_empty_column_counts_as_missing_numbers():
    empty = pa.table({"x": pa.nulls(2)})
    assert encoded(empty, missing="mean").tolist() == [[0], [0]]
    assert encoded(empty).tolist() == [[0], [0]]  # an indicator would be 1 in every row
    with pytest.raises(DataError, match=r"column 'x' has no value in data row 1 \(2 such rows\)"):
        fitted(empty, missing="error")


@pytest.mark.parametrize(("cities", "kind"), [(3, DenseRows), (4, SparseRows)])
def test_rows_are_sparse_where_a_quarter_of_the_features_or_less_can_be_non_zero(cities, kind):
    frame = pa.table({"city": [str(city) for city in range(cities)]})
    encoder = fitted(frame)
    assert isinstance(encoder.encode(frame), kind)
    assert isinstance(encoder.encode(frame.slice(0, 1)), kind)
    assert to_dense(encoder.encode(frame)).tolist() == np.eye(cities).tolist()


def test_sparse_rows_hold_numbers_beside_categories():
    frame = pa.table({"a": [str(value) for value in range(8)], "x": [0, 1, 2, 3, 4, 5, 6, 7], "b": ["u"] * 8})
    rows = fitted(frame, scale="none").encode(frame.slice(0, 2))
    assert isinstance(rows, DenseRows)
    wide = fitted(frame, scale="none", hashed="b", hash_size=16)
    rows = wide.encode(frame.slice(0, 2))
    assert isinstance(rows, SparseRows)
    assert (rows.indptr.dtype, rows.indices.dtype, rows.values.dtype) == (np.int64, np.int32, np.float32)
    assert rows.indptr.tolist() == [0, 2, 5]  # x is 0 in the first row and not stored
    assert np.diff(rows.indices[2:]).min() > 0
    assert rows.values.tolist() == [1, 1, 1, 1, 1]


def test_no_columns_give_rows_without_features():
    encoder = fit([pa.table({"x": [1, 2]})], (), DataSettings(path="unused"))
    assert to_dense(encoder.encode(pa.table({"x": [1, 2]}))).shape == (2, 0)
