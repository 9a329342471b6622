import numpy as np
import pytest

from fdml.data.rows import as_rows, to_dense
from fdml.data.table import PartyData, Table
from fdml.errors import DataError

ROWS = as_rows(np.arange(6).reshape(3, 2))


def test_taking_rows_takes_ids_labels_and_weights_along():
    table = Table(ROWS, ("a", "b"), np.array(["x", "y", "z"], object), np.array([0, 1, 2]), np.array([1.0, 2.0, 3.0]))
    part = table.take(np.array([2, 0]))
    assert to_dense(part.rows).tolist() == [[4, 5], [0, 1]]
    assert (part.ids.tolist(), part.labels.tolist(), part.weights.tolist()) == (["z", "x"], [2, 0], [3.0, 1.0])


def test_taking_rows_of_a_bare_table_gives_a_bare_table():
    part = Table(ROWS, ("a", "b")).take(np.array([1]))
    assert (len(part), part.ids, part.labels, part.weights) == (1, None, None, None)


def test_every_feature_has_a_name():
    with pytest.raises(DataError, match="1 feature names for 2 features"):
        Table(ROWS, ("a",))


@pytest.mark.parametrize("what", ["ids", "labels", "weights"])
def test_ids_labels_and_weights_have_one_entry_per_row(what):
    with pytest.raises(DataError, match=f"2 {what} for 3 rows"):
        Table(ROWS, ("a", "b"), **{what: np.array([1, 2])})


def test_a_party_may_bring_no_test_rows():
    assert PartyData(Table(ROWS, ("a", "b"))).test is None
