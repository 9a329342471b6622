"""What the server has found, stored for each party in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fdml.errors import StateCorrupt
from fdml.protocol.alignment_messages import RowCounts, SharedRowIndex
from fdml.server.bulletin_slots import Slot
from fdml.server.intersect import IdSetParts, SharedOnDisk, in_position
from fdml.server.message_files import START_OVER
from fdml.server.stored_messages import StoredMessages
from fdml.storage.disk import Disk


@dataclass(frozen=True)
class SharedAnswers:
    """Matches sets, and stores which of their rows are shared; every method gives how many that are, by answer."""

    stored: StoredMessages
    disk: Disk
    """For scratch files."""
    piece_rows: int

    def match(
        self, sets: Sequence[Slot | None], answers: Sequence[Slot], counts: Sequence[int]
    ) -> dict[Slot, RowCounts]:
        """Match whole sets; `counts` are all parties' training rows."""
        shared = SharedOnDisk([self._parts(each) for each in sets], self.disk)
        facts = SharedRowIndex(np.zeros(0, np.int64), np.zeros(0, np.int64), shared.digest, tuple(counts))
        for number, answer in enumerate(answers):
            for piece, train, held_out in shared.pieces(number, self.piece_rows):
                self.stored.put_part(answer, facts, piece, train, held_out)
        shared.close()
        return dict.fromkeys(answers, RowCounts(shared.rows.train, shared.rows.test or 0))

    def in_position(self, rows: RowCounts, answers: Sequence[Slot]) -> dict[Slot, RowCounts]:
        """All rows of parties that are matched by position."""
        found = in_position(rows, len(answers))
        for answer in answers:
            self.stored.put_index(answer, found, self.piece_rows)
        return dict.fromkeys(answers, RowCounts(len(found.train), len(found.held_out)))

    def _parts(self, slot: Slot | None) -> IdSetParts:
        entry = None if slot is None else self.stored.entries.get(slot)
        if slot is None or entry is None or entry.rows is None:
            raise StateCorrupt(f"a set of ids is not where it was; {START_OVER}")
        return IdSetParts(slot.about or slot.sender, entry.rows, lambda: self.stored.id_parts(slot))
