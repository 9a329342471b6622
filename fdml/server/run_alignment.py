"""The alignment of one run at the server: what its parties offer, and the generation that they use by that."""

from __future__ import annotations

from typing import Protocol

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.alignment_messages import KINDS, SERVER, RowCounts, RowsOffer, RowsPlan
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment
from fdml.server.bulletin import BulletinStore
from fdml.server.generations import Generations
from fdml.server.message_files import START_OVER, MessageFiles
from fdml.settings import RunSettings, run_hash
from fdml.storage.disk import Disk

_PLAN = "rows-plan"
_LARGEST_OFFER = 32 * 1024
"""Bytes; one of as many generations as there can be is shorter."""


class BulletinBoard(Protocol):
    """Where parties leave the messages of an alignment."""

    def post(self, sender: str, to: str, about: str, raw: bytes) -> None:
        """Store a message, durable on return, or raise `MessageRefused`."""
        ...

    def fetch(self, reader: str, kind: str, sender: str, about: str = "", piece: int = 0) -> bytes | None:
        """A message for this reader; None if it has not come yet."""
        ...

    def waits_for(self, reader: str, kind: str, sender: str, about: str = "") -> list[str]:
        """Whose work is missing for what the reader waits for."""
        ...

    def split(self, holdout: float, seed: int) -> RowCounts | None:
        """How many rows the run trains on and holds out; None until that is known."""
        ...

    def largest_post(self, sender: str) -> int:
        """Bytes of the largest message that a party may post."""
        ...

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows; None until they are found."""
        ...


class RunAlignment:
    """A run's offers and plan on the run's own disk; all else is in the generation, for other runs, too.

    An offer is written once, so the plan that follows from all of them is the same after any crash.
    """

    def __init__(self, settings: RunSettings, disk: Disk, generations: Generations) -> None:
        self._parties = settings.parties
        self._generations = generations
        self._files = MessageFiles(disk, run_hash(settings).hex())
        self._offers: dict[str, RowsOffer] = {}
        for party in self._parties:
            raw = self._files.read(self._name(party))
            message = None if raw is None else decode_alignment(raw)
            if isinstance(message, RowsOffer):
                self._offers[party] = message
        self._plan: RowsPlan | None = None
        self._bulletin: BulletinStore | None = None
        self._make_plan()

    @property
    def bulletin(self) -> BulletinStore | None:
        """The generation that the run uses; None until all parties have offered."""
        return self._bulletin

    def post(self, sender: str, to: str, about: str, raw: bytes) -> None:
        """Store a message, durable on return; a refused message changes nothing and raises `MessageRefused`."""
        with self._generations.lock:
            message = decode_alignment(raw) if len(raw) <= _LARGEST_OFFER else None
            if isinstance(message, RowsOffer):
                self._take(sender, message, raw)
            else:
                self._reached(sender).post(sender, to, about, raw)

    def fetch(self, reader: str, kind: str, sender: str, about: str = "", piece: int = 0) -> bytes | None:
        """A message for this reader as it was posted; None if it has not come yet."""
        with self._generations.lock:
            if KINDS.get(kind) is RowsPlan and sender == SERVER:
                return None if self._plan is None else encode_alignment(self._plan)
            return None if self._bulletin is None else self._bulletin.fetch(reader, kind, sender, about, piece)

    def waits_for(self, reader: str, kind: str, sender: str, about: str = "") -> list[str]:
        """Whose work is missing for what the reader waits for, in the order of the run; empty once it is there."""
        with self._generations.lock:
            if self._bulletin is None:
                return [party for party in self._parties if party not in self._offers]
            return self._bulletin.waits_for(reader, kind, sender, about)

    def split(self, holdout: float, seed: int) -> RowCounts | None:
        """How many rows the run trains on and holds out; None until the shared rows are found."""
        with self._generations.lock:
            return None if self._bulletin is None else self._bulletin.split(holdout, seed)

    def largest_post(self, sender: str) -> int:
        """Bytes of the largest message that a party may post now."""
        return _LARGEST_OFFER if self._bulletin is None else max(_LARGEST_OFFER, self._bulletin.largest_post(sender))

    @property
    def digest(self) -> bytes | None:
        """The hash of the shared rows, which every party that joins must have; None until all sets have come."""
        with self._generations.lock:
            return None if self._bulletin is None else self._bulletin.digest

    @property
    def rows(self) -> dict[str, int]:
        """How many training rows each party has, as far as that is known."""
        return {} if self._bulletin is None else self._bulletin.rows

    @property
    def shared(self) -> RowCounts | None:
        """How many training and test rows all parties share; None until that is known."""
        return None if self._bulletin is None else self._bulletin.shared

    def _take(self, sender: str, offer: RowsOffer, raw: bytes) -> None:
        if sender not in self._parties:
            raise MessageRefused(f"{sender!r} is not a party of this run", Refusal.NOT_PERMITTED)
        known = self._offers.get(sender)
        if known is None:
            self._files.write(self._name(sender), raw)
            self._offers[sender] = offer
            self._make_plan()
        elif known != offer:
            raise MessageRefused(
                f"party {sender!r} offered other rows to this run before: its ids have changed since, or its state was "
                f"lost; put them back, or {START_OVER}",
                Refusal.CONFLICT,
            )

    def _make_plan(self) -> None:
        """Once all have offered, and never again: what parties keep may be more by the next start."""
        if len(self._offers) < len(self._parties):
            return
        with self._generations.lock:
            raw = self._files.read(_PLAN)
            plan = None if raw is None else decode_alignment(raw)
            if not isinstance(plan, RowsPlan):
                plan = self._generations.plan(self._offers)
                self._files.write(_PLAN, encode_alignment(plan))
            self._bulletin = self._generations.bulletin(plan)
            self._plan = plan

    def _reached(self, party: str) -> BulletinStore:
        if self._bulletin is None:
            raise MessageRefused(f"party {party!r} is ahead: not all parties have offered their rows", Refusal.GAP)
        return self._bulletin

    def _name(self, party: str) -> str:
        return _name_of(self._parties.index(party))


def _name_of(number: int) -> str:
    return f"rows-offer-{number}"
