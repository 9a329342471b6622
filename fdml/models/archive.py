"""Trained models on disk: arrays and one JSON text in a .npz file. Nothing in it is ever run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fdml.errors import DataError
from fdml.models.model import State
from fdml.storage.arrays import pack_arrays, unpack_arrays
from fdml.storage.atomic import PUBLIC, write_file

_FACTS = "facts.json"
_VERSION = 1


def write_archive(path: Path, facts: Mapping[str, Any], states: Mapping[str, State]) -> None:
    """Write facts and every party's state; an older file is replaced only when the new one is whole."""
    text = json.dumps({"version": _VERSION, **facts})
    arrays = {f"{party}|{name}": array for party, state in states.items() for name, array in state.items()}
    write_file(path, pack_arrays({_FACTS: np.array(text), **arrays}), mode=PUBLIC)


def read_archive(path: Path) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Read what `write_archive` wrote."""
    try:
        arrays = unpack_arrays(path.read_bytes())
        facts = json.loads(str(arrays.pop(_FACTS)))
    except FileNotFoundError:
        raise DataError(f"there is no file {str(path)!r}") from None
    except (OSError, ValueError, KeyError):
        raise DataError(f"{str(path)!r} is not an estimator that fdml saved, or it is damaged") from None
    if facts.get("version") != _VERSION:
        raise DataError(f"{str(path)!r} has format {facts.get('version')}; this fdml reads {_VERSION}")
    states: dict[str, dict[str, Any]] = {}
    for key, array in arrays.items():
        party, _, name = key.partition("|")
        states.setdefault(party, {})[name] = array
    return facts, states
