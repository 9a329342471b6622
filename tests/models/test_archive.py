import json
import os
import stat

import numpy as np
import pytest

from fdml.errors import DataError
from fdml.models.archive import read_archive, write_archive

FACTS = {"kind": "FeatureDistributedClassifier", "features": 3, "classes": ["no", "yes"], "centre": 0.5}
STATES = {
    "party 0": {"theta": np.array([0.5, -1.0], np.float32), "counters": np.array([1.0, 0.0])},
    "party 1": {"module/weight": np.eye(2), "empty": np.zeros((0, 3), np.float32)},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "estimator.npz"


def test_facts_and_every_partys_arrays_come_back_bit_by_bit(path):
    write_archive(path, FACTS, STATES)
    facts, states = read_archive(path)
    assert {name: facts[name] for name in FACTS} == FACTS
    assert states.keys() == STATES.keys()
    for party, arrays in STATES.items():
        assert list(states[party]) == list(arrays)
        for name, array in arrays.items():
            found = states[party][name]
            assert (found.dtype, found.shape, found.tobytes()) == (array.dtype, array.shape, array.tobytes())


def test_an_older_archive_is_replaced_whole(path):
    write_archive(path, FACTS, STATES)
    write_archive(path, {"kind": "other"}, {"party 0": {"theta": np.zeros(1)}})
    facts, states = read_archive(path)
    assert facts["kind"] == "other"
    assert list(states) == ["party 0"]
    assert os.listdir(path.parent) == [path.name], "nothing is left beside it"


def test_an_archive_can_be_given_to_others(path):
    """It holds what was trained in one place on data that was there anyway."""
    write_archive(path, FACTS, STATES)
    assert stat.S_IMODE(path.stat().st_mode) & 0o444 == 0o444


def test_a_file_that_is_not_there_is_named(path):
    with pytest.raises(DataError, match=r"there is no file .*estimator\.npz"):
        read_archive(path)


@pytest.mark.parametrize("content", [b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_a_file_that_is_no_archive_is_named(path, content):
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"estimator\.npz' is not an estimator that fdml saved, or it is damaged"):
        read_archive(path)


def test_an_archive_without_facts_is_named(path):
    np.savez(path, theta=np.zeros(3))
    with pytest.raises(DataError, match="not an estimator that fdml saved"):
        read_archive(path)


def test_objects_in_an_archive_are_never_made(path):
    """They would run code of whoever wrote the file."""
    np.savez(path, theta=np.array([{"an": "object"}]), allow_pickle=True)
    with pytest.raises(DataError, match="not an estimator that fdml saved"):
        read_archive(path)


def test_an_archive_of_another_version_says_which_is_read(path):
    np.savez(path, **{"facts.json": np.array(json.dumps({"version": 99}))})
    with pytest.raises(DataError, match=r"has format 99; this fdml reads 1"):
        read_archive(path)


def test_facts_that_cannot_be_written_leave_the_older_archive(path):
    write_archive(path, FACTS, STATES)
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_archive(path, {"facts": object()}, {})
    assert path.read_bytes() == before
