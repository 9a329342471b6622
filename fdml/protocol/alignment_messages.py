"""What the parties post at the server, before training, to find their shared rows without showing ids.

No message names its sender: the server knows it from the certificate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint8]
"""One key a row: tokens are `(rows, 16)`, points of the curve `(rows, 32)`."""

HASH_BYTES = 32
TOKEN_BYTES = 16
POINT_BYTES = 32
GENERATION_BYTES = 16
"""Of the id of a generation, and of what stands for a party's rows."""
START_BYTES = 16
"""Of what a party draws when it begins a run."""
LONGEST_REASON = 200
"""Characters of what a party says to the others' operators."""
PIECE_ROWS = 2**18
"""Rows of a piece of a larger set: 4 MiB of tokens, 2 MiB of places."""
POINT_ROWS = 2**13
"""The same of blinded points, each of which takes long to make: what a crash costs is a piece, half a second."""
SERVER = ""
"""The server's name as sender. As addressee: the message type decides who may read it."""


@dataclass(frozen=True)
class RowsOffer:
    """What a party brings to a run: which rows it has, and what it keeps of earlier alignments; for the server.

    It decides with all parties' offers whether a kept alignment is used as it is, added to, or made anew.
    """

    tag: bytes
    """Stands for the party's ids, under a secret of its own: equal for the same ids, and nothing else is seen of it."""
    chain: tuple[bytes, ...] = ()
    """The generations that it keeps, the newest first, each added to the next."""
    number: int = 0
    """Of the newest that it keeps; 0 if it keeps none."""
    whole: bool = False
    """Whether its rows are aligned anew whenever they change: by position, or by pointers."""
    start: bytes = bytes(START_BYTES)
    """Drawn when the party began the run. The run's keys depend on it, as a kept alignment's outlive the run."""


@dataclass(frozen=True)
class RowsPlan:
    """Which generation of the alignment a run uses; for all parties.

    It is one that all keep, or a new one, which adds to what all keep as `base`; without a base all is aligned anew.
    """

    generation: bytes
    base: bytes
    number: int
    """Counts the generations of an alignment, from 1 on."""
    starts: tuple[bytes, ...] = ()
    """Those of all parties' offers, in the run's order."""


@dataclass(frozen=True, eq=False)
class RemovedRows:
    """Which of the keys that a party has posted in earlier generations stand for ids that it no longer has.

    Places in all that it has posted, ascending; for the server. `test` is empty without test files.
    """

    train: NDArray[np.int64]
    test: NDArray[np.int64]


@dataclass(frozen=True)
class KeyOffer:
    """A party's public key, for what it shares with each other party alone, signed with its certificate's key.

    For all parties. On plain lines certificate and signature are empty.
    """

    public: bytes
    certificate: bytes = b""
    signature: bytes = b""
    brings_key: bool = False
    """Whether it has the group key from a file, so that none is agreed on."""


@dataclass(frozen=True)
class KeyGrant:
    """The group key, sealed by the run's first party for one other."""

    sealed: bytes


@dataclass(frozen=True)
class KeyCheck:
    """Shows that a party has the same group key as the others, without showing the key; for all parties."""

    digest: bytes


@dataclass(frozen=True)
class RowCounts:
    """How many rows a party has, or all share; `test` is None without test files."""

    train: int
    test: int | None = None


@dataclass(frozen=True)
class Piece:
    """Which rows of a set a message holds: `size` of them from `number * size` on, fewer in the last piece.

    The set's rows are counted on from its training rows to its test rows.
    """

    number: int
    size: int
    rows: RowCounts
    """Of the whole set."""

    @property
    def count(self) -> int:
        """How many pieces the set has."""
        return piece_count(self.rows, self.size)

    @property
    def train(self) -> slice:
        """The training rows of this piece."""
        return slice(min(self._begin, self.rows.train), min(self._begin + self.size, self.rows.train))

    @property
    def test(self) -> slice:
        """The test rows of this piece."""
        tests, begin = self.rows.test or 0, self._begin - self.rows.train
        return slice(min(max(begin, 0), tests), min(max(begin + self.size, 0), tests))

    @property
    def _begin(self) -> int:
        return self.number * self.size

    def at(self, number: int) -> Piece:
        """Another piece of the same set."""
        return Piece(number, self.size, self.rows)


