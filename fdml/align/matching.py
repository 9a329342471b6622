"""How a party finds its shared rows with the others: it posts its keys, and learns which of them all hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from fdml.align.consent import Decide, LineClass, exchange_consent, fast_line
from fdml.align.conversation import Conversation, fetch, post
from fdml.align.ecdh import pass_round
from fdml.align.group_key import GroupKey
from fdml.align.kept import NO_KEYS, SETS, Change, KeptAlignment, LocalKeys, MatchedRows, context_of
from fdml.align.key_lists import KeyList, RowIndex
from fdml.align.made_keys import KeyMaker, MadeKeys, keys_of_piece
from fdml.align.party_ids import PartyIds
from fdml.align.party_secrets import Secrets
from fdml.align.pieces import fetch_index, post_set
from fdml.data.id_hashes import HashIds, hash_ids
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import (
    PIECE_ROWS,
    POINT_ROWS,
    SERVER,
    Keys,
    Piece,
    RemovedRows,
    RowCounts,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.protocol.key_sets import chained_digest, digest_of_parts, position_digest, shared_digest
from fdml.settings import RunSettings
from fdml.storage.disk import Disk
from fdml.storage.scratch_arrays import gathered

_FEW = 0.01
"""A share of a party's rows under which the shared rows are probably not all that there are."""
CAUSES = (
    "likely causes: ids of another type or written in another way (see [data.ids]: trim, case, unicode, numbers), "
    "or data.id names other columns than at the other parties"
)
"""Why parties may share no rows."""


@dataclass(frozen=True, eq=False)
class Posted:
    """The rows that the posted keys stand for: key number k is the key of row `train[k]`."""

    train: NDArray[np.int64]
    test: NDArray[np.int64] | None
    digest_of: tuple[Keys, Keys | None] | RowCounts | None
    """From what the digest can be found here; None where only the server knows the shared keys."""


@dataclass(frozen=True)
class Aligner:
    """One party that looks for its shared rows: by which settings, keys and answers it does."""

    run: RunSettings
    party: str
    key: GroupKey
    secrets: Secrets
    decide: Decide
    """Asked for this party's consent before anyone is told row numbers."""
    line: LineClass = fast_line
    """Gives the class of this party's line, from the answers that have come by then."""
    generation: bytes = b""
    """Which generation of the alignment this is."""
    piece_rows: int | None = None
    """Rows of a piece of a larger set; None takes what is usual."""
    disk: Disk | None = None
    """For scratch files, where there are more rows than memory holds; None keeps all in memory."""
    hashed: HashIds = hash_ids
    """Hashes ids."""

    @property
    def maker(self) -> KeyMaker:
        """How this party makes its keys."""
        return KeyMaker(self.run.align, self.party, self.key, self.secrets, self.disk, self.hashed)

    def whole(self, rows: RowCounts) -> Piece:
        """The first of the pieces in which so many rows travel."""
        usual = PIECE_ROWS if self.run.align == "tokens" else POINT_ROWS
        return Piece(0, self.piece_rows or usual, rows)


def align(side: Aligner, ids: PartyIds, kept: KeptAlignment, change: Change) -> Conversation[MatchedRows]:
    """Find this party's shared rows, in an order that is the same at all parties.

    Where an alignment is kept, only the keys of new ids travel, and the places of those that have gone.
    """
    if ids.by_position is not None:
        return (yield from _align_by_position(side, ids.by_position))
    run, party = side.run, side.party
    keys, numbers = _keys_of(side, ids, change.new)
    local = _local_keys(side, ids, keys, numbers)
    lists = [kept.posted[at].after(change.gone[at], local[at]) for at in SETS]
    has_tests = ids.test is not None
    if kept.chain:
        yield from post(RemovedRows(*change.gone))
    yield from _post_keys(side, keys[0], keys[1] if has_tests else None)
    summary = yield from fetch(RowSummary, SERVER)
    rows = RowCounts(lists[0].present, lists[1].present if has_tests else None)
    _check_summary(summary, rows, run, party)
    counts = dict(zip(run.parties, summary.rows, strict=True))
    _check_shared(summary.shared, "rows", counts)
    if has_tests:
        _check_shared(summary.shared_test, "test rows", counts)
    slowest = yield from exchange_consent(run, party, summary, side.decide, side.line)
    index = yield from fetch_index("", RowCounts(len(lists[0].keys), len(lists[1].keys)), side.disk)
    _check_index(index, summary, kept, lists, has_tests=has_tests, verifies=run.align == "tokens")
    places, left = (index.train, index.held_out), (index.left, index.left_test)
    return MatchedRows(
        digest=index.digest,
        places=places,
        counts=counts,
        at=_ids_of_rows(side, kept, change, numbers, places, left),
        posted=(local[0], local[1]),
        gone=change.gone,
        left=left,
        has_test_files=has_tests,
        line=slowest,
    )


