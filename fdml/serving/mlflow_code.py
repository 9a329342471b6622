"""The code of a saved MLflow model: MLflow runs this file to load one."""

from mlflow.models import set_model

from fdml.serving.mlflow_model import EndpointModel

set_model(EndpointModel())