def piece_count(rows: RowCounts, size: int) -> int:
    """How many pieces a set of rows has, at least one."""
    return max(1, -(-(rows.train + (rows.test or 0)) // size))


@dataclass(frozen=True)
class StoredPieces:
    """How many pieces of a set, from its first on, the server has stored: they need not be sent again."""

    count: int


@dataclass(frozen=True, eq=False)
class Tokens:
    """Keyed hashes of a party's ids in ascending order, for the server; `test` is None without a test file.

    A party without ids gives its `by_position` instead, and no tokens at all. Where the label party's rows point to
    the others', it posts its keys to each other party, with that one as `about`, and of its rows the number alone.
    """

    train: Keys = field(default_factory=lambda: np.zeros((0, TOKEN_BYTES), np.uint8))
    test: Keys | None = None
    by_position: RowCounts | None = None
    piece: Piece | None = None
    """None where the message holds the whole set."""


@dataclass(frozen=True, eq=False)
class BlindedIds:
    """A party's ids as points of the curve that some parties have blinded; `about` says whose.

    From party to party, and from the last one to the server, always in the owner's order.
    """

    train: Keys
    test: Keys | None = None
    piece: Piece | None = None
    """None where the message holds the whole set."""


@dataclass(frozen=True)
class RowSummary:
    """How many rows each party brought, in the run's order, and how many all share: what the parties consent to.

    For all parties. `test_rows` is empty without test files. Where the label party's rows point to the others', each
    shares with the label party: `matched` says how many of its rows, and `shared` is the least of them.
    """

    rows: tuple[int, ...]
    test_rows: tuple[int, ...]
    shared: int
    shared_test: int = 0
    matched: tuple[int, ...] = ()
    """In the run's order, all rows for the label party; empty where all parties hold the same ids."""
    number: int = 1
    """Of the generation that these are the counts of."""
    new_rows: tuple[int, ...] = ()
    """Where it adds to another: how many of each party's rows are new, training and test rows together; else empty."""
    new_shared: int = 0
    """How many of the shared rows are new."""
    left: int = 0
    """How many rows that were shared before no longer are."""
    brought: tuple[int, ...] = ()
    """How many rows each party has ever brought to this alignment, those that have gone included."""


@dataclass(frozen=True)
class Consent:
    """Whether a party lets the shared rows be told, and if not why; for all parties."""

    given: bool
    reason: str = ""
    line: int = 0
    """The class of this party's line to the server, for the rules of `fdml.protocol.agreed_training`."""


@dataclass(frozen=True, eq=False)
class SharedRowIndex:
    """What the server found, for one party: the places of the shared rows in all that this party has posted.

    Of a generation that adds to another, these are the rows that have come; `left` are those that no longer are
    shared, by their numbers among all that were ever found. Both lists are in the order of the shared keys, which is
    the same for all parties, and so is `digest`, a hash over these keys and those before. `held_out` is empty without
    test files. `counts` are all parties' training rows in the run's order.
    """

    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    digest: bytes
    counts: tuple[int, ...]
    left: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    left_test: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    piece: Piece | None = None
    """None where the message holds all rows; those that left are in the first piece alone."""


@dataclass(frozen=True)
class RowPointers:
    """From the label party to one other: which of that party's matched rows each shared row points to.

    The pointers are sealed for that party, those of a piece for themselves. The server learns how many rows and test
    rows there are, and a keyed hash of all parties' pointers, by which all sides see that they mean the same rows.
    """

    train: int
    held_out: int
    digest: bytes
    sealed: bytes
    piece: Piece | None = None
    """None where the message holds all pointers."""


AlignmentMessage = (
    RowsOffer
    | RowsPlan
    | KeyOffer
    | KeyGrant
    | KeyCheck
    | Tokens
    | BlindedIds
    | RemovedRows
    | RowSummary
    | Consent
    | SharedRowIndex
    | RowPointers
    | StoredPieces
)
N = TypeVar("N", bound=AlignmentMessage)

KINDS: dict[str, type[AlignmentMessage]] = {
    "rows_offer": RowsOffer,
    "rows_plan": RowsPlan,
    "key_offer": KeyOffer,
    "key_grant": KeyGrant,
    "key_check": KeyCheck,
    "tokens": Tokens,
    "blinded_ids": BlindedIds,
    "removed_rows": RemovedRows,
    "row_summary": RowSummary,
    "consent": Consent,
    "shared_rows": SharedRowIndex,
    "row_pointers": RowPointers,
    "stored_pieces": StoredPieces,
}
"""The kinds by the names under which they travel."""


@dataclass(frozen=True)
class Post:
    """Put a message up for others to fetch; durable once the server has answered."""

    message: AlignmentMessage
    to: str = SERVER
    about: str = ""
    """Whose ids a passed-on set holds, or to whose rows keys of the label party lead; empty elsewhere."""


@dataclass(frozen=True)
class Fetch:
    """Ask for the message of this kind that `sender` posted for us; the answer comes when it is there."""

    kind: type[Any]
    """One of the classes of `AlignmentMessage`."""
    sender: str
    """Of `StoredPieces`: to whom the set was posted."""
    about: str = ""
    piece: int = 0
    """Which piece of it, where it has several."""


AlignmentRequest = Post | Fetch