def _check_index(
    index: SharedRowIndex,
    summary: RowSummary,
    kept: KeptAlignment,
    lists: Sequence[KeyList],
    *,
    has_tests: bool,
    verifies: bool,
) -> None:
    """Refuse an answer of the server that cannot be right, or is not what all have consented to.

    `lists` has all that this party has posted. Where it `verifies`, its keys are those that the server matches.
    """
    places, left = (index.train, index.held_out), (index.left, index.left_test)
    for at in SETS:
        taken = lists[at].gone.copy()
        taken[kept.places[at][~kept.rows[at].left]] = True
        if not _distinct(places[at], len(taken)) or taken[places[at]].any() or not kept.rows[at].may_leave(left[at]):
            raise no_fit()
    after = [kept.rows[at].after(left[at], len(places[at])).present for at in SETS]
    if index.counts != summary.rows or after != [summary.shared, summary.shared_test]:
        raise no_fit()
    if verifies:
        rows = RowCounts(len(places[0]), len(places[1]) if has_tests else None)
        digest = digest_of_parts(rows, chain.from_iterable(_read(lists[at].keys, places[at]) for at in SETS))
        if kept.newest is not None:
            digest = chained_digest(kept.newest.found.digest, digest, *left)
        if digest != index.digest:
            raise no_fit()


def _read(keys: Keys, places: RowIndex) -> Iterator[Keys]:
    """Keys at these places, a part at a time."""
    return (keys[places[begin : begin + PIECE_ROWS]] for begin in range(0, len(places), PIECE_ROWS))


def _ids_of_rows(
    side: Aligner,
    kept: KeptAlignment,
    change: Change,
    numbers: list[RowIndex],
    new: tuple[RowIndex, RowIndex],
    left: tuple[RowIndex, RowIndex],
) -> tuple[RowIndex, RowIndex]:
    """By row ever found, the number of this party's id; `numbers` are the ids of the new keys in their order."""
    if not kept.chain:
        return gathered(side.disk, numbers[0], new[0]), gathered(side.disk, numbers[1], new[1])
    found = []
    for at in SETS:
        rows = kept.rows[at].after(left[at], len(new[at]))
        ids = np.concatenate([change.ids[at], numbers[at]])
        found.append(np.where(rows.left, -1, ids[np.concatenate([kept.places[at], new[at]])]))
    return found[0], found[1]


def _keys_of(side: Aligner, ids: PartyIds, new: tuple[RowIndex, RowIndex]) -> tuple[list[MadeKeys], list[RowIndex]]:
    """The keys of new ids in the order of posting, and the id that each is of."""
    keys, numbers = [], []
    for texts, chosen in zip((ids.train, ids.test), new, strict=True):
        if texts is None or not len(chosen):
            made = side.maker.none()
        else:
            wanted = texts if len(chosen) == len(texts) else texts.take(chosen)
            made = side.maker.make(wanted, context_of(side.run), "ecdh")
        keys.append(made)
        numbers.append(made.order if texts is not None and len(chosen) == len(texts) else chosen[made.order])
    return keys, numbers


def _local_keys(side: Aligner, ids: PartyIds, made: list[MadeKeys], numbers: list[RowIndex]) -> list[Keys]:
    """The keys by which this party finds its ids again, in the order of posting."""
    local, keys = LocalKeys(side.run, side.key), []
    for texts, each, chosen in zip((ids.train, ids.test), made, numbers, strict=True):
        if each.tokens is not None:
            keys.append(each.tokens)
        else:
            keys.append(NO_KEYS if texts is None else local.of(texts.take(chosen)))
    return keys


