import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.column_features import Hashed, Number, OneHot, bucket_of
from fdml.errors import DataError


def chunked(values, kind=None):
    return pa.chunked_array([pa.array(values, kind)])


def test_the_bucket_of_a_value_never_changes():
    assert [bucket_of("city", value, 1024) for value in ("Paris", "Lima")] == [114, 673]


@given(st.text(), st.integers(1, 100))
def test_a_bucket_is_within_the_size(value, size):
    assert 0 <= bucket_of("city", value, size) < size


def test_hashed_values_fall_into_their_buckets_and_missing_ones_into_none():
    index, values = Hashed("city", 16).entries(chunked(["Paris", None, "", "Lima", "Paris"]))
    paris, lima = bucket_of("city", "Paris", 16), bucket_of("city", "Lima", 16)
    assert index.tolist() == [paris, -1, -1, lima, paris]
    assert set(values.tolist()) == {1.0}


def test_hashed_features_are_named_by_bucket():
    assert Hashed("city", 3).names == ("city#0", "city#1", "city#2")


def test_one_hot_gives_no_feature_for_missing_and_unseen_categories():
    index, _ = OneHot("city", ("Lima", "Paris")).entries(chunked(["Paris", "Oslo", None, "", "Lima"]))
    assert index.tolist() == [1, -1, -1, -1, 0]


@pytest.mark.parametrize(
    "column",
    [
        chunked(["12", "7"]),
        chunked(["12", "7"], pa.large_string()),
        chunked(["12", "7"], pa.string_view()),
        chunked(["12", "7"]).dictionary_encode(),
        chunked([12, 7]),
        chunked([12.0, 7.0]),
        chunked([decimal.Decimal(12), decimal.Decimal(7)]),
        pa.chunked_array([["12"], ["7"]]),
    ],
    ids=lambda column: str(column.type).split("<")[0],
)
def test_a_category_is_the_same_however_it_is_stored(column):
    assert OneHot("code", ("12", "7")).entries(column)[0].tolist() == [0, 1]


@given(st.lists(st.one_of(st.none(), st.text()), min_size=1, max_size=20))
def test_one_hot_finds_every_category_it_was_given(values):
    seen = tuple(sorted({value for value in values if value}))
    index, _ = OneHot("c", seen).entries(chunked(values, pa.string()))
    assert index.tolist() == [seen.index(value) if value else -1 for value in values]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[1, 2]], "list"),
        ([{"a": 1}], "struct"),
    ],
)
def test_a_column_without_an_encoding_names_its_type_and_the_way_out(values, kind):
    with pytest.raises(DataError, match=f"column 'when' holds {kind}.*name it in data.ignore, or convert it"):
        OneHot("when", ()).entries(chunked(values))


def test_bytes_that_are_no_text_point_to_the_encoding():
    with pytest.raises(
        DataError, match=r'column \'city\' holds bytes that are no UTF-8 text; set data.encoding = "latin-1"'
    ):
        OneHot("city", ()).entries(chunked([b"Z\xfcrich"]))


def test_a_date_may_be_a_category():
    index, _ = OneHot("day", ("2020-01-01", "2020-01-02")).entries(chunked([datetime.date(2020, 1, 2), None]))
    assert index.tolist() == [1, -1]


def test_a_number_is_centred_and_scaled():
    index, values = Number("age", None, mean=10.0, deviation=2.0).entries(chunked([12, 8]))
    assert index.tolist() == [0, 0]
    assert values.dtype == np.float32
    assert values.tolist() == [1.0, -1.0]


def test_whole_numbers_beyond_the_precision_of_a_float_are_rounded():
    assert Number("n", None).entries(chunked([2**60 + 1]))[1].tolist() == [2.0**60]


@pytest.mark.parametrize(
    "column", [chunked([1.0, None, None]), chunked([1.0, np.nan, np.nan]), chunked([1, None, None])]
)
def test_a_missing_number_names_column_row_and_way_out(column):
    message = r"column 'age' has no value in data row 2 \(2 such rows\); set data.missing = \"indicator\", "
    with pytest.raises(DataError, match=message):
        Number("age", None).entries(column)


def test_a_missing_number_takes_the_fill():
    assert Number("age", 4.0, mean=2.0).entries(chunked([1.0, None, np.nan]))[1].tolist() == [-1.0, 2.0, 2.0]


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_a_number_that_float32_cannot_hold_is_refused(value):
    with pytest.raises(DataError, match=r"column 'age' is infinite or too large for float32 in data row 2"):
        Number("age", 0.0).entries(chunked([1.0, value]))


def test_a_number_that_scaling_makes_too_large_is_refused():
    with pytest.raises(DataError, match=r"column 'age' is infinite or too large for float32 in data row 1"):
        Number("age", None, deviation=1e-300).entries(chunked([1e30]))


def test_text_where_training_had_numbers_is_refused():
    with pytest.raises(DataError, match="column 'age' held numbers in training but holds string here; correct it"):
        Number("age", None).entries(chunked(["old"]))
