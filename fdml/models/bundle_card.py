"""The card of a bundle: which run and version it is of, and what a user should know before predicting with it."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from fdml.events import Compared, ComparedVersion, Evaluated
from fdml.privacy.statement import Spent
from fdml.protocol.messages import Metrics
from fdml.settings import ModelSettings, RunSettings, run_hash
from fdml.settings.data import PLACES, DataSettings


def version_of(run_hash: bytes, alignment_hash: bytes) -> str:
    """The name that the bundles of all parties of one run share: a hash of the run's settings and its shared rows.

    It is not a hash of parameters, as nothing made of them may leave a party. So the same run.toml trained again over
    the same alignment has the same version, even where noise, staleness or a party's own model settings made other
    parameters; `created` on the card tells the two apart. A new alignment has a new version, unless the
    rows are matched by position: then only their number counts.
    """
    digest = hashlib.blake2b(digest_size=16, person=b"fdml version")
    for part in (run_hash, alignment_hash):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class BundleSettings:
    """The settings a model was trained with, as JSON values."""

    run: dict[str, Any]
    model: dict[str, Any]
    data: dict[str, Any]
    """Without paths: they mean nothing on another machine."""


@dataclass(frozen=True, kw_only=True)
class BundleCard:
    """What a person or a program should know of a bundle before it is used."""

    run: str
    party: str
    version: str
    """Shared by the bundles of all parties of the run."""
    run_hash: str
    settings: BundleSettings
    created: str
    """ISO 8601, UTC."""
    fdml_version: str
    metrics: Metrics | None = None
    """Of this model; only the label party has them. A figure that is no finite number is None."""
    figures: dict[str, float | None] | None = None
    """All that was found of the held-out rows, by name; only at the label party."""
    compared: Compared | None = None
    """What the joint model brings over the label party's features alone; only at the label party."""
    earlier: ComparedVersion | None = None
    """What it brings over an earlier version on the same held-out rows; only at the label party."""
    chosen_by_held_out_rows: bool = False
    """Whether the held-out rows have chosen this model among those of all epochs: its figures are then too good."""
    privacy: tuple[Spent, ...] | None = None
    """What training spent, by kind of rows; None where it was not counted."""
    scale: float = 1.0
    """The joint score times `scale` plus `offset` is what the loss should see."""
    offset: tuple[float, ...] = (0.0,)
    """One for each class, or one for all."""
    width: int | None = None
    """Floats of a local prediction; None where an older fdml wrote the card."""

    @classmethod
    def of(
        cls,
        *,
        run: RunSettings,
        party: str,
        model: ModelSettings,
        data: DataSettings,
        alignment_hash: bytes,
        evaluated: Evaluated | None = None,
        privacy: Iterable[Spent] | None = None,
        scale: float = 1.0,
        offset: Iterable[float] = (0.0,),
        width: int | None = None,
    ) -> BundleCard:
        """The card of a model that was trained just now with these settings."""
        agreed = run_hash(run)
        return cls(
            run=run.name,
            party=party,
            version=version_of(agreed, alignment_hash),
            run_hash=agreed.hex(),
            settings=BundleSettings(
                run=run.model_dump(mode="json"),
                model=model.model_dump(mode="json"),
                data=data.model_dump(mode="json", exclude=set(PLACES)),
            ),
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            fdml_version=metadata.version("fdml"),
            metrics=None if evaluated is None else _finite(evaluated),
            figures=None
            if evaluated is None
            else {name: finite_or_none(each) for name, each in evaluated.figures.items()},
            compared=None if evaluated is None else evaluated.compared,
            earlier=None if evaluated is None else evaluated.earlier,
            chosen_by_held_out_rows=evaluated is not None and run.evaluation.stop_after is not None,
            privacy=None if privacy is None else tuple(privacy),
            scale=float(scale),
            offset=tuple(map(float, offset)),
            width=width,
        )


def _finite(found: Evaluated) -> Metrics:
    """The metrics with None for figures that are no finite numbers, as JSON has no word for them."""
    return Metrics(
        found.epoch,
        found.seconds,
        train_loss=finite_or_none(found.train_loss),
        test_loss=finite_or_none(found.test_loss),
        test_metric=finite_or_none(found.test_metric),
    )


def finite_or_none(figure: float | None) -> float | None:
    """JSON has no word for what is no finite number."""
    return figure if figure is not None and math.isfinite(figure) else None
