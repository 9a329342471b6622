"""What an alignment message must be like to be stored beside those that are there."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fdml.align.key_lists import KeyList
from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import (
    AlignmentMessage,
    BlindedIds,
    Consent,
    KeyOffer,
    RemovedRows,
    RowCounts,
    RowPointers,
    Tokens,
)
from fdml.protocol.key_sets import ascending, is_ascending, repeated
from fdml.server.bulletin_slots import BulletinSlots, Slot
from fdml.server.message_files import START_OVER
from fdml.server.stored_messages import Entry, StoredMessages, row_counts
from fdml.settings.choices import Align

KeyLists = tuple[KeyList, KeyList]
"""Of training rows and of test rows."""


class BulletinRules:
    """The checks of a new message against those that are stored, which it only reads."""

    def __init__(
        self, slots: BulletinSlots, mode: Align, stored: StoredMessages, posted: Callable[[str], KeyLists]
    ) -> None:
        """`posted` gives what a party has posted in earlier generations."""
        self._slots = slots
        self._mode = mode
        self._stored = stored
        self._entries = stored.entries
        self._posted = posted

    def check(self, slot: Slot, message: AlignmentMessage) -> None:
        """Raise `MessageRefused` unless the message may be stored in this slot, which is empty."""
        match message:
            case KeyOffer(brings_key=brings_key):
                self._check_key_source(slot.sender, brings_key)
            case Consent():
                self._check_summed_up(slot.sender)
            case Tokens(by_position=None) if self._mode == "ecdh":
                raise self._other_mode(slot.sender, "tokens")
            case BlindedIds() if self._mode == "tokens":
                raise self._other_mode(slot.sender, "ecdh")
            case Tokens() | BlindedIds() if slot.sender == self._slots.pointing:
                self._check_leading(slot, message)
            case Tokens():
                self._check_own_set(slot.sender, message)
            case BlindedIds() if slot.about == slot.sender:
                self._check_own_set(slot.sender, message)
            case BlindedIds():
                self._check_passed_set(slot, message)
            case RowPointers():
                self._check_pointers(slot, message)
            case RemovedRows():
                self._check_removed(slot.sender, message)

    def first_stored(self, slots: Iterable[Slot]) -> Slot | None:
        """The first of these slots that has a message."""
        return next((slot for slot in slots if slot in self._entries), None)

    def own_rows(self, party: str) -> RowCounts | None:
        """How many rows a party has; None before it has posted them."""
        slot = self.first_stored(self._slots.counts_of(party))
        return None if slot is None else self._entries[slot].rows

    def has_consented(self, party: str) -> bool:
        """Whether a party lets the shared rows be told."""
        entry = self._entries.get(Slot(Consent, party))
        return entry is not None and entry.consents

    def may_replace(self, slot: Slot) -> bool:
        """Whether a stored message may be replaced: only a consent that was refused, if it is given after all."""
        return slot.kind is Consent and not self.has_consented(slot.sender)

    def says_the_same(self, slot: Slot, message: AlignmentMessage) -> bool:
        """Whether a message may be posted again with other bytes: a consent may name another line, the first counts."""
        return isinstance(message, Consent) and message.given and self.has_consented(slot.sender)

    def _check_summed_up(self, sender: str) -> None:
        if self._slots.summary not in self._entries:
            raise MessageRefused(f"party {sender!r} consents before it is known how many rows are shared", Refusal.GAP)

    def _other_mode(self, sender: str, mode: Align) -> MessageRefused:
        return MessageRefused(
            f'party {sender!r} aligns by "{mode}", the run by "{self._mode}"; give both the same run.toml',
            Refusal.MISMATCH,
        )

    def _check_key_source(self, sender: str, brings_key: bool) -> None:
        """Either all parties have a key file or none."""
        for other in self._slots.parties:
            entry = self._entries.get(Slot(KeyOffer, other))
            if entry is not None and entry.brings_key != brings_key:
                having, lacking = (sender, other) if brings_key else (other, sender)
                raise MessageRefused(
                    f"party {having!r} came with a group_key file and party {lacking!r} without; "
                    f"set group_key at every party or at none, then {START_OVER}",
                    Refusal.MISMATCH,
                )

    def _check_removed(self, sender: str, message: RemovedRows) -> None:
        known = zip(self._posted(sender), (message.train, message.test), strict=True)
        if not all(keys.may_go(places) for keys, places in known):
            raise MessageRefused(f"party {sender!r} removes rows that it has not posted", Refusal.INVALID)

    def check_new(self, owner: str, message: Tokens | BlindedIds) -> None:
        """Refuse keys that their owner has posted in an earlier generation, and that had not gone by then."""
        for known, keys in zip(self._posted(owner), (message.train, message.test), strict=True):
            if keys is not None and (known.find(keys) >= 0).any():
                raise MessageRefused(f"party {owner!r} posted keys again that it has posted before", Refusal.INVALID)

    def _check_own_set(self, sender: str, message: Tokens | BlindedIds) -> None:
        rows = _check_keys(sender, message, adds=self._slots.adds)
        if self._slots.adds and isinstance(message, Tokens) and message.by_position is not None:
            raise MessageRefused(f"party {sender!r} adds rows without ids to rows with ids", Refusal.INVALID)
        if self._slots.pointing is not None:
            self._check_led(sender, rows, message)
            return
        for other in self._slots.parties:
            slot = self.first_stored(self._slots.counts_of(other))
            if slot is not None and other != sender:
                _check_alike(sender, Entry.of(message, b"", b""), other, self._entries[slot])
            elif slot is not None:
                raise _other_way(sender)

    def _check_led(self, sender: str, rows: RowCounts, message: Tokens | BlindedIds) -> None:
        """The ids of a party that rows of the label party point to."""
        label_party = self._slots.pointing or ""
        if isinstance(message, Tokens) and message.by_position is not None:
            raise MessageRefused(
                f"party {sender!r} has no ids, and rows of {label_party!r} are to point to its rows; set data.id at "
                f"{sender!r}, then {START_OVER}",
                Refusal.MISMATCH,
            )
        if self.first_stored(self._slots.own_ids[sender].own) is not None:
            raise _other_way(sender)
        keys = self.first_stored(self._slots.led[sender].own)
        if keys is not None:
            _check_tests(sender, rows, label_party, self._entries[keys].rows)

    def _check_leading(self, slot: Slot, message: Tokens | BlindedIds) -> None:
        """What the label party posts where its rows point to the others': their number, and keys to each other."""
        if slot == Slot(Tokens, slot.sender):
            if not isinstance(message, Tokens) or message.by_position is None or not message.by_position.train:
                raise MessageRefused(
                    f"party {slot.sender!r} posted ids, where its rows point to the others' and only their number is "
                    f"wanted; give all sides the same version of fdml and the same run.toml",
                    Refusal.INVALID,
                )
        elif isinstance(message, BlindedIds) and slot.about != slot.sender:
            self._check_passed_set(slot, message)
        else:
            rows, party = _check_keys(slot.sender, message), slot.about if isinstance(message, Tokens) else slot.to
            theirs = self.first_stored(self._slots.own_ids[party].own)
            if theirs is not None:
                _check_tests(slot.sender, rows, party, self._entries[theirs].rows)

    def _check_pointers(self, slot: Slot, message: RowPointers) -> None:
        """No pointer before all have consented, and the same rows for all."""
        if not all(map(self.has_consented, self._slots.parties)):
            raise MessageRefused(f"party {slot.sender!r} posted {slot} before all parties have consented", Refusal.GAP)
        for other in self._slots.pointers:
            entry = self._entries.get(other)
            if entry is not None and (entry.rows, entry.agreed) != (row_counts(message), message.digest):
                raise MessageRefused(f"party {slot.sender!r} posted pointers of different rows", Refusal.INVALID)

    def _check_passed_set(self, slot: Slot, message: BlindedIds) -> None:
        ring = self._slots.set_of(slot).ring
        before = ring[ring.index(slot) - 1]
        if not self._stored.has_piece(before, 0 if message.piece is None else message.piece.number):
            raise MessageRefused(f"party {slot.sender!r} posted {slot} before it can have had it", Refusal.GAP)
        if self._stored.rows(before) != row_counts(message):
            raise MessageRefused(
                f"party {slot.sender!r} passed on {slot} with another number of rows than it had", Refusal.INVALID
            )
        _check_points(slot.sender, message)


