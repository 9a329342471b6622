from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.align import CASES, Case, Counter, _check, _Spent, _take_part, run
from fdml.errors import InvariantBroken


@pytest.mark.slow
def test_a_small_alignment_is_measured_for_every_party_and_the_server():
    heard = []
    report = run(heard.append, (Case("ecdh", 50, 2, 100.0),), rounds=1)
    assert heard == ["ecdh, 50 ids, 2 parties, round 1 of 1"]
    units = [row["unit"] for row in report.results]
    assert units == ["CPU seconds", "CPU seconds", "seconds", "MiB", "MiB"]
    assert all(row["min"] > 0 for row in report.results)
    (ratio,) = report.ratios.values()
    assert ratio["median"] > ratio["target"]


@pytest.mark.parametrize("mode", ["tokens", "ecdh"])
def test_what_is_measured_finds_the_shared_rows(mode, tmp_path):
    case = Case(mode, 20, 3, 1.0)
    counter = Counter(case, tmp_path)
    with ThreadPoolExecutor(3) as threads:
        work = [threads.submit(_take_part, counter, case, name, tmp_path / name) for name in case.settings.parties]
    parties = [each.result() for each in work]
    _check(case, parties)
    assert [each.shared for each in parties] == [12, 12, 12]
    assert counter.spent().peak > 1


@pytest.mark.parametrize("second", [_Spent(1.0, 1.0, 5, b"one"), _Spent(1.0, 1.0, 6, b"other")])
def test_a_wrong_result_is_no_measurement(second):
    with pytest.raises(InvariantBroken, match="but there are 6"):
        _check(Case("tokens", 10, 2, 1.0), [_Spent(1.0, 1.0, 6, b"one"), second])


def test_both_modes_are_measured_with_two_and_three_parties():
    assert {(case.mode, case.parties) for case in CASES} == {(m, n) for m in ("tokens", "ecdh") for n in (2, 3)}
