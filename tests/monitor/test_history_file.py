import json
import math
import os
import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.events import Compared, ComparedVersion, EpochChosen, Evaluated, Reliability, Stopped
from fdml.monitor.history import HistoryFile, read_history
from tests.monitor.sample_events import SAMPLES


def evaluated(epoch, metric=0.9):
    return Evaluated("ann", epoch, 1.5 * epoch, 0.6, 0.5, metric)


def rows(path):
    return json.loads(path.read_text())


def test_a_row_has_the_figures_of_an_epoch(tmp_path):
    HistoryFile(tmp_path / "history.json")(evaluated(1))
    assert rows(tmp_path / "history.json") == [
        {"party": "ann", "epoch": 1, "seconds": 1.5, "train_loss": 0.6, "test_loss": 0.5, "test_metric": 0.9}
        | {"figures": {}, "chosen": False, "compared": None, "earlier": None, "reliability": None}
    ]


def test_a_comparison_stands_beside_the_epoch_whose_model_it_is_of_and_is_read_again(tmp_path):
    path = tmp_path / "history.json"
    (compared,) = [event for event in SAMPLES if isinstance(event, Compared)]
    history = HistoryFile(path)
    history(evaluated(2))
    history(evaluated(3))
    history(compared)
    assert [row["compared"] is None for row in rows(path)] == [True, False]
    assert rows(path)[1]["compared"]["text"] == "joint brings +0.100 (0.080 to 0.120) AUC over ann alone"
    assert read_history(path)[3].compared == compared
    assert HistoryFile(path).last.compared == compared


def test_a_comparison_with_an_earlier_version_stands_there_too(tmp_path):
    path = tmp_path / "history.json"
    (compared,) = [event for event in SAMPLES if isinstance(event, ComparedVersion)]
    history = HistoryFile(path)
    history(evaluated(3))
    history(compared)
    assert rows(path)[0]["earlier"]["run"] == "october"
    assert read_history(path)[3].earlier == compared


def test_there_is_no_file_until_something_is_evaluated(tmp_path):
    history = HistoryFile(tmp_path / "history.json")
    for event in SAMPLES:
        if not isinstance(event, Evaluated):
            history(event)
    assert history.last is None
    assert list(tmp_path.iterdir()) == []


@given(epochs=st.lists(st.integers(1, 20), min_size=1, max_size=8))
def test_rows_are_in_the_order_of_epochs_and_the_last_evaluation_of_each_counts(tmp_path_factory, epochs):
    path = tmp_path_factory.mktemp("history") / "history.json"
    history = HistoryFile(path)
    for number, epoch in enumerate(epochs):
        history(evaluated(epoch, metric=float(number)))
    newest = {epoch: float(number) for number, epoch in enumerate(epochs)}
    assert [(row["epoch"], row["test_metric"]) for row in rows(path)] == sorted(newest.items())
    assert history.last == evaluated(max(epochs), newest[max(epochs)])


def test_a_later_start_goes_on_from_the_file(tmp_path):
    path = tmp_path / "history.json"
    first = HistoryFile(path)
    first(evaluated(1))
    first(evaluated(2))
    second = HistoryFile(path)
    assert second.last == evaluated(2)
    second(evaluated(3))
    assert [row["epoch"] for row in rows(path)] == [1, 2, 3]


def test_figures_that_are_no_numbers_come_back(tmp_path):
    HistoryFile(tmp_path / "history.json")(evaluated(1, metric=math.nan))
    last = HistoryFile(tmp_path / "history.json").last
    assert last is not None
    assert math.isnan(last.test_metric)


def test_only_the_owner_may_read_it_from_the_first_byte(tmp_path, monkeypatch):
    modes = []
    replace = os.replace

    def note_mode(source, target):
        modes.append(stat.S_IMODE(os.stat(source).st_mode))
        replace(source, target)

    monkeypatch.setattr(os, "rename", note_mode)
    monkeypatch.setattr(os, "replace", note_mode)
    before = os.umask(0)
    try:
        HistoryFile(tmp_path / "history.json")(evaluated(1))
    finally:
        os.umask(before)
    assert set(modes) == {0o600}
    assert stat.S_IMODE((tmp_path / "history.json").stat().st_mode) == 0o600


def test_what_was_there_stays_if_the_new_file_cannot_be_written(tmp_path, monkeypatch):
    path = tmp_path / "history.json"
    history = HistoryFile(path)
    history(evaluated(1))

    def fail(*_):
        raise OSError("no room")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match="no room"):
        history(evaluated(2))
    assert [row["epoch"] for row in rows(path)] == [1]


