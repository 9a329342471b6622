import datetime
import decimal

import numpy as np
import pyarrow as pa
import pytest

from fdml.data.column_types import groups_of, labels_of, missing, repeated, weights_of
from fdml.errors import DataError, LabelError


def test_missing_is_null_or_nan_or_empty_text():
    assert missing(pa.array([1.0, None, float("nan")])).tolist() == [False, True, True]
    assert missing(pa.array(["a", None, "", "NA", "?"])).tolist() == [False, True, True, False, False]
    assert missing(pa.array([1, None])).tolist() == [False, True]
    assert missing(pa.chunked_array([[True], [None]])).tolist() == [False, True]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([0, 1]), np.array([0, 1])),
        (pa.array([0.5, -1.0]), np.array([0.5, -1.0])),
        (pa.array([True, False]), np.array([True, False])),
        (pa.array([">50K", "<=50K"]), np.array([">50K", "<=50K"])),
        (pa.array(["b", "a"]).dictionary_encode(), np.array(["b", "a"])),
        (pa.array(["b", "a"], pa.string_view()), np.array(["b", "a"])),
        (pa.array([decimal.Decimal("1.5")]), np.array([1.5])),
    ],
)
def test_labels_stay_as_the_file_has_them(column, expected):
    labels = labels_of("y", column)
    assert labels.dtype == expected.dtype
    np.testing.assert_array_equal(labels, expected)


@pytest.mark.parametrize("values", [[1, None], [1.0, float("nan")], ["a", ""]])
def test_a_missing_label_is_refused(values):
    with pytest.raises(LabelError, match=r"label column 'y' has no value in data row 2 \(1 such rows\)"):
        labels_of("y", pa.array(values))


def test_an_infinite_label_is_refused():
    with pytest.raises(LabelError, match="label column 'y' is no finite number in data row 2; correct or leave out"):
        labels_of("y", pa.array([1.0, -np.inf]))


def test_a_date_is_no_label():
    with pytest.raises(LabelError, match=r"label column 'y' holds date32\[day\]; labels are numbers, text or"):
        labels_of("y", pa.array([datetime.date(2020, 1, 1)]))


@pytest.mark.parametrize("values", [["b", "a", "b", "c"], [7, 5, 7, 9], [0.5, 0.25, 0.5, 1.0]])
def test_rows_of_the_same_value_are_one_group(values):
    found = groups_of("query", pa.chunked_array([pa.array(values[:1]), pa.array(values[1:])]))
    assert found.dtype == np.int64
    assert found.tolist() == [0, 1, 0, 2]


def test_a_row_without_a_group_is_refused_with_its_number():
    with pytest.raises(DataError, match="group column 'query' has no value in data row 2"):
        groups_of("query", pa.array(["a", None]))


def test_weights_are_float64():
    weights = weights_of("w", pa.array([1, 0, 3]))
    assert weights.dtype == np.float64
    assert weights.tolist() == [1.0, 0.0, 3.0]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.0, -0.5], "weight column 'w' is no finite number, zero or more, in data row 2; correct it"),
        ([1.0, np.inf], "weight column 'w' is no finite number, zero or more, in data row 2"),
        ([np.nan, 1.0], "weight column 'w' has no value in data row 1"),
        ([0.0, 0.0], "weight column 'w' is zero in every row; give some row a weight above zero"),
        (["a", "b"], "weight column 'w' holds string; weights are numbers"),
    ],
)
def test_weights_that_cannot_weigh_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        weights_of("w", pa.array(values))


def test_the_first_name_that_occurs_twice_is_found():
    assert repeated(["a", "b", "c", "b", "a"]) == "b"
    assert repeated(["a", "b"]) is None
