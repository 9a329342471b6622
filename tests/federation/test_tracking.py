"""What a run's [track] leaves for TensorBoard and MLflow, at each party."""

import os
import warnings

import pytest

from fdml import extras
from fdml.errors import MissingExtra, SettingsError
from fdml.federation.check import check
from fdml.federation.join import join
from fdml.federation.tracking import _FOR_MLFLOW
from fdml.monitor.history import read_history
from fdml.party.settings import TrackSettings, read_party
from tests.federation.folders import EPOCHS, RUN, serving, together, write_run
from tests.federation.test_run_report import COLUMN, ID, KEY, NO, YES, plant_canaries, values_of

with warnings.catch_warnings():  # both warn of what they import
    warnings.simplefilter("ignore")
    from mlflow import MlflowClient
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning")]
TRACK = '\n[track]\ntensorboard = "tb"\nmlflow = "mlruns"\nexperiment = "shop"\n'


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A whole run, tracked at both parties."""
    home = tmp_path_factory.mktemp("tracked") / "run"
    write_run(home, group_key=KEY)
    plant_canaries(home)
    for party in ("ann", "bob"):
        with (home / party / "party.toml").open("a") as file:
            file.write(TRACK)
    before, said = dict(os.environ), []
    with warnings.catch_warnings(), serving(home / "run.toml") as server:
        warnings.simplefilter("ignore")
        works = [
            lambda party=party: join(
                home / party / "party.toml", plain=True, server=server.address, on_event=said.append
            )
            for party in ("ann", "bob")
        ]
        together(*works)
    told = {name: os.environ[name] for name in _FOR_MLFLOW}
    for name in set(_FOR_MLFLOW) - set(before):
        del os.environ[name]
    assert not [each for each in said if "[track]" in getattr(each, "text", "")]
    return home, told


def mlflow_run(home, party, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    client = MlflowClient((home / party / "mlruns").as_uri())
    (run,) = client.search_runs([client.get_experiment_by_name("shop").experiment_id])
    return client, run


def scalars(home, party):
    found = EventAccumulator(str(home / party / "tb" / "first"))
    found.Reload()
    return {tag: {each.step: each.value for each in found.Scalars(tag)} for tag in found.Tags()["scalars"]}


@pytest.mark.slow
def test_tensorboard_shows_the_label_party_its_history(finished):
    home, _ = finished
    history, found = read_history(home / "ann" / RUN / "history.json"), scalars(home, "ann")
    assert len(history) == EPOCHS
    for epoch, row in history.items():
        assert found["held_out/loss"][epoch] == pytest.approx(row.test_loss)
        assert found["train/loss"][epoch] == pytest.approx(row.train_loss)
        assert found["held_out/auc"][epoch] == pytest.approx(row.figures["auc"])
    assert found["gain_over_alone/auc"][EPOCHS] == pytest.approx(history[EPOCHS].compared.gain)
    assert found["lag/mean"] == dict.fromkeys(range(1, EPOCHS + 1), 0.0)


@pytest.mark.slow
def test_mlflow_has_the_same_with_the_settings(finished, monkeypatch):
    home, told = finished
    history = read_history(home / "ann" / RUN / "history.json")
    client, run = mlflow_run(home, "ann", monkeypatch)
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert run.data.params["training.batch_size"] == "8"
    assert run.data.params["own_model.kind"] == "linear"
    losses = client.get_metric_history(run.info.run_id, "held_out/loss")
    assert [(each.step, each.value) for each in losses] == [(epoch, row.test_loss) for epoch, row in history.items()]
    assert told["MLFLOW_DISABLE_TELEMETRY"] == "true"


@pytest.mark.slow
def test_a_party_without_labels_tracks_no_figures_of_them(finished, monkeypatch):
    home, _ = finished
    names = {"lag/mean", "lag/largest"}
    assert set(scalars(home, "bob")) == names
    assert set(mlflow_run(home, "bob", monkeypatch)[1].data.metrics) == names


@pytest.mark.slow
@pytest.mark.parametrize("party", ["ann", "bob"])
def test_no_feature_label_id_or_key_reaches_a_tracker(finished, party):
    home, _ = finished
    files = [path for name in ("tb", "mlruns") for path in (home / party / name).rglob("*") if path.is_file()]
    assert files
    canaries = [each.encode() for each in (COLUMN, ID, YES, NO, KEY, *values_of(home))]
    for path in files:
        content = path.read_bytes()
        assert not [each for each in canaries if each in content], path
    assert (home / party / "mlruns").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("module", ["tensorboard", "mlflow"])
def test_a_tracker_that_is_not_installed_is_refused_before_anything_begins(tmp_path, monkeypatch, module):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "ann" / "party.toml"
    path.write_text(path.read_text() + f'\n[track]\n{module} = "figures"\n')
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == module else name)
    wanted = rf"\[track\] {module} needs .+ install it with `pip install fdml\[{module}\]`"
    with pytest.raises(MissingExtra, match=wanted):
        join(path, plain=True)
    assert not list((path.parent / "runs").rglob("run.json"))
    assert [each for each in check(path, plain=True).faults if f"fdml[{module}]" in each]


def test_paths_are_taken_from_the_party_s_folder_and_addresses_stay(tmp_path):
    write_run(tmp_path / "run")
    path = tmp_path / "run" / "ann" / "party.toml"
    text = path.read_text()
    path.write_text(text + TRACK)
    assert read_party(path).track == TrackSettings(
        tensorboard=path.parent / "tb", mlflow=(path.parent / "mlruns").as_uri(), experiment="shop"
    )
    path.write_text(text + '\n[track]\nmlflow = "https://mlflow.example"\n')
    assert read_party(path).track.mlflow == "https://mlflow.example"


def test_a_password_has_no_place_in_the_address():
    with pytest.raises(SettingsError, match="MLFLOW_TRACKING_USERNAME"):
        TrackSettings(mlflow="https://me:secret@mlflow.example")
