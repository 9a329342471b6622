from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.plain import shared_rows
from fdml.data.rows import as_rows
from fdml.data.table import Table
from fdml.errors import AlignmentError


def table(ids, rows=None):
    count = len(ids) if rows is None else rows
    column = None
    if ids is not None:
        column = np.empty(len(ids), object)
        column[:] = ids
    return Table(as_rows(np.zeros((count, 1))), ("f",), column)


@given(st.lists(st.lists(st.integers(0, 30), unique=True), min_size=2, max_size=4))
def test_every_party_is_given_the_rows_that_all_hold_in_one_order(sets):
    shared = set.intersection(*map(set, sets))
    tables = {f"p{at}": table(ids) for at, ids in enumerate(sets)}
    if not shared:
        with pytest.raises(AlignmentError, match="share no id"):
            shared_rows(tables)
        return
    found = [[sets[at][row] for row in index] for at, index in enumerate(shared_rows(tables).values())]
    assert all(each == found[0] for each in found)
    assert sorted(found[0]) == sorted(shared)


def test_an_id_is_the_same_as_a_number_and_as_text():
    rows = shared_rows({"parquet": table([7, 8]), "csv": table(["8", "9"])})
    assert (rows["parquet"].tolist(), rows["csv"].tolist()) == ([1], [0])


def test_ids_of_several_columns_are_compared_as_a_whole():
    rows = shared_rows({"a": table([("u", 1), ("u", 2)]), "b": table([("u", "2"), ("v", "1")])})
    assert (rows["a"].tolist(), rows["b"].tolist()) == ([1], [0])


def test_without_ids_rows_are_matched_by_position():
    rows = shared_rows({"a": table(None, 3), "b": table(None, 3)})
    assert rows["b"].tolist() == [0, 1, 2]


def test_without_ids_unequal_counts_are_refused_by_name():
    with pytest.raises(AlignmentError, match=r"a 3, b 2.*set data.id"):
        shared_rows({"a": table(None, 3), "b": table(None, 2)})


def test_ids_at_some_parties_only_are_refused():
    with pytest.raises(AlignmentError, match="party 'b' has no ids but 'a' has"):
        shared_rows({"a": table([1]), "b": table(None, 1)})


def test_an_id_that_stands_twice_is_refused():
    with pytest.raises(AlignmentError, match="party 'b' has 1 rows whose id stands there before"):
        shared_rows({"a": table([1]), "b": table([1, 1])})
