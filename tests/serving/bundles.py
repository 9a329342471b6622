"""A bundle with random parameters, and rows that fit it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from fdml.data.encoding import Encoder
from fdml.data.origins import frame_origins
from fdml.data.sources import open_sources
from fdml.models.bundle import Bundle
from fdml.models.bundle_card import BundleCard
from fdml.models.kind import ModelSpec
from fdml.models.registry import build_model, model_settings
from fdml.settings.data import DataSettings
from tests.serving.published import run_of

DATA = DataSettings(id="id")
ROWS = 50


def frame(rows=ROWS, first=0):
    random = np.random.default_rng(rows + first)
    ids = [f"r{at}" for at in range(first, first + rows)]
    return pa.table({"id": ids, "a": random.normal(size=rows), "b": random.normal(size=rows)})


def bundle_of(kind="linear", width=1, party="bob", task="binary"):
    """A bundle whose parameters are random, as if it had been trained."""
    run, (source,) = run_of(task=task), open_sources(DATA, origins=frame_origins(frame()))
    assert isinstance(source.encoder, Encoder)
    settings = model_settings(kind, l2=0.0, optimizer="sgd")
    model = build_model(settings, ModelSpec(len(source.names), width, party == "ann", (1, party)))
    random = np.random.default_rng(3)
    state = {
        name: random.normal(size=array.shape).astype(array.dtype) if array.dtype.kind == "f" else array
        for name, array in model.state().items()
    }
    card = BundleCard.of(run=run, party=party, model=settings, data=DATA, alignment_hash=b"d" * 32, width=width)
    return Bundle(card=card, parameters=state, encoder=source.encoder)