def test_epochs_are_synced_once_a_second_and_what_is_left_when_it_is_asked_for(tmp_path, monkeypatch):
    """Two syncs take milliseconds, and all parties wait for the label party: a short epoch took half as long again."""
    synced, now, fsync = [], [10.0], os.fsync

    def note(handle):
        synced.append(rows(tmp_path / ".history.json.partial") if not os.path.isdir(f"/proc/self/fd/{handle}") else [])
        fsync(handle)

    history = HistoryFile(tmp_path / "history.json", clock=lambda: now[0])
    monkeypatch.setattr(os, "fsync", note)
    for epoch, at in ((1, 10.0), (2, 10.1), (3, 10.9), (4, 11.0), (5, 11.5)):
        now[0] = at
        history(evaluated(epoch))
        assert [row["epoch"] for row in rows(tmp_path / "history.json")] == list(range(1, epoch + 1))
    assert [len(each) for each in synced if each] == [1, 4]
    for _ in range(2):
        history.sync()
    assert [len(each) for each in synced if each] == [1, 4, 5]


@pytest.mark.parametrize("last", [each for each in SAMPLES if isinstance(each, Compared | EpochChosen | Reliability)])
def test_what_comes_after_training_is_synced_at_once(tmp_path, monkeypatch, last):
    synced, fsync = [], os.fsync
    history = HistoryFile(tmp_path / "history.json", clock=lambda: 10.0)
    history(evaluated(last.epoch - 1))
    history(evaluated(last.epoch))
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(fsync(handle)))
    history(last)
    assert synced


@pytest.mark.parametrize(
    "text", ["", "[{]", '[{"epoch": 1}]', "[3]", '[{"epoch": 1, "seconds": 1.0, "test_loss": 0.5}]']
)
def test_chaos_2_and_8_a_damaged_history_stops_no_run_and_is_put_aside(tmp_path, text):
    """A power cut left it empty or half, and the label party could not start."""
    path, said = tmp_path / "history.json", []
    path.write_text(text)
    history = HistoryFile(path, remark=said.append)
    assert (tmp_path / "history.json.damaged").read_text() == text
    assert len(said) == 1
    assert "history.json' was no history that fdml wrote" in said[0]
    history(evaluated(1))
    assert [row["epoch"] for row in rows(path)] == [1]


def test_chaos_9_epochs_that_are_gone_are_restored_from_what_the_checkpoint_knows(tmp_path):
    path, said = tmp_path / "history.json", []
    HistoryFile(path)(evaluated(2))
    HistoryFile(path, known=[evaluated(1), evaluated(2, 0.1), evaluated(3)], remark=said.append)
    assert [(row["epoch"], row["test_metric"]) for row in rows(path)] == [(1, 0.9), (2, 0.9), (3, 0.9)]
    assert said == ["history.json lacked epochs 1, 3; the checkpoint knew them"]


def test_nothing_is_said_of_a_history_that_is_whole(tmp_path):
    path, said = tmp_path / "history.json", []
    HistoryFile(path)(evaluated(1))
    again = HistoryFile(path, known=[evaluated(1)], remark=said.append)
    assert said == []
    assert again.lacking(1, each_epoch=True) == ""


@pytest.mark.parametrize(
    ("known", "last", "each_epoch", "lacking"),
    [
        ((1, 2, 3), 3, True, ""),
        ((2,), 3, True, "epochs 1, 3"),
        ((5,), 6, True, "epochs 1 to 4, 6"),
        ((1, 3), 3, True, "epoch 2"),
        ((3,), 3, False, ""),
        ((), 3, False, "epoch 3"),
        ((), 2, True, "epochs 1 to 2"),
    ],
)
def test_chaos_9_epochs_that_nobody_knows_any_more_are_named(tmp_path, known, last, each_epoch, lacking):
    history = HistoryFile(tmp_path / "history.json")
    for epoch in known:
        history(evaluated(epoch))
    assert history.lacking(last, each_epoch=each_epoch) == lacking


def test_a_run_that_ended_early_lacks_nothing_behind_its_end(tmp_path):
    history = HistoryFile(tmp_path / "history.json")
    history(evaluated(1))
    history(Stopped("ann", 9, "spent"))
    assert history.lacking(5, each_epoch=True) == ""
    assert HistoryFile(tmp_path / "other.json").lacking(0, each_epoch=True) == ""


def test_the_epoch_that_held_out_rows_have_chosen_is_marked(tmp_path):
    history = HistoryFile(tmp_path / "history.json")
    for epoch in (1, 2, 3):
        history(evaluated(epoch))
    history(EpochChosen("ann", 2))
    assert [row["chosen"] for row in rows(tmp_path / "history.json")] == [False, True, False]
    assert [row.chosen for row in read_history(tmp_path / "history.json").values()] == [False, True, False]
    history(EpochChosen("ann", 9))
    assert [row["chosen"] for row in rows(tmp_path / "history.json")] == [False, True, False]


def test_how_well_probabilities_came_true_stands_beside_its_epoch_and_is_read_again(tmp_path):
    path = tmp_path / "history.json"
    (found,) = [event for event in SAMPLES if isinstance(event, Reliability)]
    history = HistoryFile(path)
    history(evaluated(3))
    history(found)
    assert rows(path)[0]["reliability"]["lift"] == [2.0, 1.0]
    assert read_history(path)[3].reliability == found
