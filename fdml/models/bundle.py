"""A bundle: a party's trained model as a folder, with all it needs to predict.

    card.json       which run, party and version; settings, metrics, privacy spent, calibration
    parameters.npz  the model's state: plain arrays, no code
    encoder.json    how columns become features; the training file is not needed
    labels.json     how scores become labels; at the label party only
    manifest.json   the size and hash of each of these files

Every file is its owner's only. A folder is replaced as a whole: the old bundle stays until the new one is there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from fdml.data.documents import checked, read_document, write_document
from fdml.data.encoders import AnyEncoder, encoder_from_json
from fdml.data.error_context import errors_about
from fdml.data.label_encoding import LabelEncoding
from fdml.errors import DataError, StateCorrupt
from fdml.models.bundle_card import BundleCard
from fdml.models.model import State
from fdml.storage.arrays import pack_arrays, unpack_arrays
from fdml.storage.atomic import new_file, new_folder, whole_folder

LAYOUT = 1
"""Of the folder; changes with the files in it and their meaning."""
_CARD, _PARAMETERS, _ENCODER, _LABELS = "card.json", "parameters.npz", "encoder.json", "labels.json"
_MANIFEST = "manifest.json"
_NEEDED = (_CARD, _PARAMETERS, _ENCODER)
_WAY_OUT = "restore the folder from a copy, or train again under a new name of the run"


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """A local model ready to predict; alone it says nothing, as only the sum of all parties' predictions is a score."""

    card: BundleCard
    parameters: State
    """The arrays of the model's `state()`."""
    encoder: AnyEncoder
    labels: LabelEncoding | None = None
    """None where the party has no labels."""

    def files(self) -> dict[str, bytes]:
        """The content of its files by name, without the manifest."""
        files = {
            _CARD: write_document({"layout": LAYOUT, **asdict(self.card)}).encode(),
            _PARAMETERS: pack_arrays(self.parameters),
            _ENCODER: self.encoder.to_json().encode(),
        }
        if self.labels is not None:
            files[_LABELS] = self.labels.to_json().encode()
        return files

    @classmethod
    def of_files(cls, files: Mapping[str, bytes]) -> Bundle:
        """What `files` gave."""
        labels = files.get(_LABELS)
        return cls(
            card=_card_of(files),
            parameters=unpack_arrays(files[_PARAMETERS]),
            encoder=encoder_from_json(files[_ENCODER]),
            labels=None if labels is None else LabelEncoding.from_json(labels),
        )

    def save(self, folder: Path) -> None:
        """Write the folder whole; a bundle that is there already is replaced once the new one is on disk."""
        files = self.files()
        files[_MANIFEST] = _manifest_of(files, self.card.fdml_version)
        with new_folder(folder) as beside:
            for name, content in files.items():
                with new_file(beside / name) as file:
                    file.write(content)

    @classmethod
    def load(cls, folder: Path) -> Bundle:
        """Read a bundle whose files are all as they were written."""
        files = _whole_files(folder)
        with errors_about(folder):
            return cls.of_files(files)

    @staticmethod
    def check(folder: Path) -> BundleCard:
        """Raise unless every file is as it was written, and name the one that is not; the card if all are."""
        files = _whole_files(folder)
        with errors_about(folder):
            return _card_of(files)


@dataclass(frozen=True)
class _File:
    """A file in the manifest."""

    size: int
    blake2b: str

    @classmethod
    def of(cls, content: bytes) -> _File:
        return cls(len(content), hashlib.blake2b(content, digest_size=32).hexdigest())


@dataclass(frozen=True)
class _Manifest:
    fdml_version: str
    files: dict[str, _File]


def _manifest_of(files: Mapping[str, bytes], fdml_version: str) -> bytes:
    listed = {name: asdict(_File.of(content)) for name, content in files.items()}
    return write_document({"layout": LAYOUT, "fdml_version": fdml_version, "files": listed}).encode()


def _whole_files(folder: Path) -> dict[str, bytes]:
    """The content of all files that the manifest lists, each compared with its hash."""
    place = whole_folder(folder)
    if not place.is_dir():
        raise DataError(f"there is no bundle {str(folder)!r}; `fdml join` writes it when the run ends")
    expected = _manifest_in(folder, place)
    files = {}
    for name, file in expected.items():
        content = _read(folder, place / name)
        if _File.of(content) != file:
            raise _damaged(folder, name, f"it is not the one that {_MANIFEST} lists, {file.size} bytes long")
        files[name] = content
    return files


def _manifest_in(folder: Path, place: Path) -> dict[str, _File]:
    content = _read(folder, place / _MANIFEST)
    _check_layout(folder, content)
    try:
        found = checked(_Manifest, read_document(content, _MANIFEST, LAYOUT), _MANIFEST)
    except DataError as error:
        raise _damaged(folder, _MANIFEST, str(error)) from None
    for name in _NEEDED:
        if name not in found.files:
            raise _damaged(folder, _MANIFEST, f"it does not list {name}")
    for name in found.files:
        if name not in (*_NEEDED, _LABELS):
            raise _damaged(folder, _MANIFEST, f"it lists {name!r}, which is no file of a bundle")
    return found.files


def _check_layout(folder: Path, manifest: bytes) -> None:
    """Raise if a whole manifest has another layout: that is no damage, and another fdml reads it."""
    try:
        found = json.loads(manifest)
        layout, writer = int(found["layout"]), str(found["fdml_version"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return
    if layout != LAYOUT:
        raise DataError(
            f"the bundle {str(folder)!r} has layout {layout}, written by fdml {writer}; this is fdml "
            f"{metadata.version('fdml')}, which reads layout {LAYOUT}; load it with fdml {writer}"
        )


def _read(folder: Path, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _damaged(folder, path.name, error.strerror or str(error)) from None


def _card_of(files: Mapping[str, bytes]) -> BundleCard:
    return checked(BundleCard, read_document(files[_CARD], _CARD, LAYOUT), _CARD)


def _damaged(folder: Path, name: str, why: str) -> StateCorrupt:
    return StateCorrupt(f"the bundle {str(folder)!r} is damaged: {name}: {why}; {_WAY_OUT}")