def _post_keys(side: Aligner, train: MadeKeys, test: MadeKeys | None) -> Conversation[None]:
    whole = side.whole(RowCounts(len(train.order), None if test is None else len(test.order)))
    make = keys_of_piece(train, test)
    if side.run.align == "tokens":
        yield from post_set(Tokens, whole, make)
    else:
        yield from pass_round(side.run.parties, side.party, whole, make, side.secrets.scalar)


def _align_by_position(side: Aligner, rows: RowCounts) -> Conversation[MatchedRows]:
    yield from post(Tokens(by_position=rows))
    summary = yield from fetch(RowSummary, SERVER)
    _check_summary(summary, rows, side.run, side.party)
    slowest = yield from exchange_consent(side.run, side.party, summary, side.decide, side.line)
    index = yield from fetch_index("", rows, side.disk)
    tests = None if rows.test is None else np.arange(rows.test, dtype=np.int64)
    posted = Posted(np.arange(rows.train, dtype=np.int64), tests, rows)
    check_places(index, posted, (summary.rows, summary.shared, summary.shared_test))
    return MatchedRows(
        digest=index.digest,
        places=(index.train, index.held_out),
        at=(index.train, index.held_out),
        counts=dict(zip(side.run.parties, summary.rows, strict=True)),
        has_test_files=rows.test is not None,
        line=slowest,
        whole=True,
    )


def _check_summary(summary: RowSummary, rows: RowCounts, run: RunSettings, party: str) -> None:
    """Refuse counts of the server that cannot be right."""
    own, tests = run.parties.index(party), 0 if rows.test is None else len(run.parties)
    if len(summary.rows) != len(run.parties) or len(summary.test_rows) != tests:
        raise no_fit()
    if summary.rows[own] != rows.train or summary.shared > min(summary.rows):
        raise no_fit()
    if rows.test is not None and (summary.test_rows[own] != rows.test or summary.shared_test > min(summary.test_rows)):
        raise no_fit()


def check_places(places: SharedRowIndex, posted: Posted, expected: tuple[tuple[int, ...], int, int]) -> None:
    """Refuse an answer of the server that cannot be right, or is not what all have consented to.

    That is `expected`: the rows of all parties, and how many training and test rows are shared.
    """
    sizes = ((places.train, len(posted.train)), (places.held_out, 0 if posted.test is None else len(posted.test)))
    sound = expected == (places.counts, len(places.train), len(places.held_out))
    if not sound or not all(_distinct(found, rows) for found, rows in sizes):
        raise no_fit()
    if _digest(places, posted) != places.digest:
        raise no_fit()


def no_fit() -> AlignmentError:
    """What the server says cannot be."""
    return AlignmentError(
        "the server's answer does not fit what this party posted; see that both run the same version of fdml, "
        "then give the run a new name at every side"
    )


def _distinct(found: NDArray[np.int64], rows: int) -> bool:
    """Whether these are different row numbers below `rows`."""
    if (found >= rows).any():
        return False
    seen = np.zeros(rows, bool)
    seen[found] = True
    return int(seen.sum()) == len(found)


def _digest(places: SharedRowIndex, posted: Posted) -> bytes:
    match posted.digest_of:
        case None:
            return places.digest
        case RowCounts() as rows:
            return position_digest(rows)
        case train, test:
            return shared_digest(train[places.train], None if test is None else test[places.held_out])


def _check_shared(shared: int, what: str, counts: dict[str, int]) -> None:
    if shared == 0:
        raise AlignmentError(
            f"the parties share no {what} ({_listed(counts)} rows); {CAUSES}; make them alike, then give the run a "
            f"new name at every side"
        )


def few_shared(shared: int, counts: dict[str, int]) -> str:
    """A warning where hardly any rows are shared; empty if enough are."""
    few = {party: count for party, count in counts.items() if shared < _FEW * count}
    if not few:
        return ""
    return f"only {shared} rows are shared, under {_FEW:.0%} of what some parties have ({_listed(few)}); {CAUSES}"


def _listed(counts: dict[str, int]) -> str:
    return ", ".join(f"{party} {count}" for party, count in counts.items())
