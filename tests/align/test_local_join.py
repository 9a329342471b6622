from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.local_join import shared_rows
from fdml.data.rows import as_rows
from fdml.data.table import Table
from fdml.errors import AlignmentError


def table(ids, rows=None):
    count = len(ids) if rows is None else rows
    column = None
    if ids is not None:
        column = np.array([str(each) for each in ids], object)
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


def test_without_ids_rows_are_matched_by_position():
    rows = shared_rows({"a": table(None, 3), "b": table(None, 3)})
    assert rows["b"].tolist() == [0, 1, 2]


def test_without_ids_unequal_counts_are_refused_by_name():
    with pytest.raises(AlignmentError, match=r"a 3, b 2.*set data.id"):
        shared_rows({"a": table(None, 3), "b": table(None, 2)})


def test_ids_at_some_parties_only_are_refused():
    with pytest.raises(AlignmentError, match="party 'b' has no ids but 'a' has"):
        shared_rows({"a": table([1]), "b": table(None, 1)})


def test_a_duplicate_id_is_refused():
    with pytest.raises(AlignmentError, match="party 'b' has 1 rows with a duplicate id"):
        shared_rows({"a": table([1]), "b": table([1, 1])})


@given(st.permutations([f"user {number}" for number in range(8)]), st.permutations([f"user {n}" for n in range(8)]))
def test_the_common_order_follows_from_the_ids_and_not_from_the_files(one, other):
    rows = shared_rows({"a": table(one), "b": table(other)})
    again = shared_rows({"a": table(sorted(one)), "b": table(sorted(one))})
    assert [one[row] for row in rows["a"]] == [sorted(one)[row] for row in again["a"]]
    assert [other[row] for row in rows["b"]] == [one[row] for row in rows["a"]]
