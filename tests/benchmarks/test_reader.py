import pytest

from benchmarks import reader
from fdml.errors import InvariantBroken

pytestmark = pytest.mark.slow


def test_files_pass_the_reader_and_the_report_says_what_it_took(monkeypatch):
    monkeypatch.setattr(reader, "_FILE_ROWS", 3000)
    said = []
    report = reader.run(said.append, gigabytes=0.002)
    figures = {row["contender"]: row for row in report.results}
    assert figures["reading process"]["median"] > 50
    assert figures["rows encoded"]["median"] > 0
    assert report.ratios["2 GB/peak memory"]["target"] == 1.0
    assert "6,000 rows" in report.question
    assert said == ["writing 0.002 GB of Parquet", "reading 6,000 rows"]


def test_rows_that_get_lost_are_an_error(monkeypatch):
    write = reader._write_files
    monkeypatch.setattr(reader, "_FILE_ROWS", 1000)
    monkeypatch.setattr(reader, "_write_files", lambda *given: (0, write(*given)[1] + 1))
    with pytest.raises(InvariantBroken, match="came out of the reader"):
        reader.run(lambda _: None, gigabytes=0.001)


def test_processes_read_the_same_rows_beside_one(monkeypatch):
    monkeypatch.setattr(reader, "_FILE_ROWS", 3000)
    said = []
    report = reader.run(said.append, gigabytes=0.002, workers=2)
    figures = {row["contender"] for row in report.results}
    assert "2 processes: encoding the rows to parts" in figures
    assert "one process/2 processes, learning and encoding" in report.ratios
    assert said[-1] == "reading them by 2 processes"
