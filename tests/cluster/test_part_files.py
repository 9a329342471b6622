"""Part folders: what is written is read again, by whoever wrote first, and damage is named."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.cluster.part_files import (
    MANIFEST,
    append_ids,
    append_rows,
    ids_of,
    is_written,
    open_part,
    rows_of,
    write_part,
)
from fdml.data.rows import DenseRows, SparseRows, span, vstack
from fdml.errors import StateCorrupt
from tests.cluster.tables import bits

SPARSE = SparseRows(np.array([0, 2, 2, 3]), np.array([0, 4, 1], np.int32), np.array([1, 2, 3], np.float32), 5)
DENSE = DenseRows(np.arange(12, dtype=np.float32).reshape(3, 4))


def written(folder, *appended):
    """A part of arrays that are appended one after the other."""

    def fill(arrays):
        for name, array in appended:
            arrays.append(name, array)

    write_part(folder, fill)
    return folder


@pytest.mark.parametrize("rows", [SPARSE, DENSE, DenseRows(np.zeros((3, 0), np.float32))])
def test_rows_that_are_written_in_chunks_are_read_as_they_were(tmp_path, rows):
    def fill(arrays):
        end = 0
        for start in range(3):
            end = append_rows(arrays, span(rows, start, start + 1), end)

    write_part(tmp_path / "part", fill)
    found = rows_of(open_part(tmp_path / "part"), 5)
    assert bits(found) == bits(rows)
    assert type(found) is type(rows)
    assert bits(vstack([span(found, 0, 1), span(found, 1, 3)])) == bits(rows)


@given(st.lists(st.lists(st.none() | st.text(st.characters(codec="utf-8"), min_size=1))))
def test_ids_are_read_as_they_were(tmp_path_factory, batches):
    folder = tmp_path_factory.mktemp("ids") / "part"

    def fill(arrays):
        end = append_ids(arrays, pa.array([], pa.large_string()), 0)
        for batch in batches:
            end = append_ids(arrays, pa.array(batch, pa.large_string()), end)

    write_part(folder, fill)
    assert ids_of(open_part(folder)).to_pylist() == [text for batch in batches for text in batch]


def test_the_first_who_writes_a_part_stays_and_leaves_nothing_beside(tmp_path):
    def slower(arrays):
        """Somebody else is done in the meantime."""
        written(tmp_path / "part", ("x", np.arange(3)))
        arrays.append("x", np.arange(4))

    write_part(tmp_path / "part", slower)
    written(tmp_path / "part", ("x", np.arange(5)))
    assert open_part(tmp_path / "part")["x"].tolist() == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["part"]


def test_a_part_that_fails_is_not_there(tmp_path):
    def fill(arrays):
        arrays.append("x", np.arange(3))
        raise LookupError

    with pytest.raises(LookupError):
        write_part(tmp_path / "part", fill)
    assert not is_written(tmp_path / "part")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_refuses_is_no_part_of_somebody_else(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        written(tmp_path / "file" / "part", ("x", np.arange(3)))


def test_the_manifest_has_type_shape_and_sha256_of_every_array(tmp_path):
    folder = written(tmp_path / "part", ("x", np.zeros((2, 3), np.int64)), ("x", np.ones((1, 3), np.int64)))
    known = json.loads((folder / MANIFEST).read_text())
    assert known["layout"] == "fdml part 1"
    about = known["arrays"]["x"]
    assert (about["type"], about["shape"], len(about["sha256"])) == ("<i8", [3, 3], 64)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in folder.iterdir())


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda folder: (folder / "x").write_bytes(bytes(24)), "'x' has another SHA-256"),
        (lambda folder: (folder / "x").unlink(), "No such file"),
        (lambda folder: (folder / MANIFEST).write_text("{"), "damaged"),
        (lambda folder: (folder / MANIFEST).write_text('{"layout": "fdml part 0"}'), "its layout is 'fdml part 0'"),
        (lambda folder: (folder / MANIFEST).write_text('{"layout": "fdml part 1"}'), "arrays"),
    ],
)
def test_damage_is_named(tmp_path, change, what):
    folder = written(tmp_path / "part", ("x", np.arange(3)))
    assert open_part(folder)["x"].tolist() == [0, 1, 2]
    change(folder)
    with pytest.raises(StateCorrupt, match=rf"part 'part' of .*{what}"):
        open_part(folder)
