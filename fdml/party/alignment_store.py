"""A party's alignment on its disk: found once with the other parties, then used by every later start."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.align.group_key import GroupKey
from fdml.data.ids import IdCounts
from fdml.errors import AlignmentError, DataError, StateCorrupt
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.protocol.alignment_messages import HASH_BYTES, RowsOffer
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.storage.disk import Disk
from fdml.storage.facts import damaged
from fdml.storage.large_arrays import load_arrays, save_arrays

_NAME = "alignment"
_OFFER = "rows-offer"


class AlignmentStore:
    """The alignment that belongs to one run.toml and one state of the party's files."""

    def __init__(self, disk: Disk, *, run_hash: bytes, data: str) -> None:
        self._disk = disk
        self._facts = {"run.toml": run_hash.hex(), "data": data}

    def save(self, shared: SharedRows) -> None:
        """Store an alignment; durable on return."""
        facts = {
            "facts": self._facts,
            "digest": shared.digest.hex(),
            "key": shared.key.secret.hex(),
            "pair_keys": {party: key.hex() for party, key in shared.pair_keys.items()},
            "report": asdict(shared.report),
            "has_test_files": shared.has_test_files,
            "line": shared.line,
            "begun": shared.begun.hex(),
        }
        arrays = {"facts": np.array(json.dumps(facts)), "train": shared.train, "held_out": shared.held_out}
        save_arrays(self._disk, _NAME, arrays)

    def load(self) -> SharedRows | None:
        """The stored alignment, if files and settings are still the same."""
        arrays = _arrays(self._disk)
        if arrays is None:
            return None
        known, shared = _read(arrays)
        if known.get("run.toml") != self._facts["run.toml"]:
            raise StateCorrupt(
                "the saved state belongs to another run.toml; put it back, or give the run a new name at every side"
            )
        if known.get("data") != self._facts["data"]:
            raise AlignmentError(
                "the data of this party has changed since its rows were aligned: the file of data.path or "
                "data.test_path, or the [data] settings, are not what they were; put them back, or give the run a new "
                "name at every side"
            )
        return shared

    def save_offer(self, state: bytes, offer: RowsOffer) -> None:
        """Store what is offered to the run, and the state of the ids; durable on return."""
        self._disk.replace(_OFFER, state + encode_alignment(offer))

    def offered(self) -> tuple[bytes, RowsOffer] | None:
        """What was offered to the run, and the state of the ids then."""
        raw = self._disk.read(_OFFER)
        if raw is None:
            return None
        offer = decode_alignment(raw[HASH_BYTES:])
        if not isinstance(offer, RowsOffer):
            raise StateCorrupt(f"the stored {_OFFER} is none; restore it, or give the run a new name")
        return raw[:HASH_BYTES], offer


def _arrays(disk: Disk) -> dict[str, NDArray[Any]] | None:
    try:
        return load_arrays(disk, _NAME)
    except DataError as error:
        raise damaged(_NAME, error) from None


def _read(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, str], SharedRows]:
    """What a stored alignment belongs to, and the alignment."""
    try:
        stored = json.loads(str(arrays["facts"]))
        report = {**stored["report"], "ids": tuple(map(_id_counts, stored["report"]["ids"]))}
        return dict(stored["facts"]), SharedRows(
            arrays["train"],
            arrays["held_out"],
            bytes.fromhex(stored["digest"]),
            GroupKey(bytes.fromhex(stored["key"])),
            AlignmentReport(**report),
            {party: bytes.fromhex(key) for party, key in stored.get("pair_keys", {}).items()},
            has_test_files=bool(stored.get("has_test_files", False)),
            line=int(stored["line"]),
            begun=bytes.fromhex(stored["begun"]),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise damaged(_NAME, error) from None


def _id_counts(known: dict[str, Any]) -> IdCounts:
    rows = {"missing_at": tuple(known["missing_at"]), "repeated_at": tuple(known["repeated_at"])}
    return IdCounts(**{**known, **rows})


def stored_group_key(disk: Disk) -> GroupKey | None:
    """The key of a party's alignment, to open what was sealed for it; None before it has aligned."""
    arrays = _arrays(disk)
    return None if arrays is None else GroupKey(bytes.fromhex(json.loads(str(arrays["facts"]))["key"]))


def aligned_row_count(disk: Disk) -> int | None:
    """How many rows a party's run trains on; None before it has aligned."""
    arrays = _arrays(disk)
    return None if arrays is None else len(arrays["train"])


def aligned_train_rows(disk: Disk) -> NDArray[np.int64]:
    """Rows of a party's training file that its run trained on, in the run's order."""
    arrays = _arrays(disk)
    if arrays is None:
        raise AlignmentError("this party has not aligned its rows; run `fdml align` first")
    return arrays["train"]
