"""What a party keeps of an alignment: its generations, each of which adds rows to the one before and takes some off."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa

from fdml.align.group_key import Agreement, GroupKey
from fdml.align.key_lists import FoundRows, KeyList, RowIndex
from fdml.align.party_ids import PartyIds
from fdml.align.tokens import id_tokens, text_digest
from fdml.data.id_hashes import hash_ids
from fdml.protocol.alignment_messages import GENERATION_BYTES, TOKEN_BYTES, KeyOffer, Keys, RowsOffer
from fdml.protocol.alignment_wire import MOST_GENERATIONS
from fdml.settings import RunSettings
from fdml.storage.disk import Disk
from fdml.storage.scratch_arrays import all_numbers

SETS = (0, 1)
"""Of a pair: training rows, and test rows, of which there are none without test files."""
NO_PLACES: RowIndex = np.zeros(0, np.int64)
NO_KEYS: Keys = np.zeros((0, TOKEN_BYTES), np.uint8)


@dataclass(frozen=True, eq=False, kw_only=True)
class MatchedRows:
    """What one generation of an alignment has found. Pairs are of training and of test rows."""

    digest: bytes
    """The same at all parties."""
    places: tuple[RowIndex, RowIndex]
    """Of the rows found, in an order that is the same at all parties: their places in all that this party has posted;
    where it was matched as a whole, row numbers among its ids, -1 for none."""
    counts: Mapping[str, int]
    """How many training rows each party has."""
    posted: tuple[Keys, Keys] = (NO_KEYS, NO_KEYS)
    """The keys of this party's new ids; in another form where others must not be able to make them."""
    gone: tuple[RowIndex, RowIndex] = (NO_PLACES, NO_PLACES)
    """Places of ids that this party no longer has."""
    at: tuple[RowIndex, RowIndex]
    """By row that this generation or one before it has found, the number of this party's id; -1 for none, or where the
    row has left."""
    left: tuple[RowIndex, RowIndex] = (NO_PLACES, NO_PLACES)
    """Numbers of rows, among all that were ever found, that are no longer shared."""
    has_test_files: bool = False
    line: int = 0
    """The class of the slowest line of all parties."""
    whole: bool = False
    """Whether rows were matched by position or by pointers, so that any change makes all of it anew."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Generation:
    """One generation, with all that a later run needs to use it; nothing of it ever changes."""

    id: bytes
    base: bytes
    """The generation that it adds to; empty for none."""
    number: int
    key: GroupKey
    offers: Mapping[str, KeyOffer]
    found: MatchedRows
    tag: bytes
    """What stood for this party's ids."""
    state: bytes
    """A hash of the ids in the order of the files."""
    date: str = ""
    """When it was stored."""

    @property
    def agreement(self) -> Agreement:
        """What the parties had agreed on."""
        return Agreement(self.key, self.offers)


@dataclass(frozen=True, eq=False)
class Change:
    """How a party's ids differ from those that it has posted."""

    tag: bytes
    state: bytes
    new: tuple[RowIndex, RowIndex]
    """Numbers of new ids."""
    gone: tuple[RowIndex, RowIndex]
    """Places of ids that have gone."""
    ids: tuple[RowIndex, RowIndex]
    """By place, the number of its id; -1 where it has gone."""

    @property
    def is_none(self) -> bool:
        """Whether the ids are the same, in whatever order."""
        return not any(len(each) for each in (*self.new, *self.gone))


@dataclass(frozen=True, eq=False)
class KeptAlignment:
    """The generations of an alignment that a party keeps, the newest first."""

    chain: tuple[Generation, ...] = ()

    @property
    def newest(self) -> Generation | None:
        """The newest generation; None where nothing is kept."""
        return self.chain[0] if self.chain else None

    @property
    def ids(self) -> tuple[bytes, ...]:
        """The ids of the generations."""
        return tuple(each.id for each in self.chain)

    def upto(self, generation: bytes) -> KeptAlignment:
        """The alignment as it was when this generation was the newest; empty for none."""
        return KeptAlignment(self.chain[self.ids.index(generation) :] if generation else ())

    @cached_property
    def posted(self) -> tuple[KeyList, KeyList]:
        """All keys that this party has posted."""
        lists = [KeyList.of(NO_KEYS), KeyList.of(NO_KEYS)]
        for each in reversed(self.chain):
            lists = [lists[at].after(each.found.gone[at], each.found.posted[at]) for at in SETS]
        return lists[0], lists[1]

    @cached_property
    def rows(self) -> tuple[FoundRows, FoundRows]:
        """All rows that were found."""
        found = [FoundRows((), np.zeros(0, bool)) for _ in SETS]
        for each in reversed(self.chain):
            found = [found[at].after(each.found.left[at], len(each.found.places[at])) for at in SETS]
        return found[0], found[1]

    @cached_property
    def places(self) -> tuple[RowIndex, RowIndex]:
        """The place of every row that was found."""
        both = [np.concatenate([NO_PLACES, *(each.found.places[at] for each in reversed(self.chain))]) for at in SETS]
        return both[0], both[1]

    def ids_of(self, change: Change) -> tuple[RowIndex, RowIndex]:
        """By row that was found, the number of this party's id; -1 where it has left."""
        newest = self.newest
        if newest is not None and (newest.found.whole or newest.state == change.state):
            return newest.found.at
        both = [np.where(self.rows[at].left, -1, change.ids[at][self.places[at]]) for at in SETS]
        return both[0], both[1]

    def and_then(self, generation: Generation) -> KeptAlignment:
        """The alignment with one more generation, or anew where that has no base."""
        return KeptAlignment((generation, *self.upto(generation.base).chain))


