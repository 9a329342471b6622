"""What has left a party under noise, stored before it left: it leaves again as it was, never drawn anew."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fdml.errors import StateCorrupt
from fdml.protocol.messages import HeldOutPredictions, Push, Release
from fdml.protocol.wire import decode_from_party, encode_from_party
from fdml.storage.disk import Disk
from fdml.storage.facts import check_facts
from fdml.storage.journal import Journal

_NAME = "releases"
Name = tuple[str, int]
"""A push and its step, or held-out predictions and their epoch."""


class ReleaseStore:
    """The releases of a run, and how often each group of rows was released before them; durable when `add` returns.

    They belong to one run over one order of rows: `facts` says which. A store of other facts is refused, as its
    releases would be sent for other rows. Without noise a release would be computed again to the same bits: then
    the store need not be `synced`, and outlives the process, but not a power cut.
    """

    def __init__(self, disk: Disk, facts: Mapping[str, str] | None = None, *, synced: bool = True) -> None:
        self._facts = dict(facts or {})
        self._journal = Journal(disk, _NAME, synced=synced)
        self._counts: dict[str, Any] | None = None
        """The ledger's state with the first `_counted` releases of those that are kept; None at the start."""
        self._counted = 0
        self._known: dict[Name, Push | HeldOutPredictions] = {}
        for number, record in enumerate(self._journal.replay()):
            if number == 0:
                first = json.loads(record)
                check_facts(first["facts"], self._facts, "store of releases")
                self._counts, self._counted = first["counts"], first["counted"]
            else:
                self._remember(decode_from_party(record))

    @property
    def counts(self) -> Mapping[str, Any] | None:
        """A state of the ledger that may lack the releases that are `uncounted`; None before the first release."""
        return self._counts

    @property
    def uncounted(self) -> list[Push | HeldOutPredictions]:
        """What was released since, in order."""
        return list(self._known.values())[self._counted :]

    def find(self, name: Name) -> Release | None:
        """The release of this name, if it was made before."""
        known = self._known.get(name)
        return None if known is None else known.release

    @property
    def is_new(self) -> bool:
        """Whether nothing was ever added, so that `add` needs the ledger's state."""
        return self._counts is None

    def add(self, message: Push | HeldOutPredictions, before: Mapping[str, Any]) -> None:
        """Keep a release; `before` is the ledger's state without it, which only a new store looks at."""
        if self._counts is None:
            self._counts = dict(before)
            self._journal.append([self._head(), encode_from_party(message)])
        else:
            self._journal.append([encode_from_party(message)])
        self._remember(message)

    def forget(self, step: int, counts: Mapping[str, Any]) -> None:
        """Drop pushes up to this step, which nobody will ask for again; `counts` is the ledger's state by now."""
        kept = [each for each in self._known.values() if not (isinstance(each, Push) and each.step <= step)]
        if len(kept) < len(self._known):
            self._counts, self._counted = dict(counts), len(kept)
            self._journal.restart([self._head(), *(encode_from_party(each) for each in kept)])
            self._known = {name_of(each): each for each in kept}

    def _head(self) -> bytes:
        return json.dumps({"facts": self._facts, "counts": self._counts, "counted": self._counted}).encode()

    def _remember(self, message: object) -> None:
        if not isinstance(message, Push | HeldOutPredictions):
            raise StateCorrupt(
                f"the stored releases hold a {type(message).__name__}; give the run a new name at every side"
            )
        self._known[name_of(message)] = message


def name_of(message: Push | HeldOutPredictions) -> Name:
    """What a release is found by."""
    return ("push", message.step) if isinstance(message, Push) else ("held-out", message.epoch)
