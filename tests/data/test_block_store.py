import os
import stat

import numba
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.data.block_store import fingerprint, open_blocks, write_blocks
from fdml.data.rows import DenseRows, SparseRows, as_rows, span, take, to_dense
from fdml.errors import DataError, StateCorrupt
from tests.storage.system_calls import crash_at_every_call

MATRIX = np.array([[1, 0, 2], [0, 0, 0], [3, 4, 5], [0, 6, 0]], np.float32)
KINDS = pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
PLACES = np.array([2, -1, 0, 1])
ORDER = np.array([2, 3, 0])


def chunks_of(matrix, size, kind=sp.csr_array):
    return [as_rows(kind(matrix[start : start + size])) for start in range(0, len(matrix), size)]


def stored(folder, kind=sp.csr_array):
    write_blocks(folder, chunks_of(MATRIX, 2, kind), PLACES, 3, 3)
    return folder


matrices = arrays(np.float32, st.tuples(st.integers(1, 12), st.integers(0, 4)), elements=st.integers(-2, 2).map(float))


@given(matrices, st.integers(1, 5), st.sampled_from([np.asarray, sp.csr_array]), st.data())
def test_the_store_holds_the_rows_as_taking_them_in_order_would(tmp_path_factory, matrix, size, kind, data):
    order = np.array(data.draw(st.lists(st.integers(0, len(matrix) - 1), unique=True)), np.int64)
    places = np.full(len(matrix), -1)
    places[order] = np.arange(len(order))
    folder = tmp_path_factory.mktemp("store") / "blocks"
    write_blocks(folder, chunks_of(matrix, size, kind), places, len(order), matrix.shape[1])
    found, expected = open_blocks(folder), take(as_rows(kind(matrix)), order)
    assert type(found) is type(expected)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@KINDS
def test_arrays_are_as_the_kernels_want_them(tmp_path, kind):
    rows = open_blocks(stored(tmp_path / "blocks", kind))
    assert isinstance(rows, SparseRows if kind is sp.csr_array else DenseRows)
    for array in rows[:3]:
        assert type(array) is np.ndarray
        assert array.flags.c_contiguous
        assert array.flags.writeable
    if isinstance(rows, SparseRows):
        assert [array.dtype for array in rows[:3]] == [np.int64, np.int32, np.float32]


def test_a_compiled_function_reads_mapped_arrays_as_any_others(tmp_path):
    total = numba.njit(lambda values: values.sum())
    assert total(open_blocks(stored(tmp_path / "blocks")).values) == MATRIX[ORDER].sum()
    assert total(np.ones(2, np.float32)) == 2
    assert len(total.signatures) == 1


@KINDS
def test_writing_to_the_arrays_does_not_change_the_store(tmp_path, kind):
    folder = stored(tmp_path / "blocks", kind)
    open_blocks(folder).values[...] = 9
    np.testing.assert_array_equal(to_dense(open_blocks(folder)), MATRIX[ORDER])


@KINDS
def test_a_span_shares_the_memory_of_the_store(tmp_path, kind):
    rows = open_blocks(stored(tmp_path / "blocks", kind))
    part = span(rows, 1, 3)
    assert np.shares_memory(part.values, rows.values)
    np.testing.assert_array_equal(to_dense(part), MATRIX[ORDER[1:]])


@KINDS
def test_rows_without_features_are_stored(tmp_path, kind):
    write_blocks(
        tmp_path / "blocks", [as_rows(kind((3, 0)) if kind is sp.csr_array else np.zeros((3, 0)))], PLACES[1:], 2, 0
    )
    assert to_dense(open_blocks(tmp_path / "blocks")).shape == (2, 0)


@KINDS
def test_no_shared_rows_are_stored(tmp_path, kind):
    write_blocks(tmp_path / "blocks", chunks_of(MATRIX, 3, kind), np.full(4, -1), 0, 3)
    assert to_dense(open_blocks(tmp_path / "blocks")).shape == (0, 3)
    write_blocks(tmp_path / "none", [], np.zeros(0, np.int64), 0, 3)
    assert to_dense(open_blocks(tmp_path / "none")).shape == (0, 3)


