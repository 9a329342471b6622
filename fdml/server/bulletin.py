"""The bulletin board: where parties that look for their shared rows leave messages for each other and for the server.

It owns no socket, thread or clock. What `post` has taken is durable, and is
never replaced by anything else: a party that was stopped posts the same again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from fdml.server.bulletin_slots import BulletinSlots, IdSet, Slot
from fdml.server.intersect import match_rows
from fdml.settings_choices import Align
from fdml.storage.disk import Disk

_MAGIC = b"fdmlblt1"
_HASH = 32
_CLEARING = "bulletin-clearing"


class BulletinStore:
    """All messages of a run. Make it with `BulletinStore.open`, which goes on from what the disk holds."""

    def __init__(
        self,
        parties: Sequence[str],
        mode: Align,
        disk: Disk,
        largest: int = CEILING,
        *,
        pointing: str | None = None,
    ) -> None:
        """`pointing` is the label party where its rows point to the others'."""
        self._slots = BulletinSlots(parties, pointing)
        self._mode = mode
        self._disk = disk
        self._largest = largest
        bound = [*parties, mode] if pointing is None else [*parties, mode, "pointing", pointing]
        self._binding = _hash(json.dumps(bound).encode())
        self._entries: dict[Slot, Entry] = {}
        self._rules = BulletinRules(self._slots, mode, self._entries)

    @classmethod
    def open(
        cls,
        parties: Sequence[str],
        mode: Align,
        disk: Disk,
        largest: int = CEILING,
        *,
        pointing: str | None = None,
    ) -> Self:
        """Go on from what the disk holds; messages of other parties or another mode do not count."""
        store = cls(parties, mode, disk, largest, pointing=pointing)
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
        elif known.digest != _hash(raw) and not self._rules.says_the_same(slot, message):
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
            missing = {self._next_at(each) for each in self._slots.sets if self._final(each) is None}
            missing |= {party for party in parties if self._rules.own_rows(party) is None} - self._slots.own_ids.keys()
            if not missing and wanted is SharedRowIndex:
                return self._without_consent()
            return [party for party in parties if party in missing]
        if wanted is BlindedIds and about in parties:
            slot = self._slots.for_reader(reader, kind, sender, about)
            return [] if slot in self._entries else [self._next_at(self._slots.set_of(slot))]
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
        """How many training and test rows all parties share, or the run has; None until that is known."""
        own = self._rules.own_rows(self._slots.pointing or self._slots.parties[0])
        if not self._slots.pointers:
            entry = self._entries.get(self._slots.answers[0])
            return None if entry is None else entry.rows
        rows = None if self._first_pointers is None else self._first_pointers.rows
        if rows is None or own is None or own.test is not None:
            return rows
        return RowCounts(rows.train + (rows.test or 0))

    def split(self, holdout: float) -> RowCounts | None:
        """How many rows the run trains on and how many it holds out; None until the shared rows are found."""
        shared, own = self.shared, self._rules.own_rows(self._slots.parties[0])
        if self._slots.pointers:
            return None if self._first_pointers is None else self._first_pointers.rows
        if shared is None or own is None:
            return None
        if own.test is not None:
            return shared
        held_out = held_out_count(shared.train, holdout)
        return RowCounts(shared.train - held_out, held_out)

    @property
    def _first_pointers(self) -> Entry | None:
        """Those that came first; the rules see that all others are of the same rows, and a party may join before."""
        return next((self._entries[slot] for slot in self._slots.pointers if slot in self._entries), None)

    def largest_post(self, sender: str) -> int:
        """Bytes of the largest message that a party may post: once the shared rows are found, none but those it has."""
        posted = [entry.size for slot, entry in self._entries.items() if slot.sender == sender]
        is_open = self.shared is None or any(slot not in self._entries for slot in self._slots.pointers)
        return self._largest if is_open else max(posted, default=0)

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows, which every party that joins must have; None until all sets have come."""
        if self._slots.pointers:
            return None if self._first_pointers is None else self._first_pointers.agreed
        raw = self.fetch(self._slots.parties[0], "shared_rows", SERVER)
        message = None if raw is None else decode_alignment(raw)
        return message.digest if isinstance(message, SharedRowIndex) else None

    def _final(self, ids: IdSet) -> Slot | None:
        """The slot of a set as the server matches it; None if it has not come."""
        return self._rules.first_stored(ids.final)

    def _next_at(self, ids: IdSet) -> str:
        """The party that has to act next on a set."""
        owner = ids.tokens.sender
        if self._mode == "tokens":
            return owner
        return next((slot.sender for slot in ids.ring if slot not in self._entries), owner)

    def _find_shared_rows(self) -> None:
        """Match the rows as soon as all sets are there, unless that has been done."""
        slots = self._slots
        known = [self._rules.own_rows(party) for party in slots.parties]
        if None in known or None in map(self._final, slots.sets) or slots.summary in self._entries:
            return
        own = [rows for rows in known if rows is not None]
        if slots.pointing is None:
            found = dict(zip(slots.answers, match_rows([self._ids(each) for each in slots.sets]), strict=True))
        else:
            found = self._match_pairs(tuple(rows.train for rows in own))
        for answer, places in found.items():
            if answer not in self._entries:
                self._store(answer, encode_alignment(places), places)
        summary = self._summary(own, found)
        self._store(slots.summary, encode_alignment(summary), summary)

    def _match_pairs(self, counts: tuple[int, ...]) -> dict[Slot, SharedRowIndex]:
        """The rows that each other party shares with the label party, for both of them."""
        slots, found = self._slots, {}
        for party, theirs, leading in zip(slots.others, slots.answers, slots.led_answers, strict=True):
            pair = match_rows([self._ids(slots.led[party]), self._ids(slots.own_ids[party])])
            found[leading], found[theirs] = (replace(each, counts=counts) for each in pair)
        return found

    def _ids(self, ids: IdSet) -> Tokens | BlindedIds:
        slot = self._final(ids)
        message = None if slot is None else decode_alignment(self._read(slot) or b"")
        if not isinstance(message, Tokens | BlindedIds):
            raise StateCorrupt(f"the ids of {ids.tokens.sender!r} are not where they were; {START_OVER}")
        return message

    def _summary(self, own: Sequence[RowCounts], found: Mapping[Slot, SharedRowIndex]) -> RowSummary:
        """How many rows each party brought and how many all share, or each with the label party."""
        slots, rows = self._slots, tuple(each.train for each in own)
        test = tuple(each.test for each in own if each.test is not None)
        shared = min(len(found[slot].train) for slot in slots.answers)
        if slots.pointing is None:
            return RowSummary(rows, test, shared, len(found[slots.answers[0]].held_out))
        with_tests = [len(found[slot].held_out) for slot in slots.answers if self._has_tests(slot.to)]
        matched = {slot.to: len(found[slot].train) for slot in slots.answers}
        counts = tuple(matched.get(party, brought) for party, brought in zip(slots.parties, rows, strict=True))
        tests = tuple(each.test or 0 for each in own) if test else ()
        return RowSummary(rows, tests, shared, min(with_tests, default=0), counts)

    def _has_tests(self, party: str) -> bool:
        rows = self._rules.own_rows(party)
        return rows is not None and rows.test is not None

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
