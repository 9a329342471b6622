"""The end of a run's life: its secrets, tokens and logs are removed at the side where this is called."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from fdml.errors import SettingsError
from fdml.federation.alignment_folders import ALIGNMENTS
from fdml.federation.party_files import PARTS, parts_folder
from fdml.federation.party_folder import PartyFolder
from fdml.federation.run_folder import RunFolder, begun_run, run_names
from fdml.server.run_state import RunDefinition, RunState
from fdml.settings import run_hash
from fdml.settings.federation import read_federation
from fdml.settings.file import read_table
from fdml.storage.atomic import sync
from fdml.storage.disk import FolderDisk
from fdml.storage.failures import explained_failures
from fdml.storage.lock import LOCK, exclusive_lock

_PARTY_STAYS = (
    "the bundle (model/), and the predictions and keys to answer with (serving/; `fdml model forget` removes both)",
    "the statement (privacy.md, privacy.json), history.json, measures.json, report.html and run.json",
    "the ledger and the secret that labels are randomised with",
    "the kept alignment with its group key, for further runs (alignments/; --alignments removes it)",
    "party.toml, keys/, the data, and a group_key file of your own",
)
_SERVER_STAYS = (
    "federation.toml, run.toml and run.json",
    "tokens or blinded points of the kept alignment, for further runs (server/alignments/; --alignments removes them)",
    "server/keys/",
)
_MEANINGS = {
    "alignment": "which rows the run uses, and its key",
    "blocks": "features in the run's order",
    "checkpoint": "parameters and unanswered predictions",
    "encoder.json": "categories and means of columns",
    "incarnation": "the count of starts",
    "journal": "predictions of every step, and metrics",
    "noise-key": "the noise key",
    "parts": "rows as workers have encoded them",
    "releases": "what left under noise",
    "result": "that the run has finished",
    "rows-offer": "which generations of the alignment were offered to the run",
    "rows-plan": "which generation of the alignment the run uses",
    "snapshot": "predictions of every row, and metrics",
}


_KEPT = "key-agreement key, group key, blinding secret, which rows are shared, and which counts were agreed to"


@dataclass(frozen=True)
class EndOfLife:
    """What is removed of a run at one side, and what stays."""

    side: str
    """Who forgets: "party 'store'" or "the server"."""
    run: RunFolder
    finished: bool
    removes: tuple[str, ...]
    """Files and folders by name, with what is in them."""
    stays: tuple[str, ...]
    parts: Path | None = None
    """Where workers have written parts of the rows, if not into the state."""

    @explained_failures()
    def carry_out(self, *, unfinished: bool = False) -> None:
        """Remove it all; a process that uses the folder, or a run that is not over, stops this before anything goes."""
        if not self.finished and not unfinished:
            raise SettingsError(
                f"the run of {self.side} has not finished, and cannot go on once its state is gone; finish it, or give "
                f"it up with --unfinished"
            )
        with exclusive_lock(self.run.state, f"process of {self.side}"):
            self.run.mark_forgotten()
            if self.parts is not None:
                shutil.rmtree(self.parts)
            for path in _content(self.run.state):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    os.unlink(path)
            sync(self.run.state)


@dataclass(frozen=True)
class EndOfAlignments:
    """The kept alignments of one side: what is removed if they are forgotten."""

    home: Path
    unfinished: tuple[str, ...]
    """Runs of this side that have not finished."""
    folders: tuple[Path, ...]

    @property
    def removes(self) -> tuple[str, ...]:
        """What goes."""
        what = "tokens or blinded points, sealed offers" if self.home.name == "server" else _KEPT
        return tuple(f"{ALIGNMENTS}/{folder.name}: {what}" for folder in self.folders)

    @explained_failures()
    def carry_out(self, *, unfinished: bool = False) -> None:
        """Remove them; the next run aligns anew, with new keys."""
        if self.folders and self.unfinished and not unfinished:
            raise SettingsError(
                f"run {self.unfinished[0]!r} has not finished and may need the kept alignment; finish it, or give it "
                f"up with --unfinished"
            )
        for folder in self.folders:
            with exclusive_lock(folder, "process with this alignment"):
                for path in _content(folder):
                    os.unlink(path)
                sync(folder)
            shutil.rmtree(folder)


@explained_failures()
def end_of_alignments(path: Path) -> EndOfAlignments:
    """What there is of kept alignments at the side of a party.toml, or of a federation.toml for the server."""
    home = side_of(path)
    runs = [end_of_life(path, name) for name in run_names(home)]
    unfinished = tuple(run.run.path.name for run in runs if not run.finished)
    folders = sorted((home / ALIGNMENTS).iterdir()) if (home / ALIGNMENTS).is_dir() else []
    return EndOfAlignments(home, unfinished, tuple(folder for folder in folders if _content(folder)))


@explained_failures()
def end_of_life(path: Path, name: str) -> EndOfLife:
    """What to remove of a run, by its name: for a party.toml the party's side, for a federation.toml the server's."""
    home = side_of(path)
    return _of_party(path, home, name) if home == path.parent else _of_server(home, name)


def side_of(path: Path) -> Path:
    """The folder of the party whose party.toml this is, or of the server of a federation.toml."""
    if "party" in read_table(path):
        return path.parent
    read_federation(path)
    return path.parent / "server"


def _of_party(path: Path, home: Path, name: str) -> EndOfLife:
    folder = PartyFolder(path, begun_run(home, name))
    result = folder.finished_model()
    finished = folder.run_folder.is_forgotten or (result is not None and result.reported)
    side = f"party {folder.settings.party!r}"
    state = folder.run_folder.state
    parts = parts_folder(folder.settings, state / PARTS)
    removes, elsewhere = _listed(state), parts.is_dir() and parts.parent != state
    if elsewhere:
        removes += (f"{parts}: {_MEANINGS[PARTS]}",)
    return EndOfLife(side, folder.run_folder, finished, removes, _PARTY_STAYS, parts if elsewhere else None)


def _of_server(home: Path, name: str) -> EndOfLife:
    settings = begun_run(home, name)
    folder = RunFolder(home, settings)
    with exclusive_lock(folder.state, f"server of run {name!r}"):  # to read the log cuts off what a crash has torn
        disk = FolderDisk(folder.state)
        finished = folder.is_forgotten or RunState.open(RunDefinition(settings, run_hash(settings)), disk).finished
    return EndOfLife("the server", folder, finished, _listed(folder.state), _SERVER_STAYS)


def _content(folder: Path) -> list[Path]:
    """All but the lock, which is held; secrets first, should there be a crash on the way."""
    return sorted((path for path in folder.iterdir() if path.name != LOCK), key=lambda path: path.name)


def _listed(folder: Path) -> tuple[str, ...]:
    kinds = {_kind(path.name) for path in _content(folder)}
    return tuple(f"{name}: {_MEANINGS[name]}" if name in _MEANINGS else name for name in sorted(kinds))


def _kind(name: str) -> str:
    """Two slots are one thing, and so are the offers of all parties."""
    known = [kind for kind in _MEANINGS if name == kind or name.startswith((f"{kind}.", f"{kind}-"))]
    return max(known, key=len, default=name)
