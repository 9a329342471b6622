"""The keys of a set of ids as they are posted, and the order in which they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from fdml.align.ecdh import blind, points_of
from fdml.align.group_key import GroupKey
from fdml.align.key_lists import RowIndex
from fdml.align.party_secrets import Secrets
from fdml.align.pieces import Make
from fdml.align.sorted_keys import Hash, sorted_keys
from fdml.align.tokens import id_tokens
from fdml.data.id_hashes import HashIds, hash_ids
from fdml.protocol.alignment_messages import TOKEN_BYTES, Keys, Piece
from fdml.settings.choices import Align
from fdml.storage.disk import Disk


@dataclass(frozen=True, eq=False)
class MadeKeys:
    """Tokens are made at once. Points take long: they are made as they are posted, piece by piece."""

    order: RowIndex
    """The id that each key is of."""
    part: Callable[[slice], Keys]
    tokens: Keys | None = None
    """None where ids travel as points."""


@dataclass(frozen=True)
class KeyMaker:
    """How one party makes keys."""

    mode: Align
    party: str
    key: GroupKey
    secrets: Secrets
    disk: Disk | None = None
    """For the keys of more ids than memory holds."""
    hashed: HashIds = hash_ids
    """Hashes them."""

    def none(self) -> MadeKeys:
        """Of no ids."""
        nothing = np.zeros((0, TOKEN_BYTES), np.uint8)
        return MadeKeys(np.zeros(0, np.int64), lambda _: nothing, nothing if self.mode == "tokens" else None)

    def make(self, texts: pa.LargeStringArray, context: str, purpose: str) -> MadeKeys:
        """The keys of these ids, each a different one: tokens under a context, or points under a purpose."""
        if self.mode == "tokens":
            keys, order = self._sorted(texts, lambda some: id_tokens(some, self.key, context, self.hashed))
            return MadeKeys(order, keys.__getitem__, keys)
        # In an order that discloses nothing, neither of the file nor of the ids, and takes no points to find again.
        _, order = self._sorted(texts, lambda some: self.hashed(some, self.secrets.order_key, TOKEN_BYTES))

        def points(part: slice) -> Keys:
            return blind(points_of(texts.take(order[part]), self.key, purpose), self.secrets.scalar, self.party)

        return MadeKeys(order, points)

    def _sorted(self, texts: pa.LargeStringArray, hashed: Hash) -> tuple[Keys, RowIndex]:
        return sorted_keys(texts, hashed, self.party, self.disk)


def keys_of_piece(train: MadeKeys, test: MadeKeys | None) -> Make:
    """Makes the keys of a piece."""

    def make(piece: Piece) -> tuple[Keys, Keys | None]:
        return train.part(piece.train), None if test is None else test.part(piece.test)

    return make
