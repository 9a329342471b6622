import datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.frames import FrameTable
from fdml.data.table_digest import table_digest
from tests.data.frames import tables


def digest(table):
    return table_digest(FrameTable(table))


@given(tables(), st.integers(1, 5))
def test_the_cut_and_what_lies_under_missing_values_do_not_count(table, size):
    cut = pa.Table.from_batches(table.to_batches(max_chunksize=size)) if len(table) else table
    again = pa.table(
        {name: pa.array(table[name].to_pylist(), table.schema.field(name).type) for name in table.column_names}
    )
    assert digest(table) == digest(cut) == digest(again)


DAY = datetime.date(2026, 11, 15)
OTHERS = {
    "a value": {"n": [1, 3], "w": ["a", "b"], "d": [DAY, None]},
    "the order": {"n": [2, 1], "w": ["b", "a"], "d": [None, DAY]},
    "a name": {"m": [1, 2], "w": ["a", "b"], "d": [DAY, None]},
    "a missing value": {"n": [1, None], "w": ["a", "b"], "d": [DAY, None]},
    "where a text ends": {"n": [1, 2], "w": ["ab", ""], "d": [DAY, None]},
    "another day": {"n": [1, 2], "w": ["a", "b"], "d": [datetime.date(2026, 11, 16), None]},
    "one row more": {"n": [1, 2, 2], "w": ["a", "b", "b"], "d": [DAY, None, None]},
    "the type": {"n": [1.0, 2.0], "w": ["a", "b"], "d": [DAY, None]},
}


@pytest.mark.parametrize("what", OTHERS)
def test_whatever_differs_gives_another_hash(what):
    first = digest(pa.table({"n": [1, 2], "w": ["a", "b"], "d": [DAY, None]}))
    assert digest(pa.table(OTHERS[what])) != first


def test_how_text_is_stored_does_not_count():
    words = pa.array(["a", None, "b"])
    forms = [words, words.cast(pa.large_string()), words.dictionary_encode(), words.cast(pa.string_view())]
    assert len({digest(pa.table({"w": form})) for form in forms}) == 1
