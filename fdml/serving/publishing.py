"""Computes a party's column: local predictions of all rows of its files, as they may leave."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from fdml.cluster.parts import PartedSource
from fdml.data.id_hashes import HashIds, hash_ids
from fdml.data.rows import row_count
from fdml.data.sources import Source
from fdml.errors import DataError
from fdml.models.bundle import Bundle
from fdml.models.bundle_model import kept_settings
from fdml.models.kind import ModelSpec
from fdml.models.losses import Floats
from fdml.models.model import Model
from fdml.models.objective import joint_for
from fdml.models.registry import build_model
from fdml.models.row_pointers import predict_rows
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import Codes, grid_of
from fdml.serving.column import Column
from fdml.serving.keys import ServingKeys
from fdml.settings import RunSettings
from fdml.settings.joint import scores_in

PURPOSE = "serving"
"""Of the noise on answers."""


def model_of(bundle: Bundle, run: RunSettings) -> Model:
    """The trained model of a bundle of this run."""
    model = build_model(kept_settings(bundle), spec_of(bundle, run))
    model.restore(bundle.parameters)
    return model


def spec_of(bundle: Bundle, run: RunSettings) -> ModelSpec:
    """What the model of a bundle was built for."""
    card = bundle.card
    if card.width is None:
        raise DataError(
            f"the bundle of run {card.run!r} does not say how many outputs its model has: an older fdml wrote it; "
            f"train again under a new name of the run"
        )
    return ModelSpec(
        inputs=len(bundle.encoder.names),
        width=card.width,
        bias=card.party == run.label_party or run.training.exchanges is not None,
        key=(run.training.seed, "model", card.party),
        joint=joint_for(run.training, scores_in(run.training, card.width)),
    )


def local_predictions(model: Model, source: Source) -> Floats:
    """Of all rows of a file, `(rows, width)`. Workers that were set up with the model have made them already."""
    if isinstance(source, PartedSource) and source.has_predictions:
        return source.predictions()
    parts = [predict_rows(model, rows, 0, row_count(rows)) for rows in source.chunks()]
    return np.concatenate(parts)


def released_codes(
    predictions: Floats, run: RunSettings, bits: int, mechanism: Mechanism, noise: NoiseKey, number: int
) -> tuple[Codes, Codes]:
    """Predictions as they may leave, and the same without noise, int64; a row past what can travel is cut."""
    grid, parties = grid_of(bits, run.training.max_prediction), len(run.parties)
    bound = grid.largest(parties)
    cut = np.clip(predictions.astype(np.float64), -bound, bound)  # in single precision a bound may round up
    plain = Perturbation(Mechanism("none", mechanism.clip, 0.0), None, grid, parties)
    exact = plain.protect(cut, PURPOSE, 0).astype(np.int64)
    if mechanism.noise == "none":
        return exact, exact
    noisy = Perturbation(mechanism, noise, grid, parties).protect(cut, PURPOSE, number)
    return noisy.astype(np.int64), exact


def column_of(
    bundle: Bundle,
    run: RunSettings,
    sources: Sequence[Source],
    keys: ServingKeys,
    *,
    bits: int,
    mechanism: Mechanism,
    noise: NoiseKey,
    number: int,
    hashed: HashIds = hash_ids,
) -> Column:
    """The column of all rows that have an id; of an id in two files the row of the first counts."""
    model = model_of(bundle, run)
    texts, found = [], []
    for source in sources:
        ids = source.ids()
        if ids is None:
            raise DataError(
                "rows were matched by position, and there are no ids to ask by; set data.id, then train again"
            )
        texts.append(ids.texts)
        found.append(local_predictions(model, source)[ids.rows])
    codes, exact = released_codes(np.concatenate(found), run, bits, mechanism, noise, number)
    return Column.of(keys.tokens_of(pa.concat_arrays(texts), hashed), codes, exact)
