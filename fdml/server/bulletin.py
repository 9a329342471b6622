"""The board on which parties that look for their shared rows leave messages for each other and for the server.

It owns no socket, thread or clock. What `post` has taken is durable, and can
never be replaced by anything else: a party that was stopped posts the same again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from fdml.errors import MessageRefused, Refusal, StateCorrupt
from fdml.protocol.alignment_messages import (
    KINDS,
    SERVER,
    AlignmentMessage,
    BlindedIds,
    KeyCheck,
    KeyGrant,
    KeyOffer,
    RowCounts,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment, kind_of
from fdml.protocol.key_sets import ascending, is_ascending, repeated
from fdml.server.intersect import match_rows
from fdml.server.limits import CEILING
from fdml.settings import Align
from fdml.storage.disk import Disk

_MAGIC = b"fdmlbrd1"
_HASH = 32
_CLEARING = "board-clearing"
_START_OVER = "start over with `fdml align --fresh` at every party and a server started with --fresh"


class Slot(NamedTuple):
    """Where a message hangs. `to` is empty where the kind says who may read it."""

    kind: type[AlignmentMessage]
    sender: str
    to: str = SERVER
    about: str = ""


@dataclass(frozen=True)
class _Entry:
    """What is remembered of a message; its bytes stay on the disk."""

    digest: bytes
    rows: RowCounts | None
    """How many rows it has, if it has rows."""
    by_position: bool


class BulletinStore:
    """All messages of a run. Make it with `BulletinStore.open`, which goes on from what the disk holds."""

    def __init__(self, parties: Sequence[str], mode: Align, disk: Disk, largest: int = CEILING) -> None:
        self._parties = tuple(parties)
        self._mode = mode
        self._disk = disk
        self._largest = largest
        self._binding = _hash(json.dumps([*parties, mode]).encode())
        self._entries: dict[Slot, _Entry] = {}

    @classmethod
    def open(cls, parties: Sequence[str], mode: Align, disk: Disk, largest: int = CEILING) -> Self:
        """Go on from what the disk holds; messages of other parties or another mode do not count."""
        board = cls(parties, mode, disk, largest)
        if disk.read(_CLEARING) is not None:
            board.clear()
        for slot in board._slots():
            raw = board._read(slot)
            if raw is not None:
                board._entries[slot] = _entry(raw, decode_alignment(raw))
        board._settle()
        return board

    def post(self, sender: str, to: str, about: str, raw: bytes) -> None:
        """Store a message, durable on return; a refused message changes nothing and raises `MessageRefused`.

        The last set to come makes the server find the shared rows, which takes seconds for millions.
        """
        if sender not in self._parties:
            raise MessageRefused(f"{sender!r} is not a party of this run", Refusal.NOT_PERMITTED)
        if len(raw) > self._largest:
            raise MessageRefused(
                f"party {sender!r} posted {len(raw)} bytes; a message may have {self._largest}", Refusal.TOO_LARGE
            )
        message = decode_alignment(raw)
        slot = Slot(type(message), sender, to, about)
        self._check_address(slot)
        known = self._entries.get(slot)
        if known is None:
            self._check(slot, message)
            self._store(slot, raw, message)
        elif known.digest != _hash(raw):
            raise MessageRefused(
                f"party {sender!r} posted {_spoken(slot)} before and now another: its ids, key or run.toml have "
                f"changed since, or it alone was started over; put them back, or {_START_OVER}",
                Refusal.CONFLICT,
            )
        self._settle()

    def fetch(self, reader: str, kind: str, sender: str, about: str = "") -> bytes | None:
        """A message for this reader as it was posted; None if it has not come yet."""
        slot = self._slot_of(reader, kind, sender, about)
        return self._read(slot) if slot in self._entries else None

    def waits_for(self, reader: str, kind: str, sender: str, about: str = "") -> list[str]:
        """Whose work is missing for what the reader waits for, in the order of the run; empty once it is there."""
        wanted = KINDS.get(kind)
        if wanted is SharedRowIndex:
            missing = {self._at_work(owner) for owner in self._parties if self._set_of(owner) is None}
            return [party for party in self._parties if party in missing]
        if wanted is BlindedIds and about in self._parties:
            return [] if self._slot_of(reader, kind, sender, about) in self._entries else [self._at_work(about)]
        return [sender] if sender in self._parties else []

    def clear(self) -> None:
        """Take down all messages; after a crash in the middle of it, `open` completes it."""
        self._disk.replace(_CLEARING, b"")
        for slot in self._slots():
            self._disk.remove(self._file(slot))
        self._entries = {}
        self._disk.remove(_CLEARING)

    @property
    def rows(self) -> dict[str, int]:
        """How many training rows each party has, as far as they have posted them."""
        known = {party: self._own_rows(party) for party in self._parties}
        return {party: rows.train for party, rows in known.items() if rows is not None}

    @property
    def shared(self) -> RowCounts | None:
        """How many training and test rows all parties share; None until all sets have come."""
        entry = self._entries.get(Slot(SharedRowIndex, SERVER, self._parties[0]))
        return None if entry is None else entry.rows

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows, which every party that joins must have; None until all sets have come."""
        raw = self.fetch(self._parties[0], "shared_rows", SERVER)
        message = None if raw is None else decode_alignment(raw)
        return message.digest if isinstance(message, SharedRowIndex) else None

    def _slots(self) -> list[Slot]:
        """Every slot there can be, as a disk cannot list its files."""
        parties = self._parties
        slots = [Slot(kind, party) for kind in (KeyOffer, KeyCheck, Tokens) for party in parties]
        slots += [Slot(KeyGrant, parties[0], party) for party in parties[1:]]
        slots += [Slot(SharedRowIndex, SERVER, party) for party in parties]
        return slots + [Slot(BlindedIds, by, self._after(by, owner), owner) for owner in parties for by in parties]

    def _after(self, party: str, owner: str) -> str:
        """To whom a party passes an owner's blinded set: the next in the run, or the server once it is round."""
        following = self._parties[(self._parties.index(party) + 1) % len(self._parties)]
        return SERVER if following == owner else following

    def _round(self, owner: str) -> list[Slot]:
        """The slots that an owner's blinded set passes, the owner's own first, the server's last."""
        begin = self._parties.index(owner)
        passing = self._parties[begin:] + self._parties[:begin]
        return [Slot(BlindedIds, party, self._after(party, owner), owner) for party in passing]

    def _set_of(self, owner: str) -> Slot | None:
        """Where the set hangs from which the server finds the owner's shared rows; None if it has not come."""
        candidates = (Slot(Tokens, owner), self._round(owner)[-1])
        return next((slot for slot in candidates if slot in self._entries), None)

    def _at_work(self, owner: str) -> str:
        """Who has to act next on an owner's set."""
        if self._mode == "tokens":
            return owner
        return next((slot.sender for slot in self._round(owner) if slot not in self._entries), owner)

    def _own_slot(self, party: str) -> Slot | None:
        candidates = (Slot(Tokens, party), self._round(party)[0])
        return next((slot for slot in candidates if slot in self._entries), None)

    def _own_rows(self, party: str) -> RowCounts | None:
        slot = self._own_slot(party)
        return None if slot is None else self._entries[slot].rows

    def _slot_of(self, reader: str, kind: str, sender: str, about: str) -> Slot:
        """The slot that a reader means; refused if it is another's to read."""
        if reader not in self._parties:
            raise MessageRefused(f"{reader!r} is not a party of this run", Refusal.NOT_PERMITTED)
        if kind not in KINDS:
            raise MessageRefused(f"{kind!r} is no kind of message; there are {', '.join(KINDS)}", Refusal.INVALID)
        wanted = KINDS[kind]
        to = SERVER if wanted in (KeyOffer, KeyCheck, Tokens) else reader
        slot = Slot(wanted, sender, to, about)
        if slot not in self._slots() or wanted is Tokens:
            raise MessageRefused(
                f"party {reader!r} asked for {_spoken(slot)} of {sender!r}, which is not for it", Refusal.NOT_PERMITTED
            )
        return slot

    def _check_address(self, slot: Slot) -> None:
        for name in (slot.to, slot.about):
            if name and name not in self._parties:
                raise MessageRefused(f"party {slot.sender!r} named {name!r}, no party of this run", Refusal.INVALID)
        if slot.kind is SharedRowIndex or (slot.kind is KeyGrant and slot.sender != self._parties[0]):
            raise MessageRefused(f"party {slot.sender!r} may not post {_spoken(slot)}", Refusal.NOT_PERMITTED)
        if slot not in self._slots():
            raise MessageRefused(
                f"party {slot.sender!r} posted {_spoken(slot)} to {slot.to or 'nobody'!r}, whom it is not for",
                Refusal.INVALID,
            )

    def _check(self, slot: Slot, message: AlignmentMessage) -> None:
        match message:
            case KeyOffer() | KeyCheck():
                self._check_key_source(slot)
            case Tokens(by_position=None) if self._mode == "ecdh":
                raise self._other_mode(slot.sender, "tokens")
            case BlindedIds() if self._mode == "tokens":
                raise self._other_mode(slot.sender, "ecdh")
            case Tokens():
                self._check_own_set(slot.sender, message)
            case BlindedIds() if slot.about == slot.sender:
                self._check_own_set(slot.sender, message)
            case BlindedIds():
                self._check_passed_set(slot, message)

    def _other_mode(self, sender: str, mode: Align) -> MessageRefused:
        return MessageRefused(
            f'party {sender!r} aligns by "{mode}", the run by "{self._mode}"; give both the same run.toml',
            Refusal.MISMATCH,
        )

    def _check_key_source(self, slot: Slot) -> None:
        """Either all parties have a key file or none: one that has makes no offer before its check."""
        from_file = [party for party in self._parties if self._has(KeyCheck, party) and not self._has(KeyOffer, party)]
        agreeing = [party for party in self._parties if self._has(KeyOffer, party)]
        others: list[str] = []
        if slot.kind is KeyOffer:
            others = from_file
        elif slot.sender not in agreeing:
            others = agreeing
        if others:
            having, lacking = (others[0], slot.sender) if slot.kind is KeyOffer else (slot.sender, others[0])
            raise MessageRefused(
                f"party {having!r} came with a group_key file and party {lacking!r} without; "
                f"set group_key at every party or at none, then {_START_OVER}",
                Refusal.MISMATCH,
            )

    def _has(self, kind: type[AlignmentMessage], party: str) -> bool:
        return Slot(kind, party) in self._entries

    def _check_own_set(self, sender: str, message: Tokens | BlindedIds) -> None:
        rows = _rows_of(message)
        if rows is None or rows.train == 0 or rows.test == 0:
            raise MessageRefused(f"party {sender!r} has a file without rows; check its data files", Refusal.INVALID)
        for keys in (message.train, message.test):
            if keys is not None and not is_ascending(keys):
                raise MessageRefused(
                    f"party {sender!r} posted keys that repeat or are not in ascending order", Refusal.INVALID
                )
        by_position = _is_by_position(message)
        for other in self._parties:
            slot = self._own_slot(other)
            if slot is not None and other != sender:
                self._check_alike(sender, rows, by_position, other, self._entries[slot])
            elif slot is not None:
                raise MessageRefused(
                    f"party {sender!r} posted its rows with ids before and now without, or the other way round; "
                    f"{_START_OVER}",
                    Refusal.CONFLICT,
                )

    def _check_alike(self, sender: str, rows: RowCounts, by_position: bool, other: str, entry: _Entry) -> None:
        theirs = entry.rows or rows
        if by_position != entry.by_position:
            lacking, having = (sender, other) if by_position else (other, sender)
            raise MessageRefused(
                f"party {lacking!r} has no ids but {having!r} has; set data.id at every party or at none, "
                f"then {_START_OVER}",
                Refusal.MISMATCH,
            )
        if (rows.test is None) != (theirs.test is None):
            lacking, having = (sender, other) if rows.test is None else (other, sender)
            raise MessageRefused(
                f"party {lacking!r} has no test rows but {having!r} has; set data.test_path at all or at none, "
                f"then {_START_OVER}",
                Refusal.MISMATCH,
            )
        if by_position and rows != theirs:
            raise MessageRefused(
                f"without ids all parties need equally many rows, but {sender!r} has {_counted(rows)} and {other!r} "
                f"{_counted(theirs)}; set data.id at every party, then {_START_OVER}",
                Refusal.MISMATCH,
            )

    def _check_passed_set(self, slot: Slot, message: BlindedIds) -> None:
        passing = self._round(slot.about)
        before = self._entries.get(passing[passing.index(slot) - 1])
        if before is None:
            raise MessageRefused(f"party {slot.sender!r} posted {_spoken(slot)} before it can have had it", Refusal.GAP)
        if before.rows != _rows_of(message):
            raise MessageRefused(
                f"party {slot.sender!r} passed on {_spoken(slot)} with another number of rows than it had",
                Refusal.INVALID,
            )
        for keys in (message.train, message.test):
            if keys is not None and repeated(keys[ascending(keys)]):
                raise MessageRefused(f"party {slot.sender!r} posted points that repeat", Refusal.INVALID)

    def _settle(self) -> None:
        """Find the shared rows as soon as all sets are there, unless that has been done."""
        sets = [self._set_of(party) for party in self._parties]
        answers = [Slot(SharedRowIndex, SERVER, party) for party in self._parties]
        if None in sets or all(answer in self._entries for answer in answers):
            return
        messages = [decode_alignment(self._read(slot) or b"") for slot in sets if slot is not None]
        found = match_rows([each for each in messages if isinstance(each, Tokens | BlindedIds)])
        for answer, places in zip(answers, found, strict=True):
            if answer not in self._entries:
                self._store(answer, encode_alignment(places), places)

    def _store(self, slot: Slot, raw: bytes, message: AlignmentMessage) -> None:
        bound = self._binding + raw
        self._disk.replace(self._file(slot), _MAGIC + _hash(bound) + bound)
        self._entries[slot] = _entry(raw, message)

    def _read(self, slot: Slot) -> bytes | None:
        stored = self._disk.read(self._file(slot))
        if stored is None:
            return None
        checksum, bound = stored[len(_MAGIC) : len(_MAGIC) + _HASH], memoryview(stored)[len(_MAGIC) + _HASH :]
        if stored[: len(_MAGIC)] != _MAGIC or checksum != _hash(bound):
            raise StateCorrupt(f"the message {self._file(slot)!r} is damaged; restore it, or {_START_OVER}")
        return bytes(bound[_HASH:]) if bound[:_HASH] == self._binding else None

    def _file(self, slot: Slot) -> str:
        """By numbers, as a party's name may be no file name."""
        named = [self._parties.index(name) for name in slot[1:] if name]
        return "-".join(["board", kind_of(slot.kind), *map(str, named)])


def _hash(content: bytes | memoryview) -> bytes:
    return hashlib.blake2b(content, digest_size=_HASH).digest()


def _entry(raw: bytes, message: AlignmentMessage) -> _Entry:
    return _Entry(_hash(raw), _rows_of(message), _is_by_position(message))


def _is_by_position(message: AlignmentMessage) -> bool:
    return isinstance(message, Tokens) and message.by_position is not None


def _rows_of(message: AlignmentMessage) -> RowCounts | None:
    match message:
        case Tokens(by_position=RowCounts() as rows):
            return rows
        case Tokens(train, test) | BlindedIds(train, test):
            return RowCounts(len(train), None if test is None else len(test))
        case SharedRowIndex(train, held_out):
            return RowCounts(len(train), len(held_out))
        case _:
            return None


def _counted(rows: RowCounts) -> str:
    return f"{rows.train}" if rows.test is None else f"{rows.train} and {rows.test} to test on"


def _spoken(slot: Slot) -> str:
    """A message as a message names it."""
    return f"the message {kind_of(slot.kind)!r}" + (f" about {slot.about!r}" if slot.about else "")
