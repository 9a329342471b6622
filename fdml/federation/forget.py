"""The end of a run's life: its secrets, tokens and logs are removed at the side where this is called."""

from __future__ import annotations

import os
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fdml.errors import SettingsError
from fdml.federation.party_folder import PartyFolder
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import run_hash
from fdml.settings_federation import read_run
from fdml.storage.atomic import sync
from fdml.storage.disk import FolderDisk
from fdml.storage.failures import explained_failures
from fdml.storage.lock import LOCK, exclusive_lock

_PARTY_STAYS = (
    "the bundle (model/)",
    "the statement (privacy.md, privacy.json) and history.json",
    "the ledger and the secret that labels are randomised with",
    "party.toml, keys/, the data, and a group_key file of your own",
)
_SERVER_STAYS = ("run.toml", "server/keys/")
_MEANINGS = {
    "align-secrets": "key-agreement key, group key and blinding secret",
    "alignment": "which rows are shared, and the group key",
    "blocks": "features in the run's order",
    "bulletin": "tokens or blinded points, sealed offers and labels",
    "consent": "which counts this party has agreed to",
    "checkpoint": "parameters and unanswered predictions",
    "encoder.json": "categories and means of columns",
    "incarnation": "the count of starts",
    "journal": "predictions of every step, and metrics",
    "noise-key": "the noise key",
    "releases": "what left under noise",
    "result": "that the run has finished",
    "run": "which run it was",
    "snapshot": "predictions of every row, and metrics",
}


@dataclass(frozen=True)
class EndOfLife:
    """What is removed of a run at one side, and what stays."""

    side: str
    """Who forgets: "party 'store'" or "the server"."""
    folder: Path
    finished: bool
    removes: tuple[str, ...]
    """Files and folders by name, with what is in them."""
    stays: tuple[str, ...]

    @explained_failures()
    def carry_out(self, *, unfinished: bool = False) -> None:
        """Remove it all; a process that uses the folder, or a run that is not over, stops this before anything goes."""
        if not self.finished and not unfinished:
            raise SettingsError(
                f"the run of {self.side} has not finished, and cannot go on once its state is gone; finish it, or give "
                f"it up with --unfinished"
            )
        with exclusive_lock(self.folder, f"process of {self.side}"):
            for path in _content(self.folder):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
            sync(self.folder)


@explained_failures()
def end_of_life(path: Path) -> EndOfLife:
    """What to remove for a party.toml (the party's side) or a run.toml (the server's side)."""
    try:
        is_party = "party" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{str(path)!r} is no party.toml or run.toml: {error}") from None
    return _of_party(path) if is_party else _of_server(path)


def _of_party(path: Path) -> EndOfLife:
    folder = PartyFolder(path)
    result = folder.finished_model()
    state = folder.path / "state"
    side = f"party {folder.settings.party!r}"
    return EndOfLife(side, state, result is not None and result.reported, _listed(state), _PARTY_STAYS)


def _of_server(path: Path) -> EndOfLife:
    settings, state = read_run(path), path.parent / "server" / "state"
    if not state.is_dir():
        raise SettingsError(f"there is no state of a server in {str(state)!r}; name a party.toml for a party's side")
    with exclusive_lock(state, "server of this run"):  # to read the log cuts off what a crash has torn
        finished = RunState.open(RunDefinition(settings, run_hash(settings)), FolderDisk(state)).finished
    return EndOfLife("the server", state, finished, _listed(state), _SERVER_STAYS)


def _content(folder: Path) -> list[Path]:
    """All but the lock, which is held; secrets first, should there be a crash on the way."""
    return sorted((path for path in folder.iterdir() if path.name != LOCK), key=lambda path: path.name)


def _listed(folder: Path) -> tuple[str, ...]:
    kinds = {_kind(path.name) for path in _content(folder)}
    return tuple(f"{name}: {_MEANINGS[name]}" if name in _MEANINGS else name for name in sorted(kinds))


def _kind(name: str) -> str:
    """Two slots are one thing, and so are all messages of the bulletin board."""
    known = [kind for kind in _MEANINGS if name == kind or name.startswith((f"{kind}.", f"{kind}-"))]
    return max(known, key=len, default=name)