def test_files_are_for_their_owner_only(tmp_path):
    before = os.umask(0)
    try:
        folder = stored(tmp_path / "blocks")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(["facts.json", "indices", "indptr", "values"], 0o600)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_nothing_else_is_left_behind(tmp_path):
    stored(tmp_path / "blocks")
    stored(tmp_path / "blocks")
    assert [path.name for path in tmp_path.iterdir()] == ["blocks"]


def test_a_store_is_replaced_as_a_whole_while_the_old_one_is_still_open(tmp_path):
    old = open_blocks(stored(tmp_path / "blocks"))
    write_blocks(tmp_path / "blocks", chunks_of(2 * MATRIX, 2), PLACES, 3, 3)
    np.testing.assert_array_equal(to_dense(old), MATRIX[ORDER])
    np.testing.assert_array_equal(to_dense(open_blocks(tmp_path / "blocks")), 2 * MATRIX[ORDER])


def test_a_store_cut_short_leaves_a_whole_one_or_none_and_can_be_written_again(tmp_path_factory):
    def prepare():
        return stored(tmp_path_factory.mktemp("crash") / "blocks")

    def write(folder):
        write_blocks(folder, chunks_of(2 * MATRIX, 2), PLACES, 3, 3)

    def check(folder, *, ended):
        if folder.exists():
            found = to_dense(open_blocks(folder))
            assert found.tolist() in [each.tolist() for each in (MATRIX[ORDER], 2 * MATRIX[ORDER])[int(ended) :]]
        write(folder)
        np.testing.assert_array_equal(to_dense(open_blocks(folder)), 2 * MATRIX[ORDER])
        assert [path.name for path in folder.parent.iterdir()] == ["blocks"]

    assert crash_at_every_call(write, prepare, check) > 10


def test_a_failing_source_leaves_no_store(tmp_path):
    def failing():
        yield from chunks_of(MATRIX, 2)
        raise DataError("x.csv: broken")

    with pytest.raises(DataError, match=r"x.csv: broken"):
        write_blocks(tmp_path / "blocks", failing(), PLACES, 3, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_store_says_what_to_do(tmp_path):
    with pytest.raises(StateCorrupt, match=r"gone' is damaged or missing .*; remove it, then run"):
        open_blocks(tmp_path / "gone")


@pytest.mark.parametrize("name", ["facts.json", "indices", "indptr", "values"])
@pytest.mark.parametrize("damage", ["removed", "cut", "emptied", "longer"])
def test_a_damaged_store_is_refused(tmp_path, name, damage):
    path = stored(tmp_path / "blocks") / name
    content = path.read_bytes()
    path.unlink()
    if damage != "removed":
        path.write_bytes({"cut": content[:-4], "emptied": b"", "longer": content + b"1234"}[damage])
    with pytest.raises(StateCorrupt, match=r"the block store '.*blocks' is damaged or missing .*remove it, then run"):
        open_blocks(tmp_path / "blocks")


@pytest.mark.parametrize(
    "facts", ["[]", "{}", '{"layout": "fdml blocks 2"}', '{"layout": "fdml blocks 1", "rows": "x"}', "5", "\xff"]
)
def test_facts_that_make_no_sense_are_refused(tmp_path, facts):
    (stored(tmp_path / "blocks") / "facts.json").write_text(facts, encoding="latin-1")
    with pytest.raises(StateCorrupt, match="damaged or missing"):
        open_blocks(tmp_path / "blocks")


def test_changed_row_starts_are_noticed(tmp_path):
    """Kernels would read beyond the end of the arrays."""
    path = stored(tmp_path / "blocks") / "indptr"
    starts = np.fromfile(path, np.int64)
    starts[1] = 10**12
    starts.tofile(path)
    with pytest.raises(StateCorrupt, match="its rows do not begin where they did"):
        open_blocks(tmp_path / "blocks")


def test_a_fingerprint_tells_contents_and_settings_apart():
    one, other = b"ab", b"c"
    first = fingerprint([one, other], "settings")
    assert len(first) == 32
    assert first == fingerprint([one, other], "settings")
    assert first != fingerprint([one, other], "other settings")
    assert first != fingerprint([other, one], "settings")
    assert first != fingerprint([one], "settings")
    assert first != fingerprint([b"a", b"bc"], "settings")
