import pytest

from benchmarks import exchange
from benchmarks.exchange import _in_process, _restarts, run
from fdml.settings import TrainingSettings

ROWS = 4000


@pytest.fixture
def small(monkeypatch):
    """Few rows and one size of block."""
    monkeypatch.setattr(exchange, "_ROWS", ROWS)
    monkeypatch.setattr(exchange, "_SHAPES", {name: exchange._SHAPES[name] for name in ["16 batches per block"]})
    monkeypatch.setattr(exchange, "_restarts", lambda folder: _restarts(folder, rows=2000, parties=2, times=1))


def test_a_server_that_is_opened_again_is_as_it_was(tmp_path):
    seconds = _restarts(tmp_path, rows=2000, parties=2, times=2)
    assert len(seconds) == 2
    assert min(seconds) > 0


@pytest.mark.usefixtures("small")
def test_training_in_one_process_is_timed_after_the_first_epoch():
    X, labels = exchange._data()
    assert X.shape == (ROWS, 60)
    assert _in_process(X, labels, TrainingSettings(epochs=3, batches_per_block=4)) > 0


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_report_has_what_the_network_adds_and_what_a_blind_server_costs():
    lines = []
    report = run(lines.append, rounds=1)
    found = [row["contender"] for row in report.results]
    assert "16 batches per block, in process: exchanges" in found
    assert "16 batches per block, gRPC with TLS: added per step" in found
    assert "16 batches per block, blind server: exchanges" in found
    assert set(report.ratios) == {
        "16 batches per block blind/plain server time",
        "16 batches per block gRPC/in-process time",
    }
    assert lines
