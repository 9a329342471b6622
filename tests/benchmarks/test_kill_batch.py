"""A batch of predictions survives kill -9 of any process: the small version of the benchmark."""

import pytest

from benchmarks.kill_batch import VICTIMS, run


@pytest.mark.slow
def test_a_batch_ends_with_the_same_file_whatever_is_killed():
    said = []
    report = run(said.append, rows=1000, seeds=2, first=VICTIMS.index("server"))
    counts = {each["contender"]: (each["median"], each["max"]) for each in report.results}
    assert counts["server killed: complete and equal"] == (1, 1)
    assert counts["p0 killed: complete and equal"] == (1, 1)
    assert counts["all: complete and equal"] == (2, 2)
    assert len(said) == 3
    assert "1,000 ids" in report.question
