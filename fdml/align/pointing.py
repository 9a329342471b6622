"""Rows of the label party that point to rows of the others: by keys of another grain, or where some may lack a row.

The label party posts for each other party the different keys that lead to it, under a context of their own, so that
the server can link no two parties' keys. It learns which of them that party holds, and tells that party alone, sealed,
to which of its rows each row of the run points. So the server learns neither how many rows have the same key nor which.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.align.consent import exchange_consent
from fdml.align.conversation import Conversation, fetch, post
from fdml.align.ecdh import pass_on
from fdml.align.group_key import Agreement, GroupKey, pair_keys
from fdml.align.kept import MatchedRows, context_of
from fdml.align.made_keys import MadeKeys, keys_of_piece
from fdml.align.matching import CAUSES, Aligner, Posted, check_places, no_fit
from fdml.align.party_ids import LeadingKeys, PartyIds
from fdml.align.pieces import fetch_index, fetch_pointers, post_pointers, post_set
from fdml.align.tokens import id_tokens, sort_keys
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import (
    HASH_BYTES,
    PIECE_ROWS,
    SERVER,
    BlindedIds,
    Piece,
    RowCounts,
    RowPointers,
    RowSummary,
    SharedRowIndex,
    Tokens,
)
from fdml.settings import RunSettings

_PURPOSE = "row pointers"
_POINTER = np.dtype("<i4")
_NONE = -1
RowIndex = NDArray[np.int64]
_NO_ROWS: RowIndex = np.zeros(0, np.int64)


def align_by_keys(side: Aligner, ids: PartyIds, agreement: Agreement) -> Conversation[MatchedRows]:
    """Find which rows all have and, at other parties than the label party, to which row each of them points."""
    run, party = side.run, side.party
    pairs = pair_keys(run, party, side.secrets, agreement, _PURPOSE.encode(), side.generation)
    seals = {other: GroupKey(secret) for other, secret in pairs.items()}
    if party == run.label_party:
        return (yield from _lead(_Side(side), ids, seals))
    return (yield from _follow(_Side(side), ids, seals[run.label_party]))


class _Side:
    """One party that aligns."""

    def __init__(self, aligner: Aligner) -> None:
        self.run = aligner.run
        self.party = aligner.party
        self.key = aligner.key
        self.secrets = aligner.secrets
        self._aligner = aligner

    def context(self, other: str) -> str:
        """Under which the ids of a party, and the keys that lead to it, are hashed."""
        return f"{context_of(self.run)} for {other}"

    def hashed(self, texts: pa.LargeStringArray, other: str) -> MadeKeys:
        """The keys of different texts."""
        context = self.context(other)
        return self._aligner.maker.make(texts, context, f"ecdh of {context}")

    def post(self, train: MadeKeys, test: MadeKeys | None, other: str) -> Conversation[Posted]:
        """Post the keys by which this party and another are matched."""
        tests = None if test is None else test.order
        whole = self._aligner.whole(RowCounts(len(train.order), None if tests is None else len(tests)))
        make = keys_of_piece(train, test)
        if train.tokens is None:
            yield from post_set(BlindedIds, whole, make, other, self.party)
            return Posted(train.order, tests, None)
        yield from post_set(Tokens, whole, make, about=other if self.party == self.run.label_party else "")
        return Posted(train.order, tests, (train.tokens, None if test is None else test.tokens))

    def whole_run(self, rows: RowCounts) -> Piece:
        """The first piece of the run's rows: as many as of tokens, as nothing is blinded."""
        return Piece(0, self._aligner.piece_rows or PIECE_ROWS, rows)

    def counts(self, summary: RowSummary) -> dict[str, int]:
        """How many training rows each party has."""
        return dict(zip(self.run.parties, summary.rows, strict=True))

    def consent(self, own_rows: int, own_tests: int) -> Conversation[tuple[RowSummary, int]]:
        """The counts, once they are sound and all parties have consented to them; and the slowest line's class."""
        summary = yield from fetch(RowSummary, SERVER)
        parties = len(self.run.parties)
        at = self.run.parties.index(self.party)
        if len(summary.rows) != parties or len(summary.matched) != parties or summary.rows[at] != own_rows:
            raise no_fit()
        if any(matched > rows for matched, rows in zip(summary.matched, summary.rows, strict=True)):
            raise no_fit()
        if own_tests and (len(summary.test_rows) != parties or summary.test_rows[at] != own_tests):
            raise no_fit()
        for other, matched in zip(self.run.parties, summary.matched, strict=True):
            if not matched:
                raise AlignmentError(
                    f"no row of {self.run.label_party!r} leads to a row of party {other!r}; {CAUSES}, or than [keys] "
                    f"of run.toml; make them alike, then give the run a new name at every side"
                )
        slowest = yield from exchange_consent(self.run, self.party, summary, self._aligner.decide, self._aligner.line)
        return summary, slowest

    def matched(self, posted: Posted, summary: RowSummary, other: str) -> Conversation[SharedRowIndex]:
        """What this party and another share, as the server found it."""
        about = other if self.party == self.run.label_party else ""
        subject = other if about else self.party
        most = RowCounts(len(posted.train), 0 if posted.test is None else len(posted.test))
        places = yield from fetch_index(about, most, self._aligner.disk)
        tests = 0 if posted.test is None else len(places.held_out)
        check_places(places, posted, (summary.rows, summary.matched[self.run.parties.index(subject)], tests))
        return places


