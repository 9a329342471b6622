import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.ids import IdCounts, unique_ids
from fdml.errors import DataError
from fdml.settings.data import IdSettings


def ids_of(*columns, **settings):
    named = {f"c{number}": pa.array(values) for number, values in enumerate(columns)}
    return unique_ids(named, IdSettings(**settings))


def test_ids_without_faults_are_all_kept():
    ids = ids_of(["b", "a", "c"])
    assert ids.texts.type == pa.large_string()
    assert ids.texts.to_pylist() == ["b", "a", "c"]
    assert ids.rows.dtype == np.int64
    assert ids.rows.tolist() == [0, 1, 2]
    assert ids.counts == IdCounts(3, 0, 0, 0, (), ())


def test_ids_are_handed_out_as_plain_texts():
    objects = ids_of([3, 1]).as_objects()
    assert objects.dtype == object
    assert objects.tolist() == ["3", "1"]


def test_ids_of_several_columns_are_joined():
    assert ids_of([3, 1], ["x", "y"]).texts.to_pylist() == ["3|x", "1|y"]


def test_a_column_alone_is_not_escaped():
    assert ids_of(["a|b\\"]).texts.to_pylist() == ["a|b\\"]


parts = st.text("a|\\ ", min_size=1, max_size=4).filter(str.strip)


@given(st.integers(2, 3).flatmap(lambda width: st.lists(st.tuples(*[parts] * width), min_size=1, unique=True)))
def test_different_rows_of_several_columns_never_give_one_text(rows):
    texts = ids_of(*zip(*rows, strict=True), trim=False).texts.to_pylist()
    assert len(set(texts)) == len(rows)


def test_an_id_is_missing_where_any_of_its_columns_is():
    ids = ids_of(["a", None, "c", " "], [1.0, 2.0, float("nan"), 4.0], missing="drop")
    assert ids.texts.to_pylist() == ["a|1"]
    assert ids.counts == IdCounts(4, 3, 0, 3, (2, 3, 4), ())


def test_missing_ids_are_an_error_that_counts_them_and_names_the_way_out():
    with pytest.raises(DataError) as caught:
        ids_of(["secret", None, ""])
    assert str(caught.value) == (
        '2 of 3 rows have no id, among them data rows 2, 3; fill the ids in, or set data.ids.missing = "drop"'
    )


def test_repeated_ids_are_an_error_that_never_shows_them():
    with pytest.raises(DataError, match=r"it has 2 rows with a duplicate id \(of 4\), .* rows 3, 4;") as caught:
        ids_of(["secret", "b", "secret", "b"])
    assert 'set data.ids.duplicates = "first" or "drop"' in str(caught.value)
    assert "secret" not in str(caught.value)


def test_at_most_five_rows_are_given_as_examples():
    counts = ids_of(["a"] * 9 + [None] * 9, duplicates="first", missing="drop").counts
    assert counts == IdCounts(18, 9, 8, 17, (10, 11, 12, 13, 14), (2, 3, 4, 5, 6))


def test_of_repeated_ids_the_first_is_kept_or_none():
    values = ["a", "b", None, "a", "c", "b", "a"]
    first = ids_of(values, duplicates="first", missing="drop")
    assert (first.texts.to_pylist(), first.rows.tolist()) == (["a", "b", "c"], [0, 1, 4])
    assert (first.counts.repeated, first.counts.dropped, first.counts.repeated_at) == (3, 4, (4, 6, 7))
    none = ids_of(values, duplicates="drop", missing="drop")
    assert (none.texts.to_pylist(), none.rows.tolist()) == (["c"], [4])
    assert (none.counts.repeated, none.counts.dropped, none.counts.repeated_at) == (3, 6, (4, 6, 7))


def test_ids_are_repeated_where_they_are_spelled_alike():
    assert ids_of(["A ", "a"], case="lower", duplicates="first").rows.tolist() == [0]


@pytest.mark.parametrize("values", [[], [None, None], ["a", "a"]])
def test_no_ids_may_be_left(values):
    ids = unique_ids({"c": pa.array(values, pa.string())}, IdSettings(missing="drop", duplicates="drop"))
    assert (len(ids.texts), ids.rows.tolist(), ids.counts.dropped) == (0, [], len(values))


@given(st.lists(st.sampled_from(["a", "b", "c", "d", None, ""])), st.sampled_from(["first", "drop"]))
def test_the_kept_rows_are_those_a_plain_loop_keeps(values, rule):
    ids = unique_ids({"c": pa.array(values, pa.string())}, IdSettings(missing="drop", duplicates=rule))
    expected = [
        row
        for row, value in enumerate(values)
        if value and (values.index(value) == row if rule == "first" else values.count(value) == 1)
    ]
    assert ids.rows.tolist() == expected
    assert ids.texts.to_pylist() == [values[row] for row in expected]
    assert ids.counts.repeated == sum(1 for row, value in enumerate(values) if value and value in values[:row])
    assert ids.counts.dropped == len(values) - len(expected)


@given(st.lists(st.text(), unique_by=str.strip), st.sampled_from(["keep", "lower"]))
def test_ids_that_were_normalised_are_not_changed_again(texts, case):
    settings = IdSettings(case=case, duplicates="first", missing="drop")
    once = unique_ids({"c": pa.array(texts, pa.string())}, settings)
    again = unique_ids({"c": once.texts}, IdSettings(case=case))
    assert again.texts.equals(once.texts)


def lines_run(work):
    """How many lines of Python a piece of work runs through."""
    counted, before = 0, sys.gettrace()

    def trace(_frame, event, _argument):
        nonlocal counted
        counted += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return counted


def test_many_ids_are_normalised_at_once_and_not_one_by_one():
    """A loop over the values would run through more lines the more there are."""

    def lines_for(count):
        texts = pa.array(np.char.add("User-", np.arange(count).astype(str)))
        return lines_run(lambda: unique_ids({"c": texts}, IdSettings(numbers="all", case="lower")))

    assert lines_for(20_000) == lines_for(200)


_GROWTH = """
from pathlib import Path
import numpy as np, pyarrow as pa
from fdml.data.ids import unique_ids
from fdml.settings.data import IdSettings

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()[1:]
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous")) / 1024

numbers = np.arange(1_000_000)
columns = {"user": pa.array(numbers), "app": pa.array(numbers % 997)}
before = anonymous()
ids = unique_ids(columns, IdSettings())
print(anonymous() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="reads its own memory from /proc")
def test_memory_that_normalising_took_is_given_back():
    """A million ids and their rows are 25 MiB; on the way it takes over 100."""
    told = subprocess.run([sys.executable, "-c", _GROWTH], capture_output=True, text=True, check=True, timeout=60)
    assert float(told.stdout) < 80
