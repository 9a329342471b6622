"""Rows as files for other processes: the same rows, and no copy of what is a file already."""

import json

import numpy as np
import pytest

from fdml.cluster.ray_actor import content_of
from fdml.cluster.row_files import describe_rows, file_places, open_rows, place_key, size_of, with_sent
from fdml.data.block_store import open_blocks, write_blocks
from fdml.data.rows import PointedRows, drop_unit_values, has_unit_values, span, to_dense
from tests.models.random_updates import random_features, stored

X = random_features(np.random.default_rng(2))
ONES = (X != 0).astype(np.float32)
POINTED = PointedRows(stored(np.vstack([X, 0 * X[:1]]), "sparse"), np.array([3, -1, 3, 0, 22]))
IN_MEMORY = {
    "sparse": stored(X, "sparse"),
    "dense": stored(X, "dense"),
    "ones": drop_unit_values(stored(ONES, "sparse")),
    "pointed": POINTED,
    "some": span(stored(X, "dense"), 3, 9),
    "no features": stored(X[:, :0], "dense"),
}


@pytest.mark.parametrize("rows", IN_MEMORY.values(), ids=IN_MEMORY)
def test_rows_in_memory_are_written_and_mapped(rows, tmp_path):
    facts = json.loads(json.dumps(describe_rows(rows, tmp_path / "rows")))
    found = open_rows(facts)
    np.testing.assert_array_equal(to_dense(found), to_dense(rows))
    assert has_unit_values(found) == has_unit_values(rows)
    assert type(found) is type(rows)


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_a_block_store_is_mapped_where_it_is(form, tmp_path):
    write_blocks(tmp_path / "blocks", [stored(X, form)], np.arange(len(X)), len(X), X.shape[1])
    rows = open_blocks(tmp_path / "blocks")
    facts = describe_rows(rows, tmp_path / "rows")
    assert not (tmp_path / "rows").exists()
    np.testing.assert_array_equal(to_dense(open_rows(facts)), X)
    part = describe_rows(span(rows, 5, 11), tmp_path / "rows")
    np.testing.assert_array_equal(to_dense(open_rows(part)), X[5:11])


def sent(facts):
    """The facts of rows whose every file is sent along, and the arrays with which they are."""
    names = {place_key(place): f"sent/{number}" for number, place in enumerate(file_places(facts))}
    arrays = {names[place_key(place)]: content_of(place) for place in file_places(facts)}
    for array in arrays.values():
        array.setflags(write=False)  # as a machine's shared memory is
    return with_sent(facts, names), arrays


@pytest.mark.parametrize("rows", IN_MEMORY.values(), ids=IN_MEMORY)
def test_rows_whose_files_are_sent_along_are_the_same_rows(rows, tmp_path):
    facts, arrays = sent(json.loads(json.dumps(describe_rows(rows, tmp_path / "rows"))))
    assert list(file_places(facts)) == []
    for path in (tmp_path / "rows").iterdir():
        path.unlink()
    found = open_rows(facts, arrays)
    np.testing.assert_array_equal(to_dense(found), to_dense(rows))
    assert type(found) is type(rows)


def test_a_part_of_a_block_store_is_sent_without_the_rest(tmp_path):
    write_blocks(tmp_path / "blocks", [stored(X, "dense")], np.arange(len(X)), len(X), X.shape[1])
    facts = describe_rows(span(open_blocks(tmp_path / "blocks"), 5, 11), tmp_path / "rows")
    (place,) = file_places(facts)
    assert size_of(place) == X[5:11].nbytes
    np.testing.assert_array_equal(to_dense(open_rows(*sent(facts))), X[5:11])


def test_files_are_found_wherever_they_are_described_and_only_those_named_are_replaced(tmp_path):
    rows = describe_rows(stored(X, "sparse"), tmp_path / "rows")
    facts = {"rows": rows, "deeper": [{"indptr": rows["indptr"]}], "loss": "logistic"}
    assert len(list(file_places(facts))) == 4
    found = with_sent(facts, {place_key(rows["indptr"]): "sent/0"})
    assert found["loss"] == "logistic"
    assert found["rows"]["indptr"]["sent"] == found["deeper"][0]["indptr"]["sent"] == "sent/0"
    assert found["rows"]["values"] == rows["values"]