def _check_points(sender: str, message: BlindedIds) -> None:
    for keys in (message.train, message.test):
        if keys is not None and repeated(keys[ascending(keys)]):
            raise MessageRefused(f"party {sender!r} posted points that repeat", Refusal.INVALID)


def _check_keys(sender: str, message: Tokens | BlindedIds, *, adds: bool = False) -> RowCounts:
    """Refuse a set that is empty, unless it adds to another, or has keys twice; else how many rows it has.

    Tokens are in ascending order. Points are not: their owner's order follows from a secret.
    """
    rows = row_counts(message)
    if rows is None or (not adds and (rows.train == 0 or rows.test == 0)):
        raise MessageRefused(f"party {sender!r} has a file without rows; check its data files", Refusal.INVALID)
    if isinstance(message, BlindedIds):
        _check_points(sender, message)
        return rows
    for keys in (message.train, message.test):
        if keys is not None and not is_ascending(keys):
            raise MessageRefused(
                f"party {sender!r} posted keys that repeat or are not in ascending order", Refusal.INVALID
            )
    return rows


def _other_way(sender: str) -> MessageRefused:
    return MessageRefused(
        f"party {sender!r} posted its rows with ids before and now without, or the other way round; {START_OVER}",
        Refusal.CONFLICT,
    )


def _check_tests(sender: str, ours: RowCounts, other: str, theirs: RowCounts | None) -> None:
    """Refuse a set with test rows where the one it is matched with has none."""
    if theirs is None or (ours.test is None) == (theirs.test is None):
        return
    lacking, having = (sender, other) if ours.test is None else (other, sender)
    raise MessageRefused(
        f"party {lacking!r} has no test rows but {having!r} has; set data.test_path at all or at none, "
        f"then {START_OVER}",
        Refusal.MISMATCH,
    )


def _check_alike(sender: str, ours: Entry, other: str, theirs: Entry) -> None:
    """Refuse a party's own rows unless they can be matched with another party's."""
    if ours.rows is None or theirs.rows is None:
        return
    if ours.by_position != theirs.by_position:
        lacking, having = (sender, other) if ours.by_position else (other, sender)
        raise MessageRefused(
            f"party {lacking!r} has no ids but {having!r} has; set data.id at every party or at none, "
            f"then {START_OVER}",
            Refusal.MISMATCH,
        )
    _check_tests(sender, ours.rows, other, theirs.rows)
    if ours.by_position and ours.rows != theirs.rows:
        raise MessageRefused(
            f"without ids all parties need equally many rows, but {sender!r} has {_counted(ours.rows)} and {other!r} "
            f"{_counted(theirs.rows)}; set data.id at every party, then {START_OVER}",
            Refusal.MISMATCH,
        )


def _counted(rows: RowCounts) -> str:
    return f"{rows.train}" if rows.test is None else f"{rows.train} and {rows.test} to test on"
