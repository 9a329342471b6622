"""The cost of watching and the page of a long run, on a small scale."""

from __future__ import annotations

import json

import pytest

from benchmarks import watching
from benchmarks.cluster import run_folder
from benchmarks.ports import reserved_port
from benchmarks.watching import alternate, open_page, write_long_history
from fdml.monitor.history import read_history
from fdml.monitor.measures import read_measures


def test_a_long_history_is_one_that_fdml_reads(tmp_path):
    write_long_history(tmp_path, 50, 5000)
    history = read_history(tmp_path / "history.json")
    assert list(history) == list(range(1, 51))
    assert read_measures(tmp_path / "measures.json").starts[0].steps == 5000
    assert len(json.loads((tmp_path / "history.json").read_text())) == 50


@pytest.mark.slow
def test_stretches_are_measured_by_turns_and_a_long_run_opens_soon_and_small(tmp_path, monkeypatch):
    monkeypatch.setattr(watching, "_STRETCH_SECONDS", 1.0)
    said = []
    watching._write(tmp_path / "home")
    with reserved_port() as port:
        watched, alone = alternate(tmp_path / "home", port, 2, said.append)
    assert len(watched) == len(alone) == len(said) == 2
    assert all(each.speed > 0.0 and each.run_cpu > 0.0 for each in (*watched, *alone))
    assert all(each.page_cpu < 20.0 for each in alone), "it is stopped"
    write_long_history(run_folder(tmp_path / "home", "p0"))
    _, cpu, size = open_page(tmp_path / "home" / "p0" / "party.toml")
    assert size < 5e6, "bytes"
    assert cpu < 2.0, "seconds of processor time, whatever else the machine does"
