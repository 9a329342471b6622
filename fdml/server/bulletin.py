"""The bulletin board: where parties that look for their shared rows leave messages for each other and for the server.

It owns no socket, thread or clock. What `post` has taken is durable, and is
never replaced by anything else: a party that was stopped posts the same again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Self

from fdml.align.split import held_out_count
from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import (
    KINDS,
    SERVER,
    AlignmentMessage,
    BlindedIds,
    RowCounts,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.protocol.limits import CEILING
from fdml.server.bulletin_rules import START_OVER, BulletinRules, Entry
from fdml.server.bulletin_slots import BulletinSlots, Slot
from fdml.server.intersect import match_rows
from fdml.settings import Align
from fdml.storage.disk import Disk

_MAGIC = b"fdmlblt1"
_HASH = 32
_CLEARING = "bulletin-clearing"


class BulletinStore:
    """All messages of a run. Make it with `BulletinStore.open`, which goes on from what the disk holds."""

    def __init__(self, parties: Sequence[str], mode: Align, disk: Disk, largest: int = CEILING) -> None:
        self._slots = BulletinSlots(parties)
        self._mode = mode
        self._disk = disk
        self._largest = largest
        self._binding = _hash(json.dumps([*parties, mode]).encode())
        self._entries: dict[Slot, Entry] = {}
        self._rules = BulletinRules(self._slots, mode, self._entries)

    @classmethod
    def open(cls, parties: Sequence[str], mode: Align, disk: Disk, largest: int = CEILING) -> Self:
        """Go on from what the disk holds; messages of other parties or another mode do not count."""
        store = cls(parties, mode, disk, largest)
        if disk.read(_CLEARING) is not None:
            store.clear()
        for slot in store._slots.all:
            raw = store._read(slot)
            if raw is not None:
                store._entries[slot] = Entry.of(decode_alignment(raw), raw, _hash(raw))
        store._find_shared_rows()
        return store

    def post(self, sender: str, to: str, about: str, raw: bytes) -> None:
        """Store a message, durable on return; a refused message changes nothing and raises `MessageRefused`.

        The last set to come makes the server find the shared rows, which takes seconds for millions.
        """
        self._slots.check_party(sender)
        if len(raw) > self._largest:
            raise MessageRefused(
                f"party {sender!r} posted {len(raw)} bytes; a message may have {self._largest}", Refusal.TOO_LARGE
            )
        message = decode_alignment(raw)
        slot = Slot(type(message), sender, to, about)
        self._slots.check_writer(slot)
        known = self._entries.get(slot)
        if known is None:
            self._rules.check(slot, message)
            self._store(slot, raw, message)
        elif known.digest != _hash(raw) and self._rules.may_replace(slot):
            self._store(slot, raw, message)
        elif known.digest != _hash(raw):
            raise MessageRefused(
                f"party {sender!r} posted {slot} before and now another: its ids, key or run.toml have "
                f"changed since, or it alone was started over; put them back, or {START_OVER}",
                Refusal.CONFLICT,
            )
        self._find_shared_rows()

    def fetch(self, reader: str, kind: str, sender: str, about: str = "") -> bytes | None:
        """A message for this reader as it was posted; None if it has not come yet.

        The shared rows are told to nobody before all parties have consented.
        """
        slot = self._slots.for_reader(reader, kind, sender, about)
        if slot.kind is SharedRowIndex and self._without_consent():
            return None
        return self._read(slot) if slot in self._entries else None

    def waits_for(self, reader: str, kind: str, sender: str, about: str = "") -> list[str]:
        """Whose work is missing for what the reader waits for, in the order of the run; empty once it is there."""
        wanted, parties = KINDS.get(kind), self._slots.parties
        if wanted in (SharedRowIndex, RowSummary):
            missing = {self._next_at(owner) for owner in parties if self._final_set(owner) is None}
            if not missing and wanted is SharedRowIndex:
                return self._without_consent()
            return [party for party in parties if party in missing]
        if wanted is BlindedIds and about in parties:
            slot = self._slots.for_reader(reader, kind, sender, about)
            return [] if slot in self._entries else [self._next_at(about)]
        return [sender] if sender in parties else []

    def clear(self) -> None:
        """Remove all messages; after a crash in the middle of it, `open` completes it."""
        self._disk.replace(_CLEARING, b"")
        for slot in self._slots.all:
            self._disk.remove(self._slots.file_name(slot))
        self._entries.clear()
        self._disk.remove(_CLEARING)

    @property
    def rows(self) -> dict[str, int]:
        """How many training rows each party has, as far as they have posted them."""
        known = {party: self._rules.own_rows(party) for party in self._slots.parties}
        return {party: rows.train for party, rows in known.items() if rows is not None}

    @property
    def shared(self) -> RowCounts | None:
        """How many training and test rows all parties share; None until all sets have come."""
        entry = self._entries.get(self._slots.answers[0])
        return None if entry is None else entry.rows

    def split(self, holdout: float) -> RowCounts | None:
        """How many rows the run trains on and how many it holds out; None until the shared rows are found."""
        shared, own = self.shared, self._rules.own_rows(self._slots.parties[0])
        if shared is None or own is None:
            return None
        if own.test is not None:
            return shared
        held_out = held_out_count(shared.train, holdout)
        return RowCounts(shared.train - held_out, held_out)

    def largest_post(self, sender: str) -> int:
        """Bytes of the largest message that a party may post: once the shared rows are found, none but those it has."""
        posted = [entry.size for slot, entry in self._entries.items() if slot.sender == sender]
        return self._largest if self.shared is None else max(posted, default=0)

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows, which every party that joins must have; None until all sets have come."""
        raw = self.fetch(self._slots.parties[0], "shared_rows", SERVER)
        message = None if raw is None else decode_alignment(raw)
        return message.digest if isinstance(message, SharedRowIndex) else None

    def _final_set(self, owner: str) -> Slot | None:
        """The slot of an owner's ids as the server matches them; None if they have not come."""
        return self._rules.first_stored(self._slots.final_sets(owner))

    def _next_at(self, owner: str) -> str:
        """The party that has to act next on an owner's ids."""
        if self._mode == "tokens":
            return owner
        return next((slot.sender for slot in self._slots.ring(owner) if slot not in self._entries), owner)

    def _find_shared_rows(self) -> None:
        """Match the rows as soon as all sets are there, unless that has been done."""
        sets = [self._final_set(party) for party in self._slots.parties]
        answers = self._slots.answers
        if None in sets or self._slots.summary in self._entries:
            return
        messages = [decode_alignment(self._read(slot) or b"") for slot in sets if slot is not None]
        found = match_rows([each for each in messages if isinstance(each, Tokens | BlindedIds)])
        for answer, places in zip(answers, found, strict=True):
            if answer not in self._entries:
                self._store(answer, encode_alignment(places), places)
        summary = self._summary(found[0])
        self._store(self._slots.summary, encode_alignment(summary), summary)

    def _summary(self, found: SharedRowIndex) -> RowSummary:
        """How many rows each party brought and how many all share."""
        own = [rows for party in self._slots.parties if (rows := self._rules.own_rows(party)) is not None]
        test = tuple(rows.test for rows in own if rows.test is not None)
        return RowSummary(tuple(rows.train for rows in own), test, len(found.train), len(found.held_out))

    def _without_consent(self) -> list[str]:
        """The parties that have not consented to the shared rows being told."""
        return [party for party in self._slots.parties if not self._rules.has_consented(party)]

    def _store(self, slot: Slot, raw: bytes, message: AlignmentMessage) -> None:
        bound = self._binding + raw
        self._disk.replace(self._slots.file_name(slot), _MAGIC + _hash(bound) + bound)
        self._entries[slot] = Entry.of(message, raw, _hash(raw))

    def _read(self, slot: Slot) -> bytes | None:
        name = self._slots.file_name(slot)
        stored = self._disk.read(name)
        if stored is None:
            return None
        checksum, bound = stored[len(_MAGIC) : len(_MAGIC) + _HASH], memoryview(stored)[len(_MAGIC) + _HASH :]
        if stored[: len(_MAGIC)] != _MAGIC or checksum != _hash(bound):
            raise StateCorrupt(f"the message {name!r} is damaged; restore it, or {START_OVER}")
        return bytes(bound[_HASH:]) if bound[:_HASH] == self._binding else None


def _hash(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH).digest()
