"""The hash of what is trained and how, which the noise of a run follows from."""

from __future__ import annotations

import hashlib

from fdml.settings.file import Settings
from fdml.settings.run import RunSettings

_NOT_TRAINING = (
    "federation",
    "server",
    "host",
    "addresses",
    "comparing_party",
    "members",
    "search",
    "promotion",
    "serving",
)
"""Settings on which nothing that is trained or leaves depends."""
_LATER = {
    "training": ("max_prediction", "class_weight", "absence", "frozen_epochs", "joint", "joint_width", "head_units"),
    "evaluation": ("stop_after", "threshold", "against"),
}
"""Settings that came after the first runs with noise."""


def _left_as_is(part: Settings, names: tuple[str, ...]) -> set[str]:
    """Those of these settings that have their default."""
    defaults = {name: type(part).model_fields[name].get_default(call_default_factory=True) for name in names}
    return {name for name, default in defaults.items() if getattr(part, name) == default}


def training_hash(settings: RunSettings) -> bytes:
    """Of what is trained and how: all settings, but for who works together and why.

    A setting that came later counts only where it is set: runs without it have the noise that they had.
    """
    within = {part: _left_as_is(getattr(settings, part), names) for part, names in _LATER.items()}
    within["evaluation"].add("baseline")  # nothing that is trained or leaves depends on it
    later = _left_as_is(settings, ("keys", "unmatched", "from_version", "new_parties", "quantile"))
    whole = dict.fromkeys((*_NOT_TRAINING, *later), True)
    what = settings.model_dump_json(exclude={**whole, **within})
    return hashlib.blake2b(what.encode(), digest_size=32).digest()
