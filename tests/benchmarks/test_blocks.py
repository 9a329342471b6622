import pytest

from benchmarks import blocks

pytestmark = pytest.mark.slow


def test_a_file_goes_through_the_store_and_the_report_says_what_it_took():
    said = []
    report = blocks.run(said.append, rows=9000)
    figures = {row["contender"]: row for row in report.results}
    assert figures["file to store: process"]["median"] > 50
    assert figures["file to store"]["median"] > 0
    assert report.ratios["2 GB/peak memory"]["target"] == 1.0
    assert "9,000 rows" in report.question
    assert said[-1] == "through the store"
