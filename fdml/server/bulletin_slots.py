"""The messages of one generation of an alignment: who may post and read each, and the way of blinded ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import (
    KINDS,
    SERVER,
    AlignmentMessage,
    BlindedIds,
    Consent,
    KeyCheck,
    KeyGrant,
    KeyOffer,
    RemovedRows,
    RowPointers,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import kind_of
from fdml.protocol.quoting import quoted

_PREFIX = "bulletin"
_FOR_ALL = (KeyOffer, KeyCheck, RowSummary, Consent)
"""Kinds that every party may read."""
_FOR_NOBODY = (Tokens, RemovedRows)
"""Kinds that are for the server alone."""


class Slot(NamedTuple):
    """The place of one message. `to` is empty where the kind decides who may read it."""

    kind: type[AlignmentMessage]
    sender: str
    to: str = SERVER
    about: str = ""

    def __str__(self) -> str:
        """As errors name it."""
        return f"the message {kind_of(self.kind)!r}" + (f" about {quoted(self.about)}" if self.about else "")


class IdSet(NamedTuple):
    """The slots that one set of ids may pass: as tokens, or blinded by one party after the other."""

    tokens: Slot
    ring: tuple[Slot, ...]
    """The owner's own first, the server's last."""

    @property
    def own(self) -> tuple[Slot, Slot]:
        """Where its owner may put it."""
        return self.tokens, self.ring[0]

    @property
    def final(self) -> tuple[Slot, Slot]:
        """Where it may be for the server to match."""
        return self.tokens, self.ring[-1]


class BulletinSlots:
    """All slots of one generation.

    The parties form a ring in the run's order: an owner's blinded ids pass every
    party once, and the last one gives them to the server. Where rows of the label
    party point to the others', it has a set of keys for each other party, and a
    set passes its owner and the one it is matched with.
    """

    def __init__(self, parties: Sequence[str], pointing: str | None = None, *, adds: bool = False) -> None:
        """`pointing` is the label party where its rows point to the others'; None where all hold the same ids.

        A generation that `adds` to another has slots for rows that have gone, too.
        """
        self.parties = tuple(parties)
        self.pointing = pointing
        self.adds = adds
        self.others = tuple(party for party in self.parties if party != pointing)
        """Those that hold a set of ids of their own."""
        self.own_ids = {party: self._own_ids(party) for party in self.others}
        """The set of each party's own ids."""
        self.led = {} if pointing is None else {party: self._led(pointing, party) for party in self.others}
        """By other party, the label party's keys that lead to it."""
        self.sets = (*self.own_ids.values(), *self.led.values())
        self.answers = [Slot(SharedRowIndex, SERVER, party) for party in self.others]
        """What the server has found, for each party with ids of its own."""
        self.led_answers = [Slot(SharedRowIndex, SERVER, pointing or "", party) for party in self.led]
        """The same for the label party, about each other."""
        self.pointers = [Slot(RowPointers, pointing or "", party) for party in self.led]
        self.summary = Slot(RowSummary, SERVER)
        """How many rows that is, for all parties."""
        self.consents = [Slot(Consent, party) for party in self.parties]
        self.removed = [Slot(RemovedRows, party) for party in self.parties if adds]
        self.all = [
            *(Slot(kind, party) for kind in (KeyOffer, KeyCheck, Tokens) for party in self.parties),
            self.summary,
            *self.consents,
            *(Slot(KeyGrant, self.parties[0], party) for party in self.parties[1:]),
            *self.answers,
            *self.led_answers,
            *self.pointers,
            *self.removed,
            *(each.tokens for each in self.led.values()),
            *(slot for each in self.sets for slot in each.ring),
        ]
        self._known = frozenset(self.all)

    def counts_of(self, party: str) -> tuple[Slot, ...]:
        """Where it may be said how many rows a party has."""
        return (Slot(Tokens, party),) if party == self.pointing else self.own_ids[party].own

    def set_of(self, slot: Slot) -> IdSet:
        """The set that a slot of blinded ids belongs to."""
        return next(each for each in self.sets if slot in each.ring)

    def _own_ids(self, owner: str) -> IdSet:
        start = self.parties.index(owner)
        order = [*self.parties[start:], *self.parties[:start]] if self.pointing is None else [owner, self.pointing]
        return IdSet(Slot(Tokens, owner), _ring(order))

    def _led(self, owner: str, party: str) -> IdSet:
        return IdSet(Slot(Tokens, owner, about=party), _ring([owner, party]))

    def file_name(self, slot: Slot) -> str:
        """By numbers, as a party's name may be no file name."""
        numbers = [str(self.parties.index(name)) for name in slot[1:] if name]
        return "-".join([_PREFIX, kind_of(slot.kind), *numbers])

    def check_party(self, name: str) -> None:
        """Refuse whoever is no party of the run."""
        if name not in self.parties:
            raise MessageRefused(f"{name!r} is not a party of this run", Refusal.NOT_PERMITTED)

    def check_writer(self, slot: Slot) -> None:
        """Refuse a message that its sender may not post, or not there."""
        for name in (slot.to, slot.about):
            if name and name not in self.parties:
                raise MessageRefused(
                    f"party {slot.sender!r} named {quoted(name)}, no party of this run", Refusal.INVALID
                )
        if slot.kind in (SharedRowIndex, RowSummary) or (slot.kind is KeyGrant and slot.sender != self.parties[0]):
            raise MessageRefused(f"party {slot.sender!r} may not post {slot}", Refusal.NOT_PERMITTED)
        if slot not in self._known:
            raise MessageRefused(
                f"party {slot.sender!r} posted {slot} to {slot.to or 'nobody'!r}, whom it is not for", Refusal.INVALID
            )

    def posted(self, sender: str, to: str, about: str, keys: type[AlignmentMessage]) -> Slot:
        """Where a party asks how many pieces of its own are stored: of keys, or of pointers to another party's rows."""
        pointers = Slot(RowPointers, sender, to, about)
        return pointers if pointers in self._known else Slot(keys, sender, to, about)

    def for_reader(self, reader: str, kind: str, sender: str, about: str) -> Slot:
        """The slot that a reader asks for; refused if another is to read it."""
        self.check_party(reader)
        if kind not in KINDS:
            raise MessageRefused(f"{quoted(kind)} is no kind of message; there are {', '.join(KINDS)}", Refusal.INVALID)
        wanted = KINDS[kind]
        to = SERVER if wanted in (*_FOR_ALL, *_FOR_NOBODY) else reader
        slot = Slot(wanted, sender, to, about)
        if slot not in self._known or wanted in _FOR_NOBODY:
            raise MessageRefused(
                f"party {reader!r} asked for {slot} of {quoted(sender)}, which is not for it", Refusal.NOT_PERMITTED
            )
        return slot


def _ring(order: Sequence[str]) -> tuple[Slot, ...]:
    """The slots of the first one's blinded ids, which pass the others in this order and then reach the server."""
    readers = [*order[1:], SERVER]
    return tuple(Slot(BlindedIds, sender, to, order[0]) for sender, to in zip(order, readers, strict=True))
