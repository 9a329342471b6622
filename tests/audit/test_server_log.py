"""A13 and A14 on the log that the server of a finished run of processes leaves: findings 1 and 2."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.cluster import running, write_run
from fdml.align.sealed_metrics import open_metrics, pack_figures
from fdml.audit.load_recording import read_recording
from fdml.audit.metric_inference import infer_from_metrics
from fdml.audit.retraining import retrain_and_compare
from fdml.federation.party_folder import PartyFolder
from fdml.protocol.messages import Finished, SealedMetrics
from fdml.storage.arrays import hash_arrays

pytestmark = pytest.mark.slow

PARTIES = ("p0", "p1")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run of a plain server and shared labels: 250 rows, 50 of them held out, 20 epochs."""
    home = tmp_path_factory.mktemp("logged") / "run"
    chance = np.random.default_rng(0)
    X = chance.normal(size=(250, 6)).astype(np.float32)
    labels = (X[:, 0] + X[:, 4] + 2.0 * chance.normal(size=250) > 0.5).astype(np.int64)
    settings = "[training]\nepochs = 20\nbatch_size = 20\nbatches_per_block = 2\n[evaluation]\nholdout = 0.2"
    write_run(home, settings, (X[:, :3], X[:, 3:]), labels, ('kind = "linear"',) * 2)
    with running(home, PARTIES) as cluster:
        cluster.finish()
    return home


def test_a13_finds_no_label_in_the_log_and_all_in_one_of_the_old_kind(finished):
    recording = read_recording(finished / "run.toml")
    assert len(recording.truth.held_out_labels) == 50
    labels, balance = infer_from_metrics(recording)
    assert (labels.outcome, labels.gain, balance.outcome) == ("PASS", 0.0, "PASS")
    key = PartyFolder(finished / "p1" / "party.toml").shared_rows().key
    opened = [open_metrics(key, each) for each in recording.metrics.values()]
    plain = {
        each.epoch: SealedMetrics(
            each.epoch, pack_figures(each.seconds, each.train_loss, each.test_loss, each.test_metric)
        )
        for each in opened
    }
    labels, balance = infer_from_metrics(replace(recording, metrics=plain))
    assert (labels.outcome, labels.score, balance.outcome) == ("FAIL", 1.0, "FAIL")


def test_a14_confirms_no_cell_by_the_log_and_every_one_by_one_of_the_old_kind(finished):
    recording = read_recording(finished / "run.toml")
    assert {each.outcome for each in retrain_and_compare(recording)} == {"PASS"}
    hashes = {party: Finished(hash_arrays(model.state())) for party, model in recording.truth.models.items()}
    before = retrain_and_compare(replace(recording, finished=hashes))
    assert [(each.outcome, each.score) for each in before] == [("FAIL", 1.0)] * 2


def test_no_figure_and_no_hash_of_a_model_is_in_anything_that_the_server_stored(finished):
    recording = read_recording(finished / "run.toml")
    key = PartyFolder(finished / "p0" / "party.toml").shared_rows().key
    stored = b"".join(
        path.read_bytes() for path in (finished / "server" / "runs" / "first" / "state").rglob("*") if path.is_file()
    )
    for sealed in recording.metrics.values():
        assert sealed.sealed in stored, "what was sent is there, sealed"
        found = open_metrics(key, sealed)
        for figure in (found.train_loss, found.test_loss):
            assert np.float64(figure).tobytes() not in stored
            assert repr(figure).encode() not in stored
    for party, model in recording.truth.models.items():
        digest = hash_arrays(model.state())
        assert recording.finished[party].model_mac in stored
        assert digest not in stored
        assert digest.hex().encode() not in stored
