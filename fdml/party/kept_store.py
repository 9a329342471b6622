"""A party's kept alignment on its disk: generations that never change, and which of them is the newest."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from fdml.align.group_key import GroupKey
from fdml.align.kept import SETS, Generation, KeptAlignment, MatchedRows
from fdml.errors import DataError, StateCorrupt
from fdml.protocol.alignment_messages import KeyOffer
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.storage.disk import Disk
from fdml.storage.facts import damaged
from fdml.storage.large_arrays import load_arrays, save_arrays

_NEWEST = "newest"
_PAIRS = ("places", "at", "posted", "gone", "left")
"""Arrays of training and of test rows."""


class KeptStore:
    """One alignment's folder at a party. `turns` keeps other processes of the party from writing meanwhile."""

    def __init__(self, disk: Disk, turns: Callable[[], AbstractContextManager[None]] = nullcontext) -> None:
        self._disk = disk
        self._turns = turns

    def load(self) -> KeptAlignment:
        """All that is kept."""
        newest, chain = self._disk.read(_NEWEST), []
        following = "" if newest is None else newest.decode(errors="replace")
        while following:
            chain.append(self._read(following))
            following = chain[-1].base.hex()
        return KeptAlignment(tuple(chain))

    def save(self, generation: Generation) -> None:
        """Store a generation, durable on return; it is the newest unless another run has stored a newer one."""
        with self._turns():
            if load_arrays(self._disk, _name(generation.id.hex())) is None:
                dated = replace(generation, date=datetime.now(UTC).date().isoformat())
                save_arrays(self._disk, _name(generation.id.hex()), _packed(dated))
            newest = self._disk.read(_NEWEST)
            if newest is None or self._read(newest.decode(errors="replace")).number < generation.number:
                self._disk.replace(_NEWEST, generation.id.hex().encode())

    def _read(self, generation: str) -> Generation:
        try:
            arrays = load_arrays(self._disk, _name(generation))
        except DataError as error:
            raise damaged(_name(generation), error) from None
        if arrays is None:
            raise StateCorrupt(
                f"generation {generation} of the kept alignment is missing; restore it, or remove the kept alignment "
                f"with `fdml forget PARTY.toml --alignments`"
            )
        try:
            return _unpacked(arrays)
        except (ValueError, TypeError, KeyError) as error:
            raise damaged(_name(generation), error) from None


def _name(generation: str) -> str:
    return f"generation-{generation}"


def _packed(generation: Generation) -> dict[str, Any]:
    found = generation.found
    facts = {
        "id": generation.id.hex(),
        "base": generation.base.hex(),
        "number": generation.number,
        "key": generation.key.secret.hex(),
        "offers": {party: encode_alignment(offer).hex() for party, offer in generation.offers.items()},
        "tag": generation.tag.hex(),
        "state": generation.state.hex(),
        "date": generation.date,
        "digest": found.digest.hex(),
        "counts": dict(found.counts),
        "has_test_files": found.has_test_files,
        "line": found.line,
        "whole": found.whole,
    }
    arrays: dict[str, Any] = {"facts": np.array(json.dumps(facts))}
    for at in SETS:
        arrays |= {f"{name}/{at}": getattr(found, name)[at] for name in _PAIRS}
    return arrays


def _unpacked(arrays: Any) -> Generation:
    facts = json.loads(str(arrays["facts"]))
    pairs = {name: (arrays[f"{name}/0"], arrays[f"{name}/1"]) for name in _PAIRS}
    found = MatchedRows(
        digest=bytes.fromhex(facts["digest"]),
        counts=facts["counts"],
        has_test_files=facts["has_test_files"],
        line=facts["line"],
        whole=facts["whole"],
        **pairs,
    )
    return Generation(
        id=bytes.fromhex(facts["id"]),
        base=bytes.fromhex(facts["base"]),
        number=facts["number"],
        key=GroupKey(bytes.fromhex(facts["key"])),
        offers={party: _offer(raw) for party, raw in facts["offers"].items()},
        found=found,
        tag=bytes.fromhex(facts["tag"]),
        state=bytes.fromhex(facts["state"]),
        date=facts["date"],
    )


def _offer(raw: str) -> KeyOffer:
    offer = decode_alignment(bytes.fromhex(raw))
    if not isinstance(offer, KeyOffer):
        raise TypeError(f"a stored offer is a KeyOffer, not {type(offer).__name__}")
    return offer