# The label party


@dataclass(frozen=True, eq=False)
class _Lead:
    """The label party's keys to one other party."""

    posted: Posted
    train: RowIndex
    """By training row, the place of its key among those posted; -1 for none."""
    test: RowIndex | None
    """The same by test row; None without a test file."""
    coarse: bool

    def pointers(self, places: SharedRowIndex) -> tuple[RowIndex, RowIndex | None]:
        """By row, the number of the matched row that it points to; -1 for none."""
        of_train = _ranks(places.train, len(self.posted.train))
        if self.test is None:
            return of_train[self.train], None
        matched = of_train if self.posted.test is None else _ranks(places.held_out, len(self.posted.test))
        return of_train[self.train], matched[self.test]


def _lead(side: _Side, ids: PartyIds, seals: Mapping[str, GroupKey]) -> Conversation[MatchedRows]:
    run, counts = side.run, ids.counts
    yield from post(Tokens(by_position=counts))
    leads = {}
    for other in seals:
        if other not in ids.leads:
            raise AlignmentError(f"the rows of {side.party!r} have no key to party {other!r}; add it to [keys]")
        leads[other] = yield from _post_keys(side, ids.leads[other], other)
    if run.align == "ecdh":
        for other in seals:
            yield from pass_on(other, other, SERVER, side.secrets.scalar)
    summary, slowest = yield from side.consent(counts.train, counts.test or 0)
    found, digests = {}, []
    for other, lead in leads.items():
        places = yield from side.matched(lead.posted, summary, other)
        found[other] = lead.pointers(places)
        digests.append(places.digest)
    keeps = run.unmatched == "keep"
    train = _kept([pointers for pointers, _ in found.values()], _own_order(side, ids.train, counts.train), keeps)
    test = None
    if counts.test is not None:
        of_test = [pointers for _, pointers in found.values() if pointers is not None]
        test = _kept(of_test, _own_order(side, ids.test, counts.test), keeps)
    shared = len(train)
    if not shared or (test is not None and not len(test)):
        raise AlignmentError(
            f"no {'test row' if shared else 'row'} of {side.party!r} leads to a row of every other party; {CAUSES}; "
            f'or set unmatched = "keep" in run.toml, which keeps rows that some party does not hold'
        )
    tests = _NO_ROWS if test is None else test
    told = {other: _packed(pointers, train, tests) for other, pointers in found.items()}
    digest = _digest(side.key, [*digests, *told.values()])
    whole = side.whole_run(RowCounts(len(train), len(tests)))
    for other, pointers in told.items():
        sealed = _sealed(seals[other], digest + bytes([test is not None]), pointers, whole)
        yield from post_pointers(sealed, whole, other)
    return _found((train, tests), digest, side.counts(summary), test is not None, slowest)


