"""The benchmark of large alignments, made small."""

import numpy as np
import pytest

from benchmarks.align import Case
from benchmarks.align_large import Spent, _check, _coprime, mapped_ids, run, watched_disk
from fdml.errors import InvariantBroken, SettingsError
from fdml.storage.disk import FolderDisk


def test_parties_hold_different_ids_of_which_some_are_shared(tmp_path):
    case, disk = Case("tokens", 50, 2, 0.0), FolderDisk(tmp_path)
    first, second = (mapped_ids(case, party, disk).to_pylist() for party in ("p0", "p1"))
    assert len(set(first)) == len(set(second)) == 50
    assert len({*first} & {*second}) == 30
    assert first[:10] != second[:10]


@pytest.mark.parametrize("count", [1, 2, 10, 97, 1000])
def test_the_stride_visits_every_number(count):
    assert len({int(place * _coprime(count)) % count for place in range(count)}) == count


def test_a_wrong_result_is_no_measurement():
    case, fine = Case("tokens", 50, 2, 0.0), Spent(1.0, 1.0, 1.0, 0, 30, b"same")
    _check(case, [fine, fine])
    with pytest.raises(InvariantBroken, match="instead of 30"):
        _check(case, [fine, Spent(1.0, 1.0, 1.0, 0, 30, b"other")])


def test_the_disk_is_watched(tmp_path):
    with watched_disk(tmp_path) as most:
        (tmp_path / "file").write_bytes(np.zeros(2**20, np.uint8).tobytes())
    assert most[0] >= 0.0


def test_an_unknown_way_to_align_is_refused():
    with pytest.raises(SettingsError, match="choose tokens or ecdh"):
        run(lambda _: None, 1000, "both")


@pytest.mark.slow
def test_two_parties_and_a_server_align_within_their_memory():
    report = run(lambda _: None, 3000)
    assert {each["contender"] for each in report.results} >= {"server, its own memory", "disk of all at most"}
