"""Where two sides' settings differ: the setting by its place in the file, and both values as the file has them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fdml.settings.file import Settings

_MOST_NAMED = 5
"""Settings that one sentence names."""
_LONGEST_VALUE = 80
"""Letters of a value: the other side's settings are a peer's text."""
_NOT_SET = "not set"


@dataclass(frozen=True)
class Difference:
    """One setting that two sides have differently."""

    setting: str
    """Like "training.epochs"."""
    ours: str
    theirs: str
    """As in a TOML file, or "not set"."""

    def text(self, ours: str, theirs: str) -> str:
        """Like "training.epochs is 10 here, 20 at the server"; the words say whose each value is."""
        return f"{self.setting} is {self.ours} {ours}, {self.theirs} {theirs}"


def differences(ours: Settings, theirs: Settings) -> tuple[Difference, ...]:
    """Every setting that differs, in the order of the file; none if the two mean the same."""
    here, there = _flat(ours), _flat(theirs)
    return tuple(
        Difference(name, _written(here.get(name)), _written(there.get(name)))
        for name in dict.fromkeys((*here, *there))
        if here.get(name) != there.get(name)
    )


def difference_text(found: Iterable[Difference], ours: str, theirs: str) -> str:
    """All differences as a clause without a full stop: "training.epochs is 10 here, 20 at the server".

    `ours` and `theirs` say whose a value is: "here" and "at the server", "at party 'telco'", "when run 'first' began".
    Empty where nothing differs.
    """
    every = list(found)
    named = "; ".join(each.text(ours, theirs) for each in every[:_MOST_NAMED])
    rest = len(every) - _MOST_NAMED
    return f"{named}; and {rest} more settings differ" if rest > 0 else named


def _flat(settings: Settings) -> dict[str, Any]:
    return dict(_leaves("", settings.model_dump(mode="json", by_alias=True)))


def _leaves(place: str, value: object) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping):
        yield place, value
        return
    for key, inner in value.items():
        yield from _leaves(f"{place}.{key}" if place else str(key), inner)


def _written(value: object) -> str:
    """A value as TOML has it, which JSON's numbers, texts, lists, true and false are too."""
    if value is None:
        return _NOT_SET
    text = json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
