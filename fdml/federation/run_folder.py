"""The folder of one run at one side: `runs/NAME` of a party or of the server. A new name begins, the same resumes."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fdml.errors import SettingsError
from fdml.settings import RunSettings
from fdml.settings.difference import difference_text, differences
from fdml.storage.atomic import make_private_folder, write_file
from fdml.storage.facts import damaged

RUNS = "runs"
SETTINGS = "run.json"
STATE = "state"
MODEL = "model"
"""The bundle of a party that has finished."""
OWN = "own.json"
"""What this party's settings are in this run alone, in place of those of its party.toml."""
_FORGOTTEN = "forgotten"
"""The file that says since when a run's state is gone."""


class RunFolder:
    """Where a side keeps one run: its settings as it began, its state and what came of it.

    A run that began with other settings is refused, so nothing of one run is written over another.
    """

    def __init__(self, home: Path, run: RunSettings) -> None:
        if (home / STATE).exists():
            raise SettingsError(
                f"{str(home / STATE)!r} holds a run of an older fdml; finish it with that version, then remove the "
                f"folder (docs/compatibility.md)"
            )
        self.path = home / RUNS / run.name
        self.settings = run
        self._check_same()

    @property
    def state(self) -> Path:
        """What a later start goes on from."""
        return self.path / STATE

    def begin(self) -> None:
        """Keep the settings of a run that is new here; a run whose state was removed does not begin again."""
        if self.is_forgotten:
            raise SettingsError(
                f"the state of run {self.settings.name!r} was removed with `fdml forget`; give the run a new name"
            )
        if not (self.path / SETTINGS).exists():
            make_private_folder(self.path)
            written = self.settings.model_dump_json(indent=1, exclude_unset=True)
            write_file(self.path / SETTINGS, f"{written}\n".encode())
        self._check_same()

    def _check_same(self) -> None:
        """Refuse a name under which another run has begun, perhaps just now by another process."""
        began = settings_in(self.path)
        if began is not None and began != self.settings:
            found = difference_text(differences(self.settings, began), "here", f"when run {self.settings.name!r} began")
            raise SettingsError(f"{found}; give it a new name")

    def set_own_model(self, changes: Mapping[str, Any]) -> None:
        """Let this run have another model here than party.toml says; before it begins, and once."""
        known = self.own_model()
        if known == changes:
            return
        if known or (self.path / SETTINGS).exists():
            raise SettingsError(
                f"run {self.settings.name!r} began with other settings of this party's model; give it a new name"
            )
        make_private_folder(self.path)
        write_file(self.path / OWN, f"{json.dumps({'model': changes}, indent=1)}\n".encode())

    def own_model(self) -> dict[str, Any]:
        """The settings of `[model]` that this run has in place of party.toml's; none for nearly all runs."""
        try:
            return dict(json.loads((self.path / OWN).read_bytes())["model"])
        except FileNotFoundError:
            return {}
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(str(self.path / OWN), error) from None

    @property
    def is_forgotten(self) -> bool:
        """Whether its state was removed for good."""
        return (self.path / _FORGOTTEN).exists()

    def mark_forgotten(self) -> None:
        """Say that the state is about to be removed, so that the name is not used again."""
        if not self.is_forgotten:
            write_file(self.path / _FORGOTTEN, f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC\n".encode())


def run_names(home: Path) -> list[str]:
    """The runs that have begun at a side."""
    return sorted(path.parent.name for path in (home / RUNS).glob(f"*/{SETTINGS}"))


def begun_run(home: Path, name: str) -> RunSettings:
    """The settings that a run of a side began with."""
    found = settings_in(home / RUNS / name) if name in run_names(home) else None
    if found is None:
        known = ", ".join(run_names(home)) or "none"
        raise SettingsError(f"there is no run {name!r} in {str(home / RUNS)!r}; the runs there: {known}")
    return found


def settings_in(folder: Path) -> RunSettings | None:
    """The settings with which the run of this folder began; None if none has."""
    try:
        raw = (folder / SETTINGS).read_bytes()
    except FileNotFoundError:
        return None
    try:
        return RunSettings(**json.loads(raw))
    except (ValueError, TypeError) as error:
        raise damaged(str(folder / SETTINGS), error) from None
