"""Where fdml keeps what the golden results are made of, and how its settings are called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = Mapping[str, Any]
"""A TOML file as nested mappings, or the keyword arguments of an estimator."""


def _as_they_are(settings: Settings) -> Settings:
    return settings


@dataclass(frozen=True)
class FileLayout:
    """Paths in a party's folder, and the names of settings."""

    model: str = "runs/golden/model/parameters.npz"
    """Its arrays are named "array" or "party|array"."""
    history: str = "runs/golden/history.json"
    """At the label party: a list with an entry per epoch."""
    noise_key: str = "runs/golden/state/noise-key"
    """32 bytes; written before the start, so that noise can be repeated."""
    label_secret: str = "ledger/label-secret"
    """32 bytes; the same for randomised labels."""
    arrays: Mapping[str, str] = field(default_factory=lambda: {"counters": "clock"})
    """Arrays that had another name when the golden results were made; a hash covers the name."""
    named: Callable[[Settings], Settings] = _as_they_are
    """Settings, written with today's names, as this version calls them."""


CURRENT = FileLayout()
