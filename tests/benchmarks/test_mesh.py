"""The time of an exchange over a server, at a host and in a mesh."""

import pytest

from benchmarks import mesh
from benchmarks.network_profiles import LOOPBACK, NetworkProfile


@pytest.mark.slow
def test_an_exchange_in_a_mesh_crosses_the_line_once(tmp_path, monkeypatch):
    monkeypatch.setattr(mesh, "_EPOCHS", 3)
    far = NetworkProfile("200 ms", 0.2)
    found = {kind: mesh.exchange_seconds(tmp_path / kind, kind, far) for kind in ("mesh", "server")}
    assert found["server"] >= 0.2
    assert 0.1 <= found["mesh"] < found["server"]


@pytest.mark.slow
def test_the_report_has_all_three_side_by_side(monkeypatch):
    monkeypatch.setattr(mesh, "_LINES", (LOOPBACK,))
    monkeypatch.setattr(mesh, "_EPOCHS", 2)
    lines = []
    report = mesh.run(lines.append, rounds=1)
    assert [row["contender"] for row in report.results] == [
        "loopback, server: per exchange",
        "loopback, host: per exchange",
        "loopback, mesh: per exchange",
    ]
    assert set(report.ratios) == {"loopback host/server time", "loopback mesh/server time"}
    assert lines