def _found(
    rows: tuple[RowIndex, RowIndex], digest: bytes, counts: dict[str, int], tests: bool, line: int
) -> MatchedRows:
    return MatchedRows(digest=digest, places=rows, at=rows, counts=counts, has_test_files=tests, line=line, whole=True)


def _post_keys(side: _Side, keys: LeadingKeys, other: str) -> Conversation[_Lead]:
    """Post the different keys to another party."""
    if keys.coarse or keys.test is None:
        texts, (train, *test) = _different([keys.train] if keys.test is None else [keys.train, keys.test])
        posted = yield from side.post(side.hashed(texts, other), None, other)
        places = _ranks(posted.train, len(posted.train))
        return _Lead(posted, places[train], places[test[0]] if test else None, keys.coarse)
    texts, (train,) = _different([keys.train])
    test_texts, (tests,) = _different([keys.test])
    made = side.hashed(test_texts, other)
    posted = yield from side.post(side.hashed(texts, other), made, other)
    places = _ranks(posted.train, len(posted.train))
    return _Lead(posted, places[train], _ranks(made.order, len(made.order))[tests], keys.coarse)


def _different(columns: list[pa.LargeStringArray]) -> tuple[pa.LargeStringArray, list[RowIndex]]:
    """All different texts of some columns, and by row of each column which of them it has; -1 for none."""
    coded = pa.concat_arrays(columns).dictionary_encode()
    codes = coded.indices.fill_null(_NONE).to_numpy(zero_copy_only=False).astype(np.int64)
    if not len(coded.dictionary):
        raise AlignmentError("no row has a key; check the columns that [keys] of run.toml names")
    ends = np.cumsum([len(column) for column in columns])
    return coded.dictionary.cast(pa.large_string()), np.split(codes, ends[:-1])


def _ranks(found: RowIndex, size: int) -> RowIndex:
    """By place, which of those found it is, -1 for none; and so for place -1."""
    ranks = np.full(size + 1, _NONE, np.int64)
    ranks[found] = np.arange(len(found))
    return ranks


def _own_order(side: _Side, texts: pa.LargeStringArray | None, rows: int) -> RowIndex:
    """The label party's rows in the order that they would have if all parties held them."""
    if texts is None:
        return np.arange(rows, dtype=np.int64)
    return sort_keys(id_tokens(texts, side.key, context_of(side.run)), side.party)[1]


def _kept(pointers: list[RowIndex], order: RowIndex, keeps: bool) -> RowIndex:
    """The rows that all have: all, or those that point to a row of every party."""
    if keeps:
        return order
    complete = np.ones(len(order), bool)
    for each in pointers:
        complete &= each >= 0
    return order[complete[order]]


def _packed(pointers: tuple[RowIndex, RowIndex | None], train: RowIndex, tests: RowIndex) -> bytes:
    """One party's pointers as they travel."""
    of_train, of_test = pointers
    both = np.concatenate([of_train[train], (of_train if of_test is None else of_test)[tests]])
    if both.max(initial=0) > np.iinfo(_POINTER).max:
        raise AlignmentError(f"{both.max()} matched rows are too many to point to")
    return both.astype(_POINTER).tobytes()


def _digest(key: GroupKey, parts: list[bytes]) -> bytes:
    """A keyed hash: the server, which knows the sets, cannot try out pointers by it."""
    digest = hashlib.blake2b(digest_size=HASH_BYTES, key=key.derive(_PURPOSE))
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


# Another party


