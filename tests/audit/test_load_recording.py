"""Recordings: what is read from a finished run's folders is what travelled."""

import json
import re
import shutil

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from benchmarks.cluster import running, write_run
from fdml.audit.load_recording import read_recording
from fdml.cli.audit import audit
from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.errors import DataError
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.protocol.fixed_point import decode
from fdml.protocol.wire_pb2 import Record
from fdml.settings import PrivacySettings, TrainingSettings
from fdml.storage.disk import FolderDisk
from fdml.storage.journal import Journal
from tests.audit.in_process_recording import record_in_process
from tests.audit.recorded import NOISE, recorded

pytestmark = pytest.mark.slow

TRAINING = TrainingSettings(epochs=3, batch_size=16, batches_per_block=2, learning_rate=0.5)


def small(**settings):
    chance = np.random.default_rng(1)
    parts = {name: chance.normal(size=(70, 3)) for name in "abc"}
    return recorded(parts, (parts["a"][:, 0] > 0).astype(float), TRAINING, **settings)


@pytest.mark.parametrize("server", ["plain", "blind"])
@pytest.mark.parametrize("labels", ["shared", "private"])
def test_masks_hide_what_travels_and_change_nothing_else(server, labels):
    recording = small(privacy=PrivacySettings(server=server, labels=labels))
    alike = small(privacy=PrivacySettings(labels=labels))
    for party in "abc":
        assert sorted(recording.pushes[party]) == list(range(recording.schedule.steps))
        for step, push in recording.pushes[party].items():
            shown = decode(push.release.values).reshape(-1, 1)
            assert np.array_equal(shown, recording.plain[party][step]) == (server == "plain")
            np.testing.assert_array_equal(recording.plain[party][step], alike.plain[party][step])
    assert len(recording.gradients) == (recording.schedule.steps if labels == "private" else 0)
    assert np.array_equal(recording.truth.labels, recording.truth.shown_labels) == (labels == "shared")


def test_a_guards_noise_is_in_what_travels():
    recording, bare = small(guard=NOISE), small()
    assert recording.mechanisms["b"].sigma == 8
    assert np.std(recording.plain["b"][0] - bare.plain["b"][0]) > 4


def test_held_out_rows_are_tried_after_every_epoch():
    chance = np.random.default_rng(1)

    def sample(rows):
        return RowSet(
            {name: as_rows(chance.normal(size=(rows, 2))) for name in "ab"}, np.arange(rows) % 2.0, np.ones(rows)
        )

    plan = Plan(TRAINING, dict.fromkeys("ab", model_settings(optimizer="sgd", l2=1e-4)), "a", "logistic", 2)
    recording = record_in_process(plan, sample(40), sample(10))
    assert sorted(recording.held_out["a"]) == [1, 2, 3]
    assert recording.held_out["b"][3].release.values.size == 10


# A run of processes.


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run of two parties, private labels and a blind server."""
    home = tmp_path_factory.mktemp("audited") / "run"
    chance = np.random.default_rng(0)
    X = chance.normal(size=(400, 6)).astype(np.float32)
    settings = '[training]\nepochs = 3\nbatches_per_block = 2\n[privacy]\nlabels = "private"\nserver = "blind"'
    write_run(home, settings, (X[:, :3], X[:, 3:]), (X[:, 0] > 0).astype(np.int64), ('kind = "linear"',) * 2)
    with running(home, ("p0", "p1")) as cluster:
        cluster.finish()
    return home


@pytest.mark.slow
def test_a_finished_run_is_read_as_it_went(finished):
    recording = read_recording(finished / "run.toml")
    schedule = recording.schedule
    for party in ("p0", "p1"):
        assert sorted(recording.plain[party]) == list(range(schedule.steps))
        last = schedule.visit(schedule.steps - 1)
        features, model = recording.truth.features[party], recording.truth.models[party]
        now = model.predict(features, last.start, last.stop)
        assert np.abs(recording.plain[party][schedule.steps - 1] - now).max() < 0.5
        np.testing.assert_array_equal(recording.plain[party][0], 0.0)
    agree = (recording.gradients[0][:, 0] < 0) == recording.truth.shown_labels[slice(*schedule.visit(0)[2:])]
    assert agree.all()
    assert 0.7 < (recording.truth.labels == recording.truth.shown_labels).mean() < 1.0


@pytest.mark.slow
def test_the_command_shows_every_result_and_fails_where_one_does(finished):
    app = typer.Typer()
    app.command()(audit)
    result = CliRunner().invoke(
        app, [str(finished / "run.toml"), "--only", "a4,A5", "--json", str(finished / "audit.json")]
    )
    figures = json.loads((finished / "audit.json").read_text())
    assert {result["test"] for result in figures["results"]} == {"A4", "A5"}
    failed = figures["counts"].get("FAIL", 0)
    assert result.exit_code == (1 if failed else 0)
    assert re.search(rf"{failed} failed", result.output)


@pytest.mark.slow
def test_a_log_that_was_begun_anew_is_refused(finished, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(finished, copy)
    Journal(FolderDisk(copy / "server" / "runs" / "first" / "state"), "journal").restart(
        [Record(number=9).SerializeToString()]
    )
    with pytest.raises(DataError, match="begins anew"):
        read_recording(copy / "run.toml")


def test_a_run_that_never_was_is_refused(tmp_path):
    (tmp_path / "federation.toml").write_text('parties = ["a", "b"]\n')
    (tmp_path / "run.toml").write_text('label_party = "a"\n')
    with pytest.raises(DataError, match="fdml simulate"):
        read_recording(tmp_path / "run.toml")