@dataclass(frozen=True)
class LocalKeys:
    """The form in which a party keeps the keys of its ids, to find them again."""

    run: RunSettings
    key: GroupKey

    def of(self, ids: pa.LargeStringArray) -> Keys:
        """The tokens; where ids travel as points, which take long to make, another hash."""
        if self.run.align == "tokens":
            return id_tokens(ids, self.key, context_of(self.run))
        return hash_ids(ids, self.key.derive("kept ids"), TOKEN_BYTES)


def context_of(run: RunSettings) -> str:
    """What tokens are made for: one federation, so that those of two cannot be linked.

    It is the name, not the members' keys: with the same group key a federation has the same order of rows after one of
    its members has a new key.
    """
    return run.federation


def change_of(
    run: RunSettings,
    kept: KeptAlignment,
    ids: PartyIds,
    secret: bytes,
    *,
    places: bool = False,
    disk: Disk | None = None,
) -> Change:
    """How the ids differ from those of a kept alignment, the tag under a secret of this party's.

    Where they do not differ at all, the ids of `places` are found only if they are asked for. The numbers of many new
    ids are kept on the disk, if there is one.
    """
    state, newest = state_of(ids), kept.newest
    fresh = hashlib.blake2b(state, key=secret, digest_size=GENERATION_BYTES, person=b"fdml rows").digest()
    texts, none = [ids.train, ids.test], (NO_PLACES, NO_PLACES)
    if newest is not None and newest.state == state and (newest.found.whole or not places):
        return Change(newest.tag, state, none, none, none)
    if newest is None or newest.found.whole or is_whole(run, ids):
        both = [NO_PLACES if each is None else all_numbers(disk, len(each)) for each in texts]
        return Change(fresh, state, (both[0], both[1]), none, none)
    keys, new, gone, numbers = LocalKeys(run, newest.key), [], [], []
    for listed, each in zip(kept.posted, texts, strict=True):
        at = listed.find(NO_KEYS if each is None else keys.of(each))
        of_place = np.full(len(listed.keys), -1, np.int64)
        of_place[at[at >= 0]] = np.flatnonzero(at >= 0)
        new.append(np.flatnonzero(at < 0))
        gone.append(np.flatnonzero((of_place < 0) & ~listed.gone))
        numbers.append(of_place)
    change = Change(fresh, state, (new[0], new[1]), (gone[0], gone[1]), (numbers[0], numbers[1]))
    return replace(change, tag=newest.tag) if change.is_none else change


def is_whole(run: RunSettings, ids: PartyIds) -> bool:
    """Whether rows are aligned as a whole: by position, or where rows point to rows."""
    return run.pointing_party is not None or ids.train is None


def state_of(ids: PartyIds) -> bytes:
    """A hash of all ids in the order of the files, and of the keys that lead to other parties' rows."""
    digest = hashlib.blake2b(repr((ids.counts, sorted(ids.leads))).encode(), digest_size=32)
    leads = [ids.leads[other] for other in sorted(ids.leads)]
    for texts in (ids.train, ids.test, *(each for lead in leads for each in (lead.train, lead.test))):
        digest.update(b"-" if texts is None else text_digest(texts))
    return digest.digest()


def usable(
    kept: KeptAlignment, run: RunSettings, ids: PartyIds, own: tuple[str, KeyOffer], given: GroupKey | None
) -> KeptAlignment:
    """What is kept, if rows can be added to it; nothing if all has to be made anew.

    That is so where this party's keys are others (`own` is its name and offer, `given` the group key of a file), where
    there were test files and now are none, and between rows with ids and rows without.
    """
    newest, (party, offer) = kept.newest, own
    if newest is None or newest.offers.get(party) != offer or (given is not None and given != newest.key):
        return KeptAlignment()
    if newest.found.whole != is_whole(run, ids):
        return KeptAlignment()
    fits = newest.found.whole or newest.found.has_test_files == (ids.test is not None)
    return kept if fits else KeptAlignment()


def offer_of(run: RunSettings, kept: KeptAlignment, usable: KeptAlignment, ids: PartyIds, change: Change) -> RowsOffer:
    """What a party brings to a run."""
    number = 0 if kept.newest is None else kept.newest.number
    return RowsOffer(change.tag, usable.ids[:MOST_GENERATIONS], number, is_whole(run, ids))
