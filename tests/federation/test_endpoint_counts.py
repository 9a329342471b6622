import json
import time

from fdml.federation import endpoint_counts as module
from fdml.federation.endpoint_counts import ENDPOINT, kept_counts, read_counts
from tests.transport.served import until


class Counts:
    """Says how often it was asked."""

    def __init__(self):
        self.asked = 0

    def summary(self):
        self.asked += 1
        return {"requests": self.asked}


def test_figures_are_there_while_an_endpoint_runs_and_gone_after_it(tmp_path):
    assert read_counts(tmp_path) is None
    with kept_counts(tmp_path, Counts()):
        until(lambda: read_counts(tmp_path) is not None, "the figures")
        assert read_counts(tmp_path) == {"requests": 1}
        assert (tmp_path / ENDPOINT).stat().st_mode & 0o077 == 0, "for their owner alone"
    assert not (tmp_path / ENDPOINT).exists()


def test_they_are_written_again_and_again(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SAVE_SECONDS", 0.01)
    counts = Counts()
    with kept_counts(tmp_path, counts):
        until(lambda: counts.asked > 3, "further figures")


def test_a_folder_that_takes_none_of_it_stops_no_endpoint(tmp_path):
    counts = Counts()
    with kept_counts(tmp_path / "not" / "there", counts):
        until(lambda: counts.asked > 0, "the figures")


def test_an_endpoint_that_was_killed_is_not_running(tmp_path):
    (tmp_path / ENDPOINT).write_text(json.dumps({"at": 100.0, "requests": 3}))
    assert read_counts(tmp_path, lambda: 105.0) == {"requests": 3}
    assert read_counts(tmp_path, lambda: 120.0) is None


def test_a_file_that_is_none_says_nothing(tmp_path):
    for text in ("", "[]", "{}", '{"at": "x"}', '{"at": null}'):
        (tmp_path / ENDPOINT).write_text(text)
        assert read_counts(tmp_path, time.time) is None
