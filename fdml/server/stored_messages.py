"""The messages of one generation on the server's disk; a set of many rows is stored piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from fdml.align.key_lists import RowIndex
from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import (
    AlignmentMessage,
    BlindedIds,
    Consent,
    KeyOffer,
    Piece,
    RowCounts,
    RowPointers,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.server.bulletin_slots import BulletinSlots, Slot
from fdml.server.message_files import START_OVER, MessageFiles, content_hash


@dataclass(frozen=True)
class Entry:
    """What is remembered of a stored message, or of a set whose pieces are all stored; the bytes stay on the disk."""

    digest: bytes
    rows: RowCounts | None
    """How many rows it has, if it has rows."""
    by_position: bool
    size: int
    """Bytes of the message, of a set the bytes of its first piece."""
    brings_key: bool = False
    """Of an offer: whether its party has the group key from a file."""
    consents: bool = False
    """Of a consent: whether it is given."""
    agreed: bytes = b""
    """Of pointers: the hash that all sides must have."""

    @classmethod
    def of(cls, message: AlignmentMessage, raw: bytes, digest: bytes) -> Entry:
        """The entry of a message with these bytes, whose digest is given."""
        brings_key = isinstance(message, KeyOffer) and message.brings_key
        consents = isinstance(message, Consent) and message.given
        agreed = message.digest if isinstance(message, RowPointers) else b""
        return cls(digest, row_counts(message), is_by_position(message), len(raw), brings_key, consents, agreed)


def row_counts(message: AlignmentMessage) -> RowCounts | None:
    """How many rows a message has, or the set that it is a piece of; None for the kinds without rows."""
    piece = piece_of(message)
    if piece is not None:
        return piece.rows
    match message:
        case Tokens(by_position=RowCounts() as rows):
            return rows
        case Tokens(train, test) | BlindedIds(train, test):
            return RowCounts(len(train), None if test is None else len(test))
        case SharedRowIndex(train, held_out):
            return RowCounts(len(train), len(held_out))
        case RowPointers(train, held_out):
            return RowCounts(train, held_out)
        case _:
            return None


def is_by_position(message: AlignmentMessage) -> bool:
    """Whether a message has the number of a party's rows alone."""
    return isinstance(message, Tokens) and message.by_position is not None


def piece_of(message: AlignmentMessage) -> Piece | None:
    """Which piece of a set a message is; None where it is whole."""
    return message.piece if isinstance(message, Tokens | BlindedIds | SharedRowIndex | RowPointers) else None


