"""A party's model for other programs: an ONNX file, or a scorecard of its weights. It is the party's own part alone."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from fdml.data.encoding import Encoder
from fdml.data.rows import as_rows
from fdml.errors import SettingsError
from fdml.extras import need
from fdml.federation.run_folder import MODEL, RUNS, begun_run
from fdml.models.bundle import Bundle
from fdml.models.bundle_model import kept_settings
from fdml.models.compiled import CompiledModel
from fdml.models.layers import PlainModel
from fdml.models.registry import build_model, kind_named
from fdml.serving.publishing import spec_of
from fdml.settings import RunSettings
from fdml.storage.atomic import write_file

_CHECKED_ROWS = 256
BIAS = "(bias)"
"""In the place of a feature's name."""


def export_onnx(home: Path, run: str, path: Path) -> float:
    """Write the model of a run as ONNX; the largest difference that onnxruntime has on rows drawn at random."""
    for module in ("onnx", "onnxruntime"):
        need(module, "an ONNX file")
    from fdml.models import onnx_file  # noqa: PLC0415 (an extra)

    bundle = Bundle.load(home / RUNS / run / MODEL)
    model, plain = _exportable(bundle, begun_run(home, run))
    card = bundle.card
    facts = {"run": card.run, "party": card.party, "version": card.version, "fdml_version": card.fdml_version}
    made = onnx_file.onnx_bytes(plain, bundle.encoder.names, facts)
    random = np.random.default_rng(0)
    rows = random.normal(size=(_CHECKED_ROWS, len(bundle.encoder.names))).astype(np.float32)
    rows *= random.random(rows.shape) < 0.5
    worst = onnx_file.check_same(made, rows, model.predict(as_rows(rows)))
    write_file(path, made)
    return worst


def export_scorecard(home: Path, run: str, path: Path) -> int:
    """Write the weights of a linear model as CSV, the bias last; how many rows.

    A number counts as (value - minus) / divided_by times its weight, a category as its weight.
    """
    bundle = Bundle.load(home / RUNS / run / MODEL)
    _, plain = _exportable(bundle, begun_run(home, run))
    if len(plain.layers) > 1 or plain.factors is not None:
        kind = bundle.card.settings.model.get("kind")
        raise SettingsError(f"a scorecard is for linear models, and this one is of kind {kind!r}; take --onnx")
    layer, width = plain.layers[0], len(plain.layers[0].bias)
    scaling = _scaling(bundle)
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(["feature", "minus", "divided_by", *(["weight"] if width == 1 else _numbered(bundle, width))])
    for at, name in enumerate(bundle.encoder.names):
        writer.writerow([name, *scaling.get(name, (0.0, 1.0)), *layer.weights[at].tolist()])
    writer.writerow([BIAS, "", "", *layer.bias.tolist()])
    write_file(path, text.getvalue().encode())
    return len(bundle.encoder.names) + 1


def _numbered(bundle: Bundle, width: int) -> list[str]:
    """The columns of several outputs: by class where the party knows them."""
    classes = None if bundle.labels is None else bundle.labels.classes
    return [f"weight_{each}" for each in (range(width) if classes is None else classes)]


def _exportable(bundle: Bundle, run: RunSettings) -> tuple[CompiledModel, PlainModel]:
    """The trained model in double precision, which leaves rounding out, and its plain weights."""
    settings = kept_settings(bundle, precision="double")
    spec, layers = spec_of(bundle, run), kind_named(settings.kind).layers
    model = build_model(settings, spec)
    if run.training.joint != "sum":
        raise SettingsError(
            f'the model sends vectors for joint = "{run.training.joint}", which no other program reads; only models of '
            f'joint = "sum" can be exported'
        )
    if settings.column_groups:
        raise SettingsError("a model in column groups is several models, which no exported file has; predict with fdml")
    if layers is None or not isinstance(model, CompiledModel):
        raise SettingsError(f"a model of kind {settings.kind!r} cannot be exported; linear, fm and mlp can")
    model.restore(bundle.parameters)
    return model, layers(settings, spec, model.parameters)


def _scaling(bundle: Bundle) -> dict[str, tuple[float, float]]:
    """By feature that is a scaled number: what is taken off, and by what it is divided."""
    found: dict[str, tuple[float, float]] = {}
    for feature in bundle.encoder.features if isinstance(bundle.encoder, Encoder) else ():
        name, kept = feature.names[0], vars(feature)
        if "deviation" in kept:
            found[name] = (kept["mean"], kept["deviation"])
        elif "high" in kept:
            found[name] = ((kept["low"] + kept["high"]) / 2, (kept["high"] - kept["low"]) / 2)
    return found
