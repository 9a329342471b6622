"""The bulletin board: where parties that look for their shared rows leave messages for each other and for the server.

It owns no socket, thread or clock. What `post` has taken is durable, and is
never replaced by anything else: a party that was stopped posts the same again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from fdml.align.key_lists import FoundRows, RowIndex
from fdml.align.split import split_counts
from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import (
    KINDS,
    PIECE_ROWS,
    POINT_BYTES,
    SERVER,
    TOKEN_BYTES,
    AlignmentMessage,
    BlindedIds,
    Keys,
    RemovedRows,
    RowCounts,
    RowSummary,
    SharedRowIndex,
    StoredPieces,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.protocol.limits import CEILING
from fdml.server.bulletin_rules import BulletinRules, KeyLists
from fdml.server.bulletin_slots import BulletinSlots, IdSet, Slot
from fdml.server.matched_sets import MatchedSets, match_additions
from fdml.server.message_files import START_OVER, MessageFiles, content_hash
from fdml.server.shared_answers import SharedAnswers
from fdml.server.stored_messages import Entry, StoredMessages
from fdml.settings.choices import Align
from fdml.storage.disk import Disk

_NO_PLACES: RowIndex = np.zeros(0, np.int64)


class BulletinStore:
    """All messages of one generation. Make it with `BulletinStore.open`, which goes on from what the disk holds."""

    def __init__(
        self,
        parties: Sequence[str],
        mode: Align,
        disk: Disk,
        largest: int = CEILING,
        *,
        pointing: str | None = None,
        base: BulletinStore | None = None,
        number: int = 1,
        piece_rows: int = PIECE_ROWS,
    ) -> None:
        """`pointing` is the label party where its rows point to the others'; `base` is what this one adds to.

        What was found is told in pieces of `piece_rows`.
        """
        self._slots = BulletinSlots(parties, pointing, adds=base is not None)
        self._mode = mode
        self._largest = largest
        self.base = base
        self.number = number
        bound = [*parties, mode] if pointing is None else [*parties, mode, "pointing", pointing]
        self._disk = disk
        self._piece_rows = piece_rows
        self._stored = StoredMessages(MessageFiles(disk, json.dumps(bound)), self._slots)
        self._entries = self._stored.entries
        self._rules = BulletinRules(self._slots, mode, self._stored, self._posted_before)

    @classmethod
    def open(
        cls,
        parties: Sequence[str],
        mode: Align,
        disk: Disk,
        largest: int = CEILING,
        *,
        pointing: str | None = None,
        base: BulletinStore | None = None,
        number: int = 1,
        piece_rows: int = PIECE_ROWS,
    ) -> Self:
        """Go on from what the disk holds; messages of other parties or another mode do not count."""
        store = cls(parties, mode, disk, largest, pointing=pointing, base=base, number=number, piece_rows=piece_rows)
        store._stored.load()
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
        self._stored.check_piece(slot, message)
        known = self._stored.digest(slot, message)
        if known is None:
            self._rules.check(slot, message)
            self._check_new(slot, message)
            self._stored.put(slot, raw, message)
        elif known != content_hash(raw) and self._rules.may_replace(slot):
            self._stored.put(slot, raw, message)
        elif known != content_hash(raw) and not self._rules.says_the_same(slot, message):
            raise MessageRefused(
                f"party {sender!r} posted {slot} before and now another: its ids, key or run.toml have "
                f"changed since, or it alone was started over; put them back, or {START_OVER}",
                Refusal.CONFLICT,
            )
        self._find_shared_rows()

    def fetch(self, reader: str, kind: str, sender: str, about: str = "", piece: int = 0) -> bytes | None:
        """A message for this reader as it was posted, or a piece of it; None if it has not come yet.

        The shared rows are told to nobody before all parties have consented.
        """
        if KINDS.get(kind) is StoredPieces:
            posted = self._slots.posted(reader, sender, about, Tokens if self._mode == "tokens" else BlindedIds)
            self._slots.check_writer(posted)
            return encode_alignment(StoredPieces(self._stored.leading(posted)))
        slot = self._slots.for_reader(reader, kind, sender, about)
        if slot.kind is SharedRowIndex and (self._without_consent() or slot not in self._entries):
            return None
        return self._stored.raw(slot, piece) if self._stored.has_piece(slot, piece) else None

    def waits_for(self, reader: str, kind: str, sender: str, about: str = "") -> list[str]:
        """Whose work is missing for what the reader waits for, in the order of the run; empty once it is there."""
        wanted, parties = KINDS.get(kind), self._slots.parties
        if wanted in (SharedRowIndex, RowSummary):
            missing = {self._next_at(each) for each in self._slots.sets if self._final(each) is None}
            missing |= {party for party in parties if self._rules.own_rows(party) is None} - self._slots.own_ids.keys()
            missing |= {slot.sender for slot in self._slots.removed if slot not in self._entries}
            if not missing and wanted is SharedRowIndex:
                return self._without_consent()
            return [party for party in parties if party in missing]
        if wanted is BlindedIds and about in parties:
            slot = self._slots.for_reader(reader, kind, sender, about)
            return [] if slot in self._entries else [self._next_at(self._slots.set_of(slot))]
        return [sender] if sender in parties else []

    @property
    def rows(self) -> dict[str, int]:
        """How many training rows each party has, as far as they have posted them."""
        if self.base is not None:
            summary = self.summary
            return self.base.rows if summary is None else dict(zip(self._slots.parties, summary.rows, strict=True))
        known = {party: self._rules.own_rows(party) for party in self._slots.parties}
        return {party: rows.train for party, rows in known.items() if rows is not None}

    @property
    def summary(self) -> RowSummary | None:
        """The counts that the parties consent to; None until all sets have come."""
        raw = self._stored.raw(self._slots.summary) if self._slots.summary in self._entries else None
        message = None if raw is None else decode_alignment(raw)
        return message if isinstance(message, RowSummary) else None

    @property
    def shared(self) -> RowCounts | None:
        """How many training and test rows all parties share, or the run has; None until that is known."""
        if self._slots.pointers:
            return None if self._first_pointers is None else self._first_pointers.rows
        summary = self.summary
        return None if summary is None else RowCounts(summary.shared, summary.shared_test)

    def split(self, holdout: float, seed: int) -> RowCounts | None:
        """How many rows a run trains on and how many it holds out; None until the shared rows are found."""
        shared = self.shared
        if shared is None:
            return None
        if self._has_tests(self._slots.pointing or self._slots.parties[0]):
            return shared
        return RowCounts(*split_counts(self._found()[0], holdout, seed))

    def _found(self) -> tuple[FoundRows, FoundRows]:
        """All rows that this generation and those before it have found."""
        if self.base is None:
            shared = self.shared or RowCounts(0, 0)
            return FoundRows.of(shared.train), FoundRows.of(shared.test or 0)
        before, own = self.base._found(), self._stored.index(self._slots.answers[0])
        return before[0].after(own.left, len(own.train)), before[1].after(own.left_test, len(own.held_out))

    @property
    def is_complete(self) -> bool:
        """Whether there is nothing left to post: all have consented, and all pointers are told."""
        told = self._slots.summary in self._entries and all(slot in self._entries for slot in self._slots.pointers)
        return told and not self._without_consent()

    @property
    def _first_pointers(self) -> Entry | None:
        """Those that came first; the rules see that all others are of the same rows, and a party may join before."""
        return next((self._entries[slot] for slot in self._slots.pointers if slot in self._entries), None)

    def largest_post(self, sender: str) -> int:
        """Bytes of the largest message that a party may post: once the shared rows are found, none but those it has."""
        awaited = (self._slots.summary, *self._slots.pointers)
        is_open = any(slot not in self._entries for slot in awaited)
        return self._largest if is_open else self._stored.largest(sender)

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
        if any(slot not in self._entries for slot in slots.removed):
            return
        own = [rows for rows in known if rows is not None]
        if slots.adds:
            found, summary = self._match_new(own)
            for answer, places in found.items():
                self._stored.put_index(answer, places, self._piece_rows)
        else:
            summary = self._summary(own, self._match(own))
        self._stored.put(slots.summary, encode_alignment(summary), summary)

    def _match_new(self, own: Sequence[RowCounts]) -> tuple[dict[Slot, SharedRowIndex], RowSummary]:
        """Match what has come with all that was there before."""
        before, (gone, new) = self._before, self._changes()
        answers, summary = match_additions(
            [each.posted(gone[at], new[at]) for at, each in enumerate(before.matched_sets())],
            own,
            before.digest or b"",
            self.number,
        )
        return dict(zip(self._slots.answers, answers, strict=True)), summary

    @property
    def _before(self) -> BulletinStore:
        """The generation that this one adds to."""
        if self.base is None:
            raise StateCorrupt("a first generation has nothing to add to")
        return self.base

    def matched_sets(self) -> tuple[MatchedSets, MatchedSets]:
        """All keys and rows of this generation and those before it."""
        chain, first = [], self
        while first.base is not None:
            chain.append(first)
            first = first.base
        size, parties = TOKEN_BYTES if self._mode == "tokens" else POINT_BYTES, len(self._slots.parties)
        sets = [MatchedSets.none(parties, size), MatchedSets.none(parties, size)]
        for each in [first, *reversed(chain)]:
            gone, new = each._changes()
            answers = [each._stored.index(slot) for slot in each._slots.answers]
            left = answers[0].left, answers[0].left_test
            places = [answer.train for answer in answers], [answer.held_out for answer in answers]
            sets = [sets[at].posted(gone[at], new[at]).matched(places[at], left[at]) for at in (0, 1)]
        return sets[0], sets[1]

    def _changes(self) -> tuple[list[list[RowIndex]], list[list[Keys]]]:
        """Of training and of test rows, by party: places of rows that have gone, and new keys."""
        sets = [self._stored.ids(slot) for slot in map(self._final, self._slots.sets) if slot is not None]
        gone = [self._removed(party) for party in self._slots.parties]
        tests = [each.train[:0] if each.test is None else each.test for each in sets]
        return [[each.train for each in gone], [each.test for each in gone]], [[each.train for each in sets], tests]

    def _removed(self, party: str) -> RemovedRows:
        raw = self._stored.raw(Slot(RemovedRows, party)) if self.base is not None else None
        message = RemovedRows(_NO_PLACES, _NO_PLACES) if raw is None else decode_alignment(raw)
        return message if isinstance(message, RemovedRows) else RemovedRows(_NO_PLACES, _NO_PLACES)

    def _posted_before(self, party: str) -> KeyLists:
        train, test = (each.lists[self._slots.parties.index(party)] for each in self._before.matched_sets())
        return train, test

    def _check_new(self, slot: Slot, message: AlignmentMessage) -> None:
        """The server must not be shown a key twice: it could not tell which of the two is meant."""
        if self.base is None or not isinstance(message, Tokens | BlindedIds) or slot.to != SERVER:
            return
        owner = slot.sender if isinstance(message, Tokens) else slot.about
        self._rules.check_new(owner, message)

    def _match(self, own: Sequence[RowCounts]) -> dict[Slot, RowCounts]:
        """Find the rows that all share, or each other party with the label party, and store them for each party."""
        slots, counts = self._slots, [rows.train for rows in own]
        found, final = SharedAnswers(self._stored, self._disk, self._piece_rows), self._final
        if slots.pointing is None:
            sets = [final(each) for each in slots.sets]
            if any(self._entries[slot].by_position for slot in sets if slot is not None):
                return found.in_position(own[0], slots.answers)
            return found.match(sets, slots.answers, counts)
        shared: dict[Slot, RowCounts] = {}
        for party, theirs, leading in zip(slots.others, slots.answers, slots.led_answers, strict=True):
            pair = final(slots.led[party]), final(slots.own_ids[party])
            shared |= found.match(pair, (leading, theirs), counts)
        return shared

    def _summary(self, own: Sequence[RowCounts], found: Mapping[Slot, RowCounts]) -> RowSummary:
        """How many rows each party brought and how many all share, or each with the label party."""
        slots, rows = self._slots, tuple(each.train for each in own)
        test = tuple(each.test for each in own if each.test is not None)
        shared = min(found[slot].train for slot in slots.answers)
        if slots.pointing is None:
            return RowSummary(rows, test, shared, found[slots.answers[0]].test or 0, number=self.number)
        with_tests = [found[slot].test or 0 for slot in slots.answers if self._has_tests(slot.to)]
        matched = {slot.to: found[slot].train for slot in slots.answers}
        counts = tuple(matched.get(party, brought) for party, brought in zip(slots.parties, rows, strict=True))
        tests = tuple(each.test or 0 for each in own) if test else ()
        return RowSummary(rows, tests, shared, min(with_tests, default=0), counts, self.number)

    def _has_tests(self, party: str) -> bool:
        rows = self._rules.own_rows(party)
        return rows is not None and rows.test is not None

    def _without_consent(self) -> list[str]:
        """The parties that have not consented to the shared rows being told."""
        return [party for party in self._slots.parties if not self._rules.has_consented(party)]
