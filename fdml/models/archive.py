"""Trained models on disk: arrays and one JSON text in a .npz file. Nothing in it is ever run."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fdml.errors import DataError
from fdml.models.model import State

_FACTS = "facts.json"
_VERSION = 1


def write_archive(path: Path, facts: Mapping[str, Any], states: Mapping[str, State]) -> None:
    """Write facts and every party's state; an older file is replaced only when the new one is whole."""
    text = json.dumps({"version": _VERSION, **facts})
    arrays = {f"{party}|{name}": array for party, state in states.items() for name, array in state.items()}
    beside = path.with_name(f".{path.name}.partial")
    with beside.open("wb") as file:
        np.savez(file, allow_pickle=False, **{_FACTS: np.array(text)}, **arrays)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read what `write_archive` wrote."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = dict(archive)
        facts = json.loads(str(arrays.pop(_FACTS)))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, AttributeError, TypeError):
        raise DataError(f"{str(path)!r} is not an estimator that fdml saved, or it is damaged") from None
    if facts.get("version") != _VERSION:
        raise DataError(f"{str(path)!r} has format {facts.get('version')}; this fdml reads {_VERSION}")
    states: dict[str, dict[str, Any]] = {}
    for key, array in arrays.items():
        party, _, name = key.partition("|")
        states.setdefault(party, {})[name] = array
    return facts, states
