import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.partition import column_halves, halves, parse_groups, partition
from fdml.data.rows import SparseRows, as_rows, to_dense
from fdml.data.table import Table
from fdml.errors import DataError

NAMES = ("age", "city=Lima", "city=Paris", "shop#0", "shop#1", "gain<=0", "gain>0")
MATRIX = np.arange(14, dtype=np.float32).reshape(2, 7)


@pytest.fixture
def table():
    return Table(as_rows(MATRIX), NAMES, np.array(["a", "b"], object), np.array([0, 1]), np.array([1.0, 2.0]))


def test_each_party_gets_its_features_and_their_names(table):
    first, second = partition(table, [range(2), [6, 3]])
    assert (first.names, second.names) == (NAMES[:2], ("gain>0", "shop#0"))
    np.testing.assert_array_equal(to_dense(second.rows), MATRIX[:, [6, 3]])


def test_all_keep_the_ids_and_only_the_first_the_labels_and_weights(table):
    first, *others = partition(table, [[0], [1], [2]])
    assert (first.labels.tolist(), first.weights.tolist()) == ([0, 1], [1, 2])
    for part in others:
        assert (part.labels, part.weights) == (None, None)
    assert all(part.ids.tolist() == ["a", "b"] for part in (first, *others))


def test_sparse_rows_stay_sparse():
    sparse = Table(as_rows(sp.csr_array(MATRIX)), NAMES)
    (part,) = partition(sparse, [np.array([6, 1])])
    assert isinstance(part.rows, SparseRows)
    np.testing.assert_array_equal(to_dense(part.rows), MATRIX[:, [6, 1]])


def test_parties_may_share_a_feature(table):
    assert [part.names for part in partition(table, [[0, 1], [1]])] == [NAMES[:2], NAMES[1:2]]


def test_a_name_is_a_feature_or_the_column_it_was_made_of(table):
    parts = partition(table, [["city"], ["shop", "age"], ["gain"], ["city=Paris"]])
    assert [part.names for part in parts] == [NAMES[1:3], ("shop#0", "shop#1", "age"), NAMES[5:], ("city=Paris",)]


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "there are no groups; give at least one"),
        ([[0], []], "group 2 has no features; give it some, or leave it out"),
        ([[0], [1, 7]], "group 2: there is no feature 7; the numbers go from 0 to 6"),
        ([[-1]], "group 1: there is no feature -1"),
        ([["ctiy"]], "there is no feature or column 'ctiy'"),
        ([["ages"]], "there is no feature or column 'ages'; did you mean 'age'"),
        ([["cit"]], "there is no feature or column 'cit'"),
        ([[0, 0]], "group 1 has feature 'age' twice; name it once"),
        ([["city", 1]], "group 1 has feature 'city=Lima' twice"),
        (["age"], r"group 1 is 'age'; write a list of features, \['age'\]"),
        ([0, 1], r"group 1 is 0; write a list of features, \[0\]"),
        ([[0.5]], "group 1: 0.5 is neither the number nor the name of a feature"),
    ],
)
def test_a_group_that_cannot_be_is_named(table, groups, message):
    with pytest.raises(DataError, match=message):
        partition(table, groups)


@given(st.integers(2, 200))
def test_halves_cover_all_features_and_differ_by_one_at_most(width):
    first, second = halves(width)
    assert [*first, *second] == list(range(width))
    assert len(first) - len(second) in (0, 1)


def test_one_feature_makes_one_group():
    assert halves(1) == [range(1)]


def test_columns_cut_in_two_keep_all_features_of_a_column_together():
    names = ["id=a", "id=b", "id=c", "id=d", "age", "city=Paris", "city=Rome", "joined days", "joined is missing"]
    assert column_halves(names) == [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    assert column_halves(["1", "2", "3"]) == [[0, 1], [2]]
    assert column_halves(["city=Paris", "city=Rome"]) == [[0, 1]], "nothing to cut"


def test_no_features_cannot_be_cut():
    with pytest.raises(DataError, match="0 features cannot be cut into groups; give at least one"):
        halves(0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1-2;3-7", [[0, 1], [2, 3, 4, 5, 6]]),
        ("age, 7 ; city", [[0, 6], [1, 2]]),
        ("shop;gain,city=Lima", [[3, 4], [5, 6, 1]]),
        ("2 - 3, 1,", [[1, 2, 0]]),
        ("1;1", [[0], [0]]),
    ],
)
def test_groups_are_read_from_text(text, expected):
    assert parse_groups(text, NAMES) == expected


def test_a_name_goes_before_a_number():
    assert parse_groups("2;1-3", ["2", "b", "1-3"]) == [[0], [2]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "group 1 has no features"),
        ("1;;2", "group 2 has no features"),
        ("0", "group 1: '0' is not within the features 1-7"),
        ("1;2-8", "group 2: '2-8' is not within the features 1-7"),
        ("5-3", "group 1: '5-3' is not within the features 1-7"),
        ("cit=Lima", "there is no feature or column 'cit=Lima'; did you mean 'city=Lima'"),
        ("1-3,2", "group 1 has feature 'city=Lima' twice"),
    ],
)
def test_text_that_is_no_group_is_explained(text, message):
    with pytest.raises(DataError, match=message):
        parse_groups(text, NAMES)


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, unique=True), min_size=1))
def test_numbers_written_out_are_read_back(groups):
    text = ";".join(",".join(str(column + 1) for column in group) for group in groups)
    assert parse_groups(text, [f"f{number}" for number in range(31)]) == groups
