"""The generations of one alignment at the server, which all runs with this alignment share."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence

from fdml.errors import StateCorrupt
from fdml.protocol.alignment_identity import alignment_hash
from fdml.protocol.alignment_messages import PIECE_ROWS, RowsOffer, RowsPlan
from fdml.protocol.alignment_wire import MOST_GENERATIONS
from fdml.protocol.key_sets import generation_id
from fdml.protocol.limits import CEILING
from fdml.server.bulletin import BulletinStore
from fdml.server.message_files import MessageFiles
from fdml.settings import RunSettings
from fdml.settings.choices import Align
from fdml.storage.disk import Disk, DiskPart


class Generations:
    """Bulletins by the id of their generation. Runs in several threads may use it; each holds `lock` meanwhile.

    Nothing is ever removed: the next generation adds to what was there, and a run that began with one may start again.
    """

    def __init__(
        self,
        parties: Sequence[str],
        mode: Align,
        disk: Disk,
        largest: int = CEILING,
        *,
        pointing: str | None = None,
        binding: str = "",
        piece_rows: int = PIECE_ROWS,
    ) -> None:
        self.lock = threading.RLock()
        self._parties = tuple(parties)
        self._mode = mode
        self._disk = disk
        self._largest = largest
        self._pointing = pointing
        self._piece_rows = piece_rows
        self._files = MessageFiles(disk, binding)
        self._bulletins: dict[bytes, BulletinStore] = {}

    @classmethod
    def of(cls, settings: RunSettings, disk: Disk, piece_rows: int = PIECE_ROWS) -> Generations:
        """Of the alignment that a run uses."""
        pointing, binding = settings.pointing_party, alignment_hash(settings).hex()
        return cls(settings.parties, settings.align, disk, pointing=pointing, binding=binding, piece_rows=piece_rows)

    def plan(self, offers: Mapping[str, RowsOffer]) -> RowsPlan:
        """Which generation parties with these offers use: one they all keep, one more on top of it, or a first one."""
        starts = tuple(offers[party].start for party in self._parties)
        tags = [offers[party].tag for party in self._parties]
        common = self._common(offers)
        for generation in common:
            base, number = self._facts(generation) or (b"", 0)
            if generation_id(base, tags) == generation:
                return RowsPlan(generation, base, number, starts)
        can_add = common and not any(offer.whole for offer in offers.values())
        base = common[0] if can_add and len(common) < MOST_GENERATIONS else b""
        generation = generation_id(base, tags)
        known = self._facts(generation)
        number = 1 + max(offer.number for offer in offers.values()) if known is None else known[1]
        return RowsPlan(generation, base, number, starts)

    def bulletin(self, plan: RowsPlan) -> BulletinStore:
        """The messages of a generation; one that is not there yet is made."""
        if plan.generation not in self._bulletins and self._facts(plan.generation) is None:
            facts = {"base": plan.base.hex(), "number": plan.number}
            self._files.write(_facts_name(plan.generation), json.dumps(facts).encode())
        return self._open(plan.generation)

    def _common(self, offers: Mapping[str, RowsOffer]) -> list[bytes]:
        """Generations that all parties keep and the server has, the newest first."""
        first, *others = (offers[party].chain for party in self._parties)
        kept = [set(chain) for chain in others]
        return [
            each
            for each in first
            if all(each in chain for chain in kept) and self._facts(each) is not None and self._open(each).is_complete
        ]

    def _open(self, generation: bytes) -> BulletinStore:
        """The messages of a generation, with all that it adds to."""
        way = [generation]
        while way[-1] not in self._bulletins:
            facts = self._facts(way[-1])
            if facts is None:
                raise StateCorrupt(
                    f"generation {way[-1].hex()} of the alignment is missing; restore it, or remove the kept alignment "
                    f"with `fdml forget FEDERATION.toml --alignments`"
                )
            if not facts[0]:
                break
            way.append(facts[0])
        for each in reversed(way):
            if each not in self._bulletins:
                base, number = self._facts(each) or (b"", 1)
                self._bulletins[each] = BulletinStore.open(
                    self._parties,
                    self._mode,
                    DiskPart(self._disk, f"{each.hex()}-"),
                    self._largest,
                    pointing=self._pointing,
                    base=self._bulletins[base] if base else None,
                    number=number,
                    piece_rows=self._piece_rows,
                )
        return self._bulletins[generation]

    def _facts(self, generation: bytes) -> tuple[bytes, int] | None:
        """Base and number of a generation; None if it was never begun here."""
        raw = self._files.read(_facts_name(generation))
        if raw is None:
            return None
        facts = json.loads(raw)
        return bytes.fromhex(facts["base"]), int(facts["number"])


def _facts_name(generation: bytes) -> str:
    return f"{generation.hex()}-generation"
