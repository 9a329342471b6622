"""The benchmark of a blind server: both kinds take turns, and the ratio is formed inside each."""

import pytest

from benchmarks import blind


@pytest.mark.slow
def test_both_kinds_of_server_take_turns(monkeypatch):
    monkeypatch.setattr(blind, "_ROWS", 3200)
    monkeypatch.setattr(blind, "_EPOCHS", 2)
    lines = []
    report = blind.run(lines.append, rounds=2)
    assert [line.split(", ")[1] for line in lines] == ["blind server", "plain server", "plain server", "blind server"]
    assert [each["unit"] for each in report.results[:2]] == ["ms", "ms"]
    assert all(each["min"] > 0.0 for each in report.results[:2])
    assert report.ratios["blind/plain step, at most 1.2"]["median"] > 0.0
