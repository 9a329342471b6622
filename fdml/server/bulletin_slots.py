"""Which alignment messages a run has, who may post and read each, and the way of blinded ids round the parties."""

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
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.alignment_wire import kind_of
from fdml.protocol.quoting import quoted

_PREFIX = "bulletin"
_FOR_ALL = (KeyOffer, KeyCheck, RowSummary, Consent)
"""Kinds that every party may read."""


class Slot(NamedTuple):
    """The place of one message. `to` is empty where the kind decides who may read it."""

    kind: type[AlignmentMessage]
    sender: str
    to: str = SERVER
    about: str = ""

    def __str__(self) -> str:
        """As errors name it."""
        return f"the message {kind_of(self.kind)!r}" + (f" about {quoted(self.about)}" if self.about else "")


class BulletinSlots:
    """All slots of a run.

    The parties form a ring in the run's order: an owner's blinded ids pass every
    party once, and the last one gives them to the server.
    """

    def __init__(self, parties: Sequence[str]) -> None:
        self.parties = tuple(parties)
        self.answers = [Slot(SharedRowIndex, SERVER, party) for party in self.parties]
        """What the server has found, for each party."""
        self.summary = Slot(RowSummary, SERVER)
        """How many rows that is, for all parties."""
        self.consents = [Slot(Consent, party) for party in self.parties]
        self.all = [
            *(Slot(kind, party) for kind in (KeyOffer, KeyCheck, Tokens) for party in self.parties),
            self.summary,
            *self.consents,
            *(Slot(KeyGrant, self.parties[0], party) for party in self.parties[1:]),
            *self.answers,
            *(slot for owner in self.parties for slot in self.ring(owner)),
        ]
        self._known = frozenset(self.all)

    def ring(self, owner: str) -> list[Slot]:
        """The slots that an owner's blinded ids pass: the owner's own first, the server's last."""
        start = self.parties.index(owner)
        order = [*self.parties[start:], *self.parties[:start]]
        readers = [*order[1:], SERVER]
        return [Slot(BlindedIds, sender, to, owner) for sender, to in zip(order, readers, strict=True)]

    def own_sets(self, party: str) -> tuple[Slot, Slot]:
        """Where a party's own ids may be: as tokens, or blinded by itself alone."""
        return Slot(Tokens, party), self.ring(party)[0]

    def final_sets(self, owner: str) -> tuple[Slot, Slot]:
        """Where the ids of an owner may be for the server to match: as tokens, or blinded by all."""
        return Slot(Tokens, owner), self.ring(owner)[-1]

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

    def for_reader(self, reader: str, kind: str, sender: str, about: str) -> Slot:
        """The slot that a reader asks for; refused if another is to read it."""
        self.check_party(reader)
        if kind not in KINDS:
            raise MessageRefused(f"{quoted(kind)} is no kind of message; there are {', '.join(KINDS)}", Refusal.INVALID)
        wanted = KINDS[kind]
        to = SERVER if wanted in (*_FOR_ALL, Tokens) else reader
        slot = Slot(wanted, sender, to, about)
        if slot not in self._known or wanted is Tokens:
            raise MessageRefused(
                f"party {reader!r} asked for {slot} of {quoted(sender)}, which is not for it", Refusal.NOT_PERMITTED
            )
        return slot
