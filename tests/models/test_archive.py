import json

import numpy as np
import pytest

from fdml.errors import DataError
from fdml.models.archive import read_archive, write_archive

FACTS = {"kind": "party", "l2": 0.5, "hidden": [3, 4]}
STATES = {
    "a": {"theta": np.arange(3.0), "module/0.weight": np.ones((2, 2), np.float32)},
}


def test_facts_and_arrays_come_back_as_they_were(tmp_path):
    write_archive(tmp_path / "estimator.npz", FACTS, {"a": STATES["a"]})
    facts, states = read_archive(tmp_path / "estimator.npz")
    assert {**facts, **FACTS} == facts
    assert list(states) == ["a"]
    for name, array in STATES["a"].items():
        np.testing.assert_array_equal(states["a"][name], array)
        assert states["a"][name].dtype == array.dtype


def test_a_file_is_replaced_only_when_the_new_one_is_whole(tmp_path):
    path = tmp_path / "estimator.npz"
    write_archive(path, FACTS, {"a": STATES["a"]})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_archive(path, {"facts": object()}, {})
    assert path.read_bytes() == before
    write_archive(path, {"l2": 1.0}, {})
    assert read_archive(path)[0]["l2"] == 1.0


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no file '.*/none\.npz'"):
        read_archive(tmp_path / "none.npz")


@pytest.mark.parametrize("content", [b"", b"not a zip file", b"PK\x03\x04 torn"])
def test_a_damaged_file_is_refused(tmp_path, content):
    (tmp_path / "estimator.npz").write_bytes(content)
    with pytest.raises(DataError, match=r"is not an estimator that fdml saved, or it is damaged"):
        read_archive(tmp_path / "estimator.npz")


def test_objects_are_never_unpacked(tmp_path):
    np.savez(tmp_path / "estimator.npz", **{"facts.json": np.array([{}], object)})
    with pytest.raises(DataError, match="damaged"):
        read_archive(tmp_path / "estimator.npz")


def test_another_format_is_refused_with_both_numbers(tmp_path):
    np.savez(tmp_path / "estimator.npz", **{"facts.json": np.array(json.dumps({"version": 7}))})
    with pytest.raises(DataError, match=r"has format 7; this fdml reads 1"):
        read_archive(tmp_path / "estimator.npz")
