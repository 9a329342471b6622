"""A published model at one party: its column, its serving keys, and what was agreed, in a folder of the run.

    facts.json   run, party, version, grid, noise, and the serving keys: for its owner only
    *.npy        the column

A folder is replaced as a whole, so whoever has mapped an older column goes on with it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from fdml.errors import DataError, StateCorrupt
from fdml.privacy.ledger import GradientMechanism, Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.serving.column import Column
from fdml.serving.keys import ServingKeys
from fdml.settings import RunSettings
from fdml.storage.atomic import folder_identity, new_file, new_folder, whole_folder

FOLDER = "serving"
"""In the folder of a run."""
_FACTS = "facts.json"
_LAYOUT = "fdml published model 1"
_TRIES = 10
"""To read a model while it is replaced, which takes longer than reading it."""


@dataclass(frozen=True)
class Published:
    """All facts of a published model but its column."""

    run: RunSettings
    party: str
    version: str
    bits: int
    """Of the grid on which predictions travel."""
    keys: ServingKeys
    mechanism: Mechanism
    """Clip and noise of what leaves."""
    gradients: GradientMechanism | None = None
    """Noise in training, which the ledger accounts with."""
    noise: NoiseKey = field(default_factory=lambda: NoiseKey(bytes(32)))
    data: str = ""
    """A hash of the files that the column was computed from."""
    file: str = ""
    """The name of the training file, for people."""
    generation: int = 1
    """Raised whenever a value that may have left has changed, or its row has gone: so often a row may have been
    released."""
    computed: int = 1
    """How often the column was computed; each time has noise of its own."""
    rows_left: bool = False
    """Whether rows of this generation are no longer there: if they come back, they may be released once more."""
    reading: str = ""
    """At the label party: how a score is read, as JSON."""

    @property
    def askers(self) -> tuple[str, ...]:
        """The parties that may ask."""
        return self.run.serving.may_ask or (self.run.label_party,)

    @property
    def account(self) -> str:
        """The name of its account in the party's ledger."""
        return f"serving {self.noise.fingerprint}"


@dataclass(frozen=True, eq=False)
class Publication:
    """A published model, ready to answer."""

    facts: Published
    column: Column

    @property
    def run(self) -> RunSettings:
        """The settings of its run."""
        return self.facts.run

    @property
    def party(self) -> str:
        """Whose it is."""
        return self.facts.party

    @cached_property
    def others(self) -> tuple[str, ...]:
        """The other parties, in the run's order."""
        return tuple(name for name in self.run.parties if name != self.party)

    def save(self, folder: Path) -> None:
        """Write the folder whole; an older one is replaced once the new one is on disk."""
        with new_folder(folder) as beside:
            with new_file(beside / _FACTS) as file:
                file.write(_to_json(self.facts))
            self.column.save(beside)

    @classmethod
    def load(cls, folder: Path) -> Publication:
        """Map a published model; one that is replaced meanwhile is read again, so that its files are of one time."""
        for _ in range(_TRIES):
            identity = folder_identity(folder)
            try:
                found = cls(read_facts(folder), Column.load(whole_folder(folder)))
            except (DataError, StateCorrupt):
                if folder_identity(folder) == identity:
                    raise
            else:
                if folder_identity(folder) == identity:
                    return found
        raise StateCorrupt(f"the published model in {str(folder)!r} is replaced faster than it can be read; try again")

    def updated(self, column: Column, data: str) -> Publication:
        """With a column that was computed anew from changed files; what has not changed keeps its bits.

        A row that comes back after it was gone may have been released before, with other bits: it is a new generation.
        """
        merged, difference = column.after(self.column)
        is_new = difference.changed or (difference.came and self.facts.rows_left)
        facts = replace(
            self.facts,
            data=data,
            generation=self.facts.generation + int(is_new),
            computed=self.facts.computed + 1,
            rows_left=(difference.left or self.facts.rows_left) and not is_new,
        )
        return Publication(facts, merged)


def is_published(folder: Path) -> bool:
    """Whether there is a published model in a folder."""
    return (whole_folder(folder) / _FACTS).is_file()


def read_facts(folder: Path) -> Published:
    """The facts of a published model, without its column."""
    place = whole_folder(folder)
    try:
        raw = (place / _FACTS).read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"there is no published model in {str(folder)!r}; `fdml join` and `fdml up` publish it when the run ends"
        ) from None
    try:
        known = json.loads(raw)
        if known.pop("layout") != _LAYOUT:
            raise ValueError("its layout is another")
        return _of_json(known)
    except (ValueError, TypeError, KeyError) as error:
        raise StateCorrupt(
            f"{str(place / _FACTS)!r} is damaged ({error}); bring it back from a backup, or train again under a new "
            f"name of the run"
        ) from None


def _to_json(facts: Published) -> bytes:
    keys, gradients = facts.keys, facts.gradients
    content = {
        "layout": _LAYOUT,
        "run": facts.run.model_dump(mode="json", exclude_unset=True),
        "party": facts.party,
        "version": facts.version,
        "bits": facts.bits,
        "keys": {"tokens": keys.tokens.hex(), "pairs": {name: key.hex() for name, key in keys.pairs.items()}},
        "mechanism": [facts.mechanism.noise, repr(facts.mechanism.clip), facts.mechanism.sigma],
        "gradients": None if gradients is None else [gradients.clip, gradients.sigma],
        "noise": facts.noise.secret.hex(),
        "data": facts.data,
        "file": facts.file,
        "generation": facts.generation,
        "computed": facts.computed,
        "rows_left": facts.rows_left,
        "reading": facts.reading,
    }
    return (json.dumps(content, indent=1) + "\n").encode()


def _of_json(known: Mapping[str, Any]) -> Published:
    noise, clip, sigma = known["mechanism"]
    keys, gradients = known["keys"], known["gradients"]
    pairs = {name: bytes.fromhex(key) for name, key in keys["pairs"].items()}
    return Published(
        run=RunSettings(**known["run"]),
        party=known["party"],
        version=known["version"],
        bits=known["bits"],
        keys=ServingKeys(known["party"], bytes.fromhex(keys["tokens"]), pairs),
        mechanism=Mechanism(noise, float(clip), sigma),
        gradients=None if gradients is None else GradientMechanism(*gradients),
        noise=NoiseKey(bytes.fromhex(known["noise"])),
        data=known["data"],
        file=known["file"],
        generation=known["generation"],
        computed=known["computed"],
        rows_left=known.get("rows_left", False),
        reading=known["reading"],
    )
