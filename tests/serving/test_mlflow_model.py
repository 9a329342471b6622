"""An MLflow model of an endpoint: saved as code, loaded by MLflow, with no token in it."""

import warnings

import numpy as np
import pandas as pd
import pytest

from fdml.errors import RequestRefused
from tests.serving.online.served import OpenEndpoint
from tests.serving.published import VERSION, run_of

with warnings.catch_warnings():  # MLflow warns of its own type hints
    warnings.simplefilter("ignore")
    import mlflow

    from fdml.serving.mlflow_model import TOKEN_FILE, save_model

pytestmark = pytest.mark.slow
TOKEN = b"0123456789abcdef0123"


@pytest.fixture(autouse=True)
def quiet():
    """MLflow warns of what its own dependencies do."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def loaded(path):
    return mlflow.pyfunc.load_model(str(path))


def test_a_saved_model_predicts_what_the_endpoint_says(tmp_path):
    with OpenEndpoint() as served:
        save_model(tmp_path / "model", served.url, "first", version=VERSION)
        found = loaded(tmp_path / "model").predict(pd.DataFrame({"user": ["r1", "stranger"]}))
        assert found["score"][0] == served.total([1])[0, 0]
        assert np.isnan(found["score"][1])
        assert found["missing"].tolist() == ["", "ann,bob,cid"]
        assert list(found.columns) == ["score", "probability", "prediction", "answered", "missing", "why"]
        assert loaded(tmp_path / "model").metadata.signature.inputs.input_names() == ["user"]


def test_scores_of_several_classes_have_a_column_each(tmp_path):
    with OpenEndpoint(run=run_of(task="multiclass")) as served:
        save_model(tmp_path / "model", served.url, "first")
        found = loaded(tmp_path / "model").predict(pd.DataFrame({"user": ["r1"]}))
        assert {"score_0", "score_2", "probability_1", "prediction"} <= set(found.columns)


def test_the_token_comes_from_a_file_and_is_in_no_file_of_the_model(tmp_path, monkeypatch):
    token = tmp_path / "token"
    token.write_bytes(TOKEN + b"\n")
    with OpenEndpoint(token=TOKEN) as served:
        save_model(tmp_path / "model", served.url, "first", token=TOKEN.decode())
        model = loaded(tmp_path / "model")
        with pytest.raises(RequestRefused, match="no token"):
            model.predict(pd.DataFrame({"user": ["r1"]}))
        monkeypatch.setenv(TOKEN_FILE, str(token))
        assert model.predict(pd.DataFrame({"user": ["r1"]}))["answered"].tolist() == ["ann,bob,cid"]
    files = [path for path in (tmp_path / "model").rglob("*") if path.is_file()]
    assert not [path for path in files if TOKEN in path.read_bytes()]
    assert not [path for path in files if path.suffix == ".pkl"], "it is saved as code"


def test_a_model_in_a_file_store_can_be_loaded_by_its_run(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri((tmp_path / "store").as_uri())
    try:
        with OpenEndpoint() as served, mlflow.start_run() as run:
            save_model(tmp_path / "model", served.url, "first")
            mlflow.log_artifacts(str(tmp_path / "model"), "scores")
            model = mlflow.pyfunc.load_model(f"runs:/{run.info.run_id}/scores")
            assert model.predict(pd.DataFrame({"user": ["r2"]}))["score"][0] == served.total([2])[0, 0]
    finally:
        mlflow.set_tracking_uri(None)
