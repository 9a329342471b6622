"""The app store experiment on few rows: that its figures are what they say, not how good they are."""

import json
from itertools import pairwise

import numpy as np
import pytest

from benchmarks import app_store
from benchmarks.app_store import MODELS, PAPER_AUC, epoch_seconds
from benchmarks.cluster import usages
from fdml.data.samples.app_store.dataset import PARTIES, AppStore
from fdml.data.samples.app_store.settings import CHOICES, NAME
from fdml.errors import FdmlError
from fdml.experiments.party_folders import dataset_of, read_party_folders
from fdml.federation.scaffold import write_keys
from fdml.monitor.history import EpochRecord
from fdml.settings.federation import read_run

pytestmark = pytest.mark.slow
ROWS = 4000


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    home = tmp_path_factory.mktemp("app-store") / "twin"
    AppStore(ROWS).write(home)
    write_keys(home, NAME, PARTIES)
    return home, app_store.run_processes(home, "linear")


def opened(home):
    settings = read_run(home / "run.toml")
    folders = read_party_folders(home / "run.toml", settings)
    return settings, folders, dataset_of(settings, folders)


def test_the_processes_tell_their_seconds_bytes_and_memory(trained):
    home, joint = trained
    assert list(joint.seconds) == list(range(1, CHOICES["linear"].epochs + 1))
    seconds = [0.0, *joint.seconds.values()]
    assert all(after > before + 1e-4 for before, after in pairwise(seconds)), "the first step counts too"
    assert set(joint.usage) == {"server", *PARTIES}
    assert all(50 < usage.memory < 2000 and usage.cpu > 0 for usage in joint.usage.values())
    largest = max(usage.memory for usage in joint.usage.values())
    assert 100 < joint.memory.own < joint.memory.resident
    assert largest / 2 < joint.memory.resident < sum(usage.memory for usage in joint.usage.values())
    least = 2 * ROWS * 0.9 * CHOICES["linear"].epochs
    assert all(least < came < 10 * least and went > least for came, went in joint.usage["server"].traffic.values())
    assert usages(home, PARTIES) == joint.usage


def test_the_records_are_of_the_models_that_the_processes_left(trained):
    home, joint = trained
    settings, folders, problem = opened(home)
    records = app_store.joint_records(settings, folders, problem, joint.seconds)
    told = json.loads((home / "store" / "runs" / "first" / "history.json").read_text())
    assert [record.test_metric for record in records] == pytest.approx(
        [each["test_metric"] for each in told], abs=5e-3
    ), "but for rounding to 16 bits"
    assert [record.seconds for record in records] == list(joint.seconds.values())


def test_a_model_that_differs_is_no_result(trained):
    home, joint = trained
    settings, folders, problem = opened(home)
    moved = settings.model_copy(update={"training": settings.training.model_copy(update={"seed": 8})})
    with pytest.raises(FdmlError, match="differs between processes and one process"):
        app_store.joint_records(moved, folders, problem, joint.seconds)


def test_all_shared_rows_are_trained_on_or_held_out_once(trained):
    _, _, problem = opened(trained[0])
    assert len(problem.train) + len(problem.test) == ROWS
    assert len(problem.test) == ROWS // 10
    assert 0.01 < np.mean(problem.train.labels) < 0.04


def test_every_scheme_has_the_papers_figure_and_an_epoch_its_own_seconds():
    assert len(PAPER_AUC) == 3 * len(MODELS)
    records = [EpochRecord(epoch, at, 0, 0, 0) for epoch, at in ((1, 2.0), (2, 5.0), (3, 9.0))]
    assert epoch_seconds(records) == [2.0, 3.0, 4.0]