class StoredMessages:
    """Messages by slot. `entries` has those that are whole; pieces of others wait for the rest."""

    def __init__(self, files: MessageFiles, slots: BulletinSlots) -> None:
        self._files = files
        self._slots = slots
        self.entries: dict[Slot, Entry] = {}
        self._sets: dict[Slot, tuple[Piece, int]] = {}
        """Of sets in pieces: any piece, and the bytes of the first one that came."""
        self._pieces: dict[Slot, dict[int, bytes]] = {}
        """By number, the digests of the pieces that are stored."""

    def load(self) -> None:
        """Remember all that the disk holds."""
        for slot in self._slots.all:
            raw = self.raw(slot)
            if raw is None:
                continue
            message = decode_alignment(raw)
            self._remember(slot, message, raw)
            self._find_others(slot, piece_of(message))

    def put(self, slot: Slot, raw: bytes, message: AlignmentMessage) -> None:
        """Store a message or a piece; durable on return."""
        piece = piece_of(message)
        is_first = slot not in self._sets
        self._files.write(self._name(slot, 0 if piece is None else piece.number), raw)
        self._remember(slot, message, raw)
        if is_first:
            self._find_others(slot, piece)

    def digest(self, slot: Slot, message: AlignmentMessage) -> bytes | None:
        """The digest of what is stored where this message would be; None if there is nothing."""
        piece, entry = piece_of(message), self.entries.get(slot)
        if slot in self._pieces and piece is not None:
            return self._pieces[slot].get(piece.number)
        return None if entry is None else entry.digest

    def check_piece(self, slot: Slot, message: AlignmentMessage) -> None:
        """Refuse a piece unless it is of the set whose pieces have come before, in whatever order."""
        piece, known = piece_of(message), self._sets.get(slot)
        if known is not None and piece != known[0].at(0 if piece is None else piece.number):
            raise MessageRefused(
                f"party {slot.sender!r} posted a piece of {slot} that does not fit those before it; {START_OVER}",
                Refusal.CONFLICT,
            )

    def has_piece(self, slot: Slot, number: int) -> bool:
        """Whether a piece of a set is stored, or the whole of it."""
        return slot in self.entries or number in self._pieces.get(slot, ())

    def rows(self, slot: Slot) -> RowCounts | None:
        """How many rows a set has of which something is stored."""
        known = self._sets.get(slot)
        return self.entries[slot].rows if slot in self.entries else None if known is None else known[0].rows

    def leading(self, slot: Slot) -> int:
        """How many pieces are stored from the first on."""
        stored = self._pieces.get(slot, {})
        return next(number for number in range(len(stored) + 1) if number not in stored)

    def largest(self, sender: str) -> int:
        """Bytes of the largest message or piece that a sender has stored."""
        return max((entry.size for slot, entry in self.entries.items() if slot.sender == sender), default=0)

    def raw(self, slot: Slot, piece: int = 0) -> bytes | None:
        """A message, or a piece of a set, as it was posted."""
        return self._files.read(self._name(slot, piece))

    def parts(self, slot: Slot) -> Iterator[AlignmentMessage]:
        """A whole message, or the pieces of a set one after the other."""
        known = self._sets.get(slot)
        for number in range(1 if known is None else known[0].count):
            raw = self.raw(slot, number)
            if raw is None:
                raise StateCorrupt(f"{slot} of {slot.sender!r} is not where it was; {START_OVER}")
            yield decode_alignment(raw)

    def id_parts(self, slot: Slot) -> Iterator[Tokens | BlindedIds]:
        """The pieces of a set of ids."""
        for each in self.parts(slot):
            if not isinstance(each, Tokens | BlindedIds):
                raise StateCorrupt(f"the ids of {slot.sender!r} are not where they were; {START_OVER}")
            yield each

    def ids(self, slot: Slot) -> Tokens | BlindedIds:
        """A set of ids, put together."""
        parts = list(self.id_parts(slot))
        if len(parts) == 1:
            return parts[0]
        train = np.concatenate([each.train for each in parts])
        tests = [each.test for each in parts if each.test is not None]
        return replace(parts[0], train=train, test=np.concatenate(tests) if tests else None, piece=None)

    def index(self, slot: Slot) -> SharedRowIndex:
        """The shared rows of a party, put together."""
        parts = [each for each in self.parts(slot) if isinstance(each, SharedRowIndex)]
        if not parts:
            raise StateCorrupt(f"what was found for {slot.to!r} is not where it was; {START_OVER}")
        if len(parts) == 1:
            return parts[0]
        train, held_out = (np.concatenate([getattr(each, name) for each in parts]) for name in ("train", "held_out"))
        return replace(parts[0], train=train, held_out=held_out, piece=None)

    def put_index(self, slot: Slot, index: SharedRowIndex, size: int) -> None:
        """Store the shared rows of a party, in pieces of so many rows where there are more."""
        whole = Piece(0, size, RowCounts(len(index.train), len(index.held_out)))
        for piece in map(whole.at, range(whole.count)):
            self.put_part(slot, index, piece, index.train[piece.train], index.held_out[piece.test])

    def put_part(self, slot: Slot, facts: SharedRowIndex, piece: Piece, train: RowIndex, held_out: RowIndex) -> None:
        """Store one piece of what was found for a party; those that left are in the first."""
        first = facts if not piece.number else replace(facts, left=facts.left[:0], left_test=facts.left_test[:0])
        part = replace(first, train=train, held_out=held_out, piece=piece if piece.count > 1 else None)
        self.put(slot, encode_alignment(part), part)

    def _find_others(self, slot: Slot, piece: Piece | None) -> None:
        """Remember what the disk holds of a set besides this piece: what came before the first one, too."""
        for number in range(1 if piece is None else piece.count):
            if piece is None or number == piece.number:
                continue
            raw = self.raw(slot, number)
            message = None if raw is None else decode_alignment(raw)
            if raw is not None and message is not None and piece_of(message) == piece.at(number):
                self._remember(slot, message, raw)

    def _remember(self, slot: Slot, message: AlignmentMessage, raw: bytes) -> None:
        piece, digest = piece_of(message), content_hash(raw)
        if piece is None:
            self.entries[slot] = Entry.of(message, raw, digest)
            return
        known = self._sets.setdefault(slot, (piece, len(raw)))
        stored = self._pieces.setdefault(slot, {})
        stored[piece.number] = digest
        if len(stored) == piece.count:
            whole = content_hash(b"".join(stored[number] for number in range(piece.count)))
            self.entries[slot] = replace(Entry.of(message, raw, whole), size=known[1])

    def _name(self, slot: Slot, piece: int) -> str:
        name = self._slots.file_name(slot)
        return name if not piece else f"{name}.{piece}"
