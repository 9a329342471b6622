"""Parties that align over one bulletin board without a network: they take turns in one thread."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fdml.align.consent import consent_to_all
from fdml.align.conversation import converse
from fdml.align.group_key import agree
from fdml.align.kept import KeptAlignment, MatchedRows, change_of
from fdml.align.key_lists import FoundRows
from fdml.align.matching import Aligner, align, few_shared
from fdml.align.party_secrets import Secrets
from fdml.align.pointing import align_by_keys
from fdml.align.split import order_of
from fdml.errors import PeerTimeout
from fdml.protocol.alignment_messages import PIECE_ROWS, Fetch
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment, kind_of
from fdml.server.bulletin import BulletinStore
from tests.storage.memory_disk import MemoryDisk

_MOST_REQUESTS = 40


class Killed(Exception):
    """A party was killed at this point."""


class PartyCalls:
    """Carries out the requests of one party at a store; killed before its request number `requests_left`."""

    def __init__(self, store, party, requests_left=None):
        self._store = store
        self._party = party
        self._requests_left = requests_left
        self.posted = []

    def answer(self, request):
        """The answer to a request; nobody is there to wait for, so what is missing raises `PeerTimeout`."""
        if isinstance(request, Fetch) and self.waits_for(request):
            names = ", ".join(map(repr, self.waits_for(request)))
            raise PeerTimeout(f"party {self._party!r} waits for {names}")
        if self._requests_left is not None:
            if self._requests_left == 0:
                raise Killed
            self._requests_left -= 1
        if isinstance(request, Fetch):
            return decode_alignment(self._store.fetch(self._party, *_asked(request)))
        raw = encode_alignment(request.message)
        self._store.post(self._party, request.to, request.about, raw)
        self.posted.append((kind_of(type(request.message)), request.to, request.about, raw))
        return None

    def waits_for(self, request):
        """Whom a request waits for; empty if it can be carried out."""
        if not isinstance(request, Fetch) or self._store.fetch(self._party, *_asked(request)) is not None:
            return []
        return self._store.waits_for(self._party, *_asked(request)[:3])


def _asked(request):
    return kind_of(request.kind), request.sender, request.about, request.piece


def open_store(run, disk=None, piece_rows=PIECE_ROWS):
    """The server's bulletin board, as a server that is started has it."""
    return BulletinStore.open(
        run.parties,
        run.align,
        MemoryDisk() if disk is None else disk,
        pointing=run.pointing_party,
        piece_rows=piece_rows,
    )


@dataclass(frozen=True, eq=False)
class Aligned:
    """What one party has found, in the run's order."""

    train: np.ndarray
    held_out: np.ndarray
    digest: bytes
    counts: dict
    shared: int
    found: MatchedRows
    warning: str

    @property
    def has_test_files(self):
        return self.found.has_test_files

    @property
    def line(self):
        return self.found.line


def alignment_of(run, party, ids, disk, credentials=None, key_file=None, decide=consent_to_all, piece_rows=None):
    """The whole conversation of a party that keeps nothing yet; ends with the alignment and the group key."""
    secrets = Secrets.load_or_make(disk, run, party, credentials)
    agreement = yield from agree(run, party, secrets, credentials, key_file)
    side = Aligner(run, party, agreement.key, secrets, decide, piece_rows=piece_rows)
    if run.pointing_party is not None:
        found = yield from align_by_keys(side, ids, agreement)
    else:
        kept = KeptAlignment()
        found = yield from align(side, ids, kept, change_of(run, kept, ids, secrets.tag_key()))
    rows = FoundRows.of(len(found.at[0]))
    train, held_out = order_of(rows, None if found.has_test_files else run.evaluation.holdout, run.training.seed)
    tested = found.at[1] if found.has_test_files else found.at[0][held_out]
    compared = run.parties if run.pointing_party is None else (run.label_party,)
    warning = few_shared(rows.present, {name: count for name, count in found.counts.items() if name in compared})
    counts = dict(found.counts)
    aligned = Aligned(found.at[0][train], tested, found.digest, counts, rows.present, found, warning)
    return aligned, agreement.key


def align_alone(calls, run, party, ids, disk, piece_rows=None):
    """Let one party do what it can; what it needs of the others must be there."""
    return converse(alignment_of(run, party, ids, disk, piece_rows=piece_rows), calls.answer)


def check_every_kill(run, ids):
    """A party that is killed before any of its requests posts the same again and finds the same rows."""
    disks = {party: MemoryDisk() for party in run.parties}
    whole = open_store(run)
    expected = {party: each.digest for party, (each, _) in align_all(run, ids, whole, disks=disks).items()}
    for party in run.parties:
        for requests in range(_MOST_REQUESTS):
            killed, again = PartyCalls(whole, party, requests), PartyCalls(whole, party)
            try:
                align_alone(killed, run, party, ids[party], disks[party].copy())
            except Killed:
                found, _ = align_alone(again, run, party, ids[party], disks[party].copy())
                assert again.posted[: len(killed.posted)] == killed.posted
                assert found.digest == expected[party]
            else:
                break
        else:
            raise AssertionError("a party makes fewer requests than that")


def align_all(run, ids, store=None, *, credentials=None, disks=None, key_files=None, piece_rows=None):
    """Every party in turn, as far as it gets; gives what each found, or raises the first error."""
    store = store or open_store(run)
    conversations = {
        party: alignment_of(
            run,
            party,
            ids[party],
            (disks or {}).get(party) or MemoryDisk(),
            (credentials or {}).get(party),
            (key_files or {}).get(party),
            piece_rows=piece_rows,
        )
        for party in run.parties
    }
    return take_turns(conversations, {party: PartyCalls(store, party) for party in run.parties})


def take_turns(conversations, calls):
    """Hold all conversations at once; gives the result of each. Parties that all wait raise `PeerTimeout`."""
    results = {}
    requests = {party: next(each) for party, each in conversations.items()}
    while requests:
        ready = [party for party in requests if not calls[party].waits_for(requests[party])]
        for party in ready or list(requests)[:1]:
            reply = calls[party].answer(requests[party])
            try:
                requests[party] = conversations[party].send(reply)
            except StopIteration as end:
                results[party] = end.value
                del requests[party]
    return {party: results[party] for party in conversations}
