"""A run in MLflow's file store is read by MLflow's own client."""

import warnings

import pytest

with warnings.catch_warnings():  # MLflow warns of its own type hints
    warnings.simplefilter("ignore")
    from mlflow import MlflowClient

    from fdml.monitor.mlflow_runs import HASH, PARTY, MlflowRun

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning")
TAGS = {HASH: "ab" * 32, PARTY: "ann"}
SETTINGS = {f"training.setting_{number}": str(number) for number in range(150)}


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def started(store, **changed):
    return MlflowRun(store, "shop", **{"name": "first", "tags": TAGS, "settings": SETTINGS, **changed})


def runs_in(store):
    client = MlflowClient(store)
    return client, client.search_runs([client.get_experiment_by_name("shop").experiment_id])


def values(store, key):
    client, (run,) = runs_in(store)
    return [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, key)]


def test_mlflow_reads_name_settings_and_every_epoch(store):
    run = started(store)
    for epoch in (1, 2):
        run.write(epoch, {"held_out/auc": epoch / 4, "train/loss": 0.5})
    run.close(finished=True)
    _, (found,) = runs_in(store)
    assert (found.info.run_name, found.info.status) == ("first", "FINISHED")
    assert found.data.params == SETTINGS
    assert found.data.metrics == {"held_out/auc": 0.5, "train/loss": 0.5}
    assert values(store, "held_out/auc") == [(1, 0.25), (2, 0.5)]


def test_nothing_of_who_runs_it_is_written(store):
    started(store).close(finished=True)
    _, (found,) = runs_in(store)
    assert set(found.data.tags) == {HASH, PARTY, "mlflow.runName", "fdml.finished"}


def test_a_later_start_goes_on_with_the_same_run_and_repeats_nothing(store):
    first = started(store)
    for epoch in (1, 2, 3):
        first.write(epoch, {"held_out/auc": 0.5})
    first.close(finished=False)
    assert runs_in(store)[1][0].info.status == "KILLED"
    second = started(store)
    assert runs_in(store)[1][0].info.status == "RUNNING"
    for epoch in (3, 4):
        second.write(epoch, {"held_out/auc": 0.75})
    second.write(4, {"alone/auc": 0.25})
    second.close(finished=True)
    assert values(store, "held_out/auc") == [(1, 0.5), (2, 0.5), (3, 0.5), (4, 0.75)]
    assert values(store, "alone/auc") == [(4, 0.25)]


def test_another_run_or_another_party_has_a_run_of_its_own(store):
    for tags in (TAGS, {**TAGS, HASH: "cd" * 32}, {**TAGS, PARTY: "bob"}):
        started(store, tags=tags).close(finished=True)
    assert len(runs_in(store)[1]) == 3


def test_what_mlflow_cannot_do_is_one_line(store, tmp_path):
    (tmp_path / "mlruns").write_text("a file")
    with pytest.raises(OSError, match=r"^[^\n]+$"):
        started(store)


def test_a_server_that_is_not_there_is_one_line(monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(OSError, match=r"127\.0\.0\.1"):
        started("http://127.0.0.1:9")