def _follow(side: _Side, ids: PartyIds, seal: GroupKey) -> Conversation[MatchedRows]:
    run, label_party = side.run, side.run.label_party
    posted = yield from _post_ids(side, ids)
    if run.align == "ecdh":
        yield from pass_on(label_party, label_party, SERVER, side.secrets.scalar)
    summary, slowest = yield from side.consent(len(posted.train), 0 if posted.test is None else len(posted.test))
    places = yield from side.matched(posted, summary, label_party)
    pieces = yield from fetch_pointers(label_party)
    train, held_out, has_test_files = _opened(pieces, seal, label_party)
    own_train = posted.train[places.train]
    own_test = own_train if posted.test is None else posted.test[places.held_out]
    for pointers, rows in ((train, own_train), (held_out, own_test)):
        _check_pointers(pointers, len(rows), run, side.party)
    found = _rows(own_train, train), _rows(own_test, held_out)
    return _found(found, pieces[0].digest, side.counts(summary), has_test_files, slowest)


def _post_ids(side: _Side, ids: PartyIds) -> Conversation[Posted]:
    party, label_party = side.party, side.run.label_party
    if ids.train is None:
        raise AlignmentError(
            f"party {party!r} has no ids, and rows of {label_party!r} are to point to its rows; set data.id to its key"
        )
    if ids.test is not None and party in side.run.keys:
        raise AlignmentError(
            f"party {party!r} is in [keys] of run.toml: one table serves training and test rows; leave data.test_path "
            f"out, with all rows in the file of data.path"
        )
    test = None if ids.test is None else side.hashed(ids.test, party)
    return (yield from side.post(side.hashed(ids.train, party), test, label_party))


def _sealed(seal: GroupKey, head: bytes, pointers: bytes, whole: Piece) -> Iterator[RowPointers]:
    """Pointers as they are posted; each piece is sealed under its number, behind the hash of all."""
    rows, digest, size = whole.rows, head[:HASH_BYTES], whole.size * _POINTER.itemsize
    for number in range(whole.count):
        piece = None if whole.count == 1 else whole.at(number)
        plain = head + (pointers if piece is None else pointers[number * size : (number + 1) * size])
        yield RowPointers(rows.train, rows.test or 0, digest, seal.seal(_purpose(piece), plain), piece)


def _purpose(piece: Piece | None) -> str:
    return _PURPOSE if piece is None else f"{_PURPOSE} {piece.number}"


def _opened(pieces: Sequence[RowPointers], seal: GroupKey, label_party: str) -> tuple[RowIndex, RowIndex, bool]:
    """Pointers of rows and of test rows, and whether there are test files."""
    first, begin = pieces[0], HASH_BYTES + 1
    plain = [seal.open(_purpose(each.piece), each.sealed) for each in pieces]
    found = [np.frombuffer(each[begin:], _POINTER) for each in plain if not (len(each) - begin) % _POINTER.itemsize]
    pointers = np.concatenate(found).astype(np.int64) if len(found) == len(plain) else _NO_ROWS
    heads = {each[:begin] for each in plain}
    whole = len(pointers) == first.train + first.held_out and len(pointers) > 0
    if not whole or len(heads) != 1 or plain[0][:HASH_BYTES] != first.digest:
        raise AlignmentError(
            f"the row pointers of label party {label_party!r} are not those that the server says; give the run a new "
            f"name at every side"
        )
    train, held_out = np.split(pointers, [first.train])
    return train, held_out, bool(plain[0][HASH_BYTES])


def _check_pointers(pointers: RowIndex, matched: int, run: RunSettings, party: str) -> None:
    lowest = _NONE if run.unmatched == "keep" else 0
    held = pointers[pointers >= 0]
    if pointers.min(initial=0) < lowest or pointers.max(initial=_NONE) >= matched:
        raise _wrong_pointers(run, f"outside the {matched} rows that both hold")
    if party not in run.keys and len(np.unique(held)) < len(held):
        raise _wrong_pointers(run, "twice to the same row, though the ids are those of its rows")


def _wrong_pointers(run: RunSettings, what: str) -> AlignmentError:
    return AlignmentError(
        f"label party {run.label_party!r} points {what}; see that both run the same version of fdml and the same "
        f"run.toml, then give the run a new name at every side"
    )


def _rows(own: RowIndex, pointers: RowIndex) -> RowIndex:
    """The file's row of each pointer; -1 where there is none."""
    return np.where(pointers < 0, _NONE, own[pointers])
