"""Event files are read by TensorBoard's own reader."""

import warnings

import pytest

from fdml.monitor.tensorboard_files import EventFiles

with warnings.catch_warnings():  # TensorBoard's readers warn of what they import
    warnings.simplefilter("ignore")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def scalars(folder):
    """By tag, the steps and values that TensorBoard shows."""
    found = EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(each.step, each.value) for each in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def written(folder, *epochs, value=0.5):
    files = EventFiles(folder)
    for epoch in epochs:
        files.write(epoch, {"held_out/auc": value, "lag/mean": 0.25})
    return files


def test_tensorboard_reads_every_epoch(tmp_path):
    written(tmp_path / "runs" / "first", 1, 2, 3).close(finished=True)
    assert scalars(tmp_path / "runs" / "first") == {
        "held_out/auc": [(1, 0.5), (2, 0.5), (3, 0.5)],
        "lag/mean": [(1, 0.25), (2, 0.25), (3, 0.25)],
    }


def test_figures_are_there_while_the_run_goes_on(tmp_path):
    files = written(tmp_path / "first", 1)
    assert scalars(tmp_path / "first")["held_out/auc"] == [(1, 0.5)]
    files.close(finished=False)


def test_epochs_that_are_done_again_after_a_crash_are_shown_once(tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1_000_000.0)
    written(tmp_path / "first", 1, 2, 3)  # and killed
    monkeypatch.setattr("time.time", lambda: 1_000_060.0)
    written(tmp_path / "first", 3, 4, value=0.75).close(finished=True)
    assert scalars(tmp_path / "first")["held_out/auc"] == [(1, 0.5), (2, 0.5), (3, 0.75), (4, 0.75)]


def test_only_the_owner_may_look(tmp_path):
    written(tmp_path / "first", 1).close(finished=True)
    assert (tmp_path / "first").stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_an_error_that_the_run_survives(tmp_path):
    (tmp_path / "first").write_text("a file")
    with pytest.raises(OSError, match="first"):
        EventFiles(tmp_path / "first")
