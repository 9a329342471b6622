"""A model of `fdml endpoint` as an MLflow pyfunc: `predict` of a frame of ids asks the endpoint.

Saved with `save_model`, it holds the endpoint's address and the model's name. The token is read when it predicts, from
the file that FDML_TOKEN_FILE names, and is never saved. The model is saved as code, not as a pickle.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
from mlflow.models import ModelSignature
from mlflow.pyfunc.model import PythonModel
from mlflow.types import ColSpec, DataType, Schema

from fdml.errors import SettingsError
from fdml.serving.client import EndpointClient

TOKEN_FILE = "FDML_TOKEN_FILE"  # noqa: S105 (the name of a variable)
"""The environment variable that names the file with the token."""
_CODE = "mlflow_code.py"
_MOST_ROWS = 50_000
"""Of one request."""


class EndpointModel(PythonModel):
    """Asks an endpoint for the rows of a frame, whose columns are those of the ids."""

    def load_context(self, context: Any) -> None:
        """Take the address and the name from the saved model."""
        self._config: Mapping[str, str] = dict(context.model_config)
        lacking = [key for key in ("url", "model") if not self._config.get(key)]
        if lacking:
            raise SettingsError(f"the saved model has no {lacking[0]!r}; write it with fdml.serving.mlflow_model")

    def predict(
        self,
        context: Any,  # noqa: ARG002
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> pd.DataFrame:
        """Score, probability, prediction, and which parties answered, are missing and why, for every row."""
        config, token_file = self._config, os.environ.get(TOKEN_FILE)
        token = None if token_file is None else Path(token_file).read_text(encoding="ascii").strip()
        with EndpointClient(config["url"], token=token) as client:
            parts = [
                _frame(client, config, model_input.iloc[first : first + _MOST_ROWS])
                for first in range(0, len(model_input), _MOST_ROWS)
            ]
        return pd.concat(parts, ignore_index=True)


def save_model(path: Path, url: str, model: str, *, version: str | None = None, token: str | None = None) -> None:
    """Write an MLflow model that asks this endpoint; its signature is that of the endpoint's model now."""
    with EndpointClient(url, token=token) as client:
        inputs = client.model(model, version)["inputs"]
    signature = ModelSignature(inputs=Schema([ColSpec(DataType.string, each["name"]) for each in inputs]))
    config = {"url": url, "model": model, **({"version": version} if version else {})}
    mlflow.pyfunc.save_model(
        path,
        python_model=str(Path(__file__).with_name(_CODE)),
        model_config=config,
        signature=signature,
        pip_requirements=["fdml[mlflow]"],
    )


def _frame(client: EndpointClient, config: Mapping[str, str], rows: pd.DataFrame) -> pd.DataFrame:
    ids = {str(name): rows[name].astype(str).tolist() for name in rows.columns}
    found = client.predict(config["model"], ids, version=config.get("version"))
    columns: dict[str, Any] = {}
    for name, values in (("score", found.score), ("probability", found.probability)):
        if values is not None and values.ndim > 1:
            columns |= {f"{name}_{at}": values[:, at] for at in range(values.shape[1])}
        elif values is not None:
            columns[name] = values
    columns |= {name: getattr(found, name) for name in ("prediction", "answered", "missing", "why")}
    return pd.DataFrame(columns)
