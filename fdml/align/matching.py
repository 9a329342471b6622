"""How a party finds its shared rows with the others: it posts its keys, and learns which of them all hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.align.consent import Decide, LineClass, exchange_consent, fast_line
from fdml.align.conversation import Conversation, fetch, post
from fdml.align.ecdh import blind, pass_round, points_of
from fdml.align.group_key import GroupKey
from fdml.align.party_secrets import Secrets
from fdml.align.split import shuffled_rows, split_rows
from fdml.align.tokens import id_tokens, sort_keys
from fdml.data.ids import Ids
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import SERVER, BlindedIds, Keys, RowCounts, RowSummary, SharedRowIndex, Tokens
from fdml.protocol.key_sets import position_digest, shared_digest
from fdml.settings import RunSettings

_FEW = 0.01
"""A share of a party's rows under which the shared rows are probably not all that there are."""
CAUSES = (
    "likely causes: ids of another type or written in another way (see [data.ids]: trim, case, unicode, numbers), "
    "or data.id names other columns than at the other parties"
)
"""Why parties may share no rows."""


@dataclass(frozen=True, eq=False)
class LeadingKeys:
    """For each row of a label party the key of the row of another party that it points to; null where it has none."""

    train: pa.LargeStringArray
    test: pa.LargeStringArray | None = None
    """None without a test file."""
    coarse: bool = False
    """Whether they are keys of another grain: many rows may have the same, and one table of the other party serves
    training and test rows."""


@dataclass(frozen=True, eq=False)
class PartyIds:
    """A party's normalised ids, one for each row, or how many rows it has if it has no ids."""

    train: pa.LargeStringArray | None = None
    test: pa.LargeStringArray | None = None
    """None without a test file."""
    by_position: RowCounts | None = None
    leads: Mapping[str, LeadingKeys] = field(default_factory=dict)
    """At a label party whose rows point to those of the others: by other party, the keys that lead to it."""

    @classmethod
    def of(cls, files: Sequence[Ids | None], counts: Sequence[int]) -> Self:
        """Of the training file and, where there is one, the test file; without ids the `counts` of rows are used."""
        given = [each for each in files if each is not None]
        if not given:
            return cls(by_position=RowCounts(*counts))
        if len(given) < len(files):
            raise AlignmentError("only one of training file and test file has ids; data.id must name columns of both")
        return cls(*(each.texts for each in given))

    @property
    def counts(self) -> RowCounts:
        """How many rows there are."""
        if self.train is None:
            return self.by_position or RowCounts(0)
        return RowCounts(len(self.train), None if self.test is None else len(self.test))

    def __post_init__(self) -> None:
        if (self.train is None) == (self.by_position is None):
            raise AlignmentError("a party has ids, or else numbers of rows to be matched by position; give one of them")


@dataclass(frozen=True, eq=False)
class Alignment:
    """The rows that all parties hold."""

    train: NDArray[np.int64]
    """This party's row numbers in the run's order of training rows."""
    held_out: NDArray[np.int64]
    """The same of the rows to test on: of the test file, or of the training file where there is none."""
    digest: bytes
    """The same at all parties."""
    counts: dict[str, int]
    """How many training rows each party has."""
    shared: int
    """How many training rows all parties hold, those held out included."""
    warning: str = ""
    has_test_files: bool = False
    """Whether the held-out rows are of test files; told where rows of the label party point to this party's."""
    line: int = 0
    """The class of the slowest line of all parties."""


@dataclass(frozen=True, eq=False)
class Posted:
    """The rows that the posted keys stand for: key number k is the key of row `train[k]`."""

    train: NDArray[np.int64]
    test: NDArray[np.int64] | None
    digest_of: tuple[Keys, Keys | None] | RowCounts | None
    """From what the digest can be found here; None where only the server knows the shared keys."""


def align(
    run: RunSettings,
    party: str,
    ids: PartyIds,
    key: GroupKey,
    secrets: Secrets,
    decide: Decide,
    line: LineClass = fast_line,
) -> Conversation[Alignment]:
    """Find this party's shared rows, in an order that is the same at all parties.

    `decide` is asked for this party's consent before anyone is told row numbers. `line` gives the class of
    this party's line, from the answers that have come by then.
    """
    if ids.by_position is not None:
        posted = yield from _post_position(ids.by_position)
    elif run.align == "tokens":
        posted = yield from _post_tokens(run.name, party, ids, key)
    else:
        posted = yield from _post_points(run, party, ids, key, secrets)
    summary = yield from fetch(RowSummary, SERVER)
    _check_summary(summary, posted, run, party)
    counts = dict(zip(run.parties, summary.rows, strict=True))
    _check_shared(summary.shared, "rows", counts)
    if posted.test is not None:
        _check_shared(summary.shared_test, "test rows", counts)
    slowest = yield from exchange_consent(run, party, summary, decide, line)
    places = yield from fetch(SharedRowIndex, SERVER)
    check_places(places, posted, (summary.rows, summary.shared, summary.shared_test))
    test = None if posted.test is None else posted.test[places.held_out]
    train, held_out = in_run_order(run, posted.train[places.train], test)
    shared = len(places.train)
    return Alignment(train, held_out, places.digest, counts, shared, few_shared(shared, counts), line=slowest)


def in_run_order(
    run: RunSettings, rows: NDArray[np.int64], test: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows to train on, shuffled, and to hold out: the test rows, or without any some of the others."""
    seed = run.training.seed
    if test is None:
        keep, out = split_rows(len(rows), run.evaluation.holdout, seed)
        rows, test = rows[keep], rows[out]
    return rows[shuffled_rows(len(rows), seed)], test


def _post_position(rows: RowCounts) -> Conversation[Posted]:
    yield from post(Tokens(by_position=rows))
    test = None if rows.test is None else np.arange(rows.test, dtype=np.int64)
    return Posted(np.arange(rows.train, dtype=np.int64), test, rows)


def _post_tokens(run: str, party: str, ids: PartyIds, key: GroupKey) -> Conversation[Posted]:
    train, train_rows = sort_keys(id_tokens(ids.train, key, run), party)
    if ids.test is None:
        yield from post(Tokens(train))
        return Posted(train_rows, None, (train, None))
    test, test_rows = sort_keys(id_tokens(ids.test, key, run), party)
    yield from post(Tokens(train, test))
    return Posted(train_rows, test_rows, (train, test))


def _post_points(run: RunSettings, party: str, ids: PartyIds, key: GroupKey, secrets: Secrets) -> Conversation[Posted]:
    train, train_rows = sort_keys(blind(points_of(ids.train, key), secrets.scalar, party), party)
    test, test_rows = None, None
    if ids.test is not None:
        test, test_rows = sort_keys(blind(points_of(ids.test, key), secrets.scalar, party), party)
    yield from pass_round(run.parties, party, BlindedIds(train, test), secrets.scalar)
    return Posted(train_rows, test_rows, None)


def _check_summary(summary: RowSummary, posted: Posted, run: RunSettings, party: str) -> None:
    """Refuse counts of the server that cannot be right."""
    own, tests = run.parties.index(party), 0 if posted.test is None else len(run.parties)
    if len(summary.rows) != len(run.parties) or len(summary.test_rows) != tests:
        raise no_fit()
    if summary.rows[own] != len(posted.train) or summary.shared > min(summary.rows):
        raise no_fit()
    if posted.test is not None and (
        summary.test_rows[own] != len(posted.test) or summary.shared_test > min(summary.test_rows)
    ):
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
