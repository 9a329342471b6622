"""The board's twin without a network: parties are threads around one board, which may die and come back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from fdml.align.group_key import agree
from fdml.align.matching import align
from fdml.align.party_secrets import Secrets
from fdml.errors import PeerTimeout
from fdml.protocol.alignment_wire import decode_alignment, encode_alignment, kind_of
from fdml.server.bulletin import BulletinStore
from tests.storage.memory_disk import MemoryDisk


class Stopped(Exception):
    """A party was killed at this point."""


class Hall:
    """One server board and all who stand before it."""

    def __init__(self, run, disk=None, peer_timeout_seconds=20.0):
        self.disk = MemoryDisk() if disk is None else disk
        self.board = BulletinStore.open(run.parties, run.align, self.disk)
        self.peer_timeout = peer_timeout_seconds
        self.changed = threading.Condition()

    def line(self, party, calls_left=None):
        """One party's view of the board; it is killed before its call number `calls_left`."""
        return Stream(self, party, calls_left)


class Stream:
    """A `fdml.align.bulletin.BulletinStore` of one party."""

    def __init__(self, hall, party, calls_left=None):
        self._hall = hall
        self._party = party
        self._calls_left = calls_left
        self.posted = []

    def post(self, message, to="", about=""):
        self._spend()
        raw = encode_alignment(message)
        with self._hall.changed:
            self._hall.board.post(self._party, to, about, raw)
            self._hall.changed.notify_all()
        self.posted.append((kind_of(type(message)), to, about, raw))

    def fetch(self, kind, sender, about=""):
        self._spend()
        deadline = time.monotonic() + self._hall.peer_timeout
        asked = (self._party, kind_of(kind), sender, about)
        with self._hall.changed:
            while (raw := self._hall.board.fetch(*asked)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    names = ", ".join(repr(name) for name in self._hall.board.waits_for(*asked))
                    raise PeerTimeout(f"party {self._party!r} waited {self._hall.peer_timeout:g} s for {names}")
                self._hall.changed.wait(left)
        return decode_alignment(raw)

    def _spend(self):
        if self._calls_left is not None:
            if self._calls_left == 0:
                raise Stopped
            self._calls_left -= 1


def take_part(line, run, party, ids, disk, credentials=None, key_file=None):
    """All that a party does; gives the alignment and the key."""
    secrets = Secrets.load_or_make(disk, run, party, credentials)
    key = agree(line, run, party, secrets, credentials, key_file)
    return align(line, run, party, ids, key, secrets), key


def all_together(run, ids, hall=None, credentials=None, disks=None, key_files=None):
    """Every party in a thread of its own; gives what each found, or raises the first error in the run's order."""
    hall = hall or Hall(run)
    disks = disks or {party: MemoryDisk() for party in run.parties}
    with ThreadPoolExecutor(len(run.parties)) as threads:
        work = {
            party: threads.submit(
                take_part,
                hall.line(party),
                run,
                party,
                ids[party],
                disks[party],
                (credentials or {}).get(party),
                (key_files or {}).get(party),
            )
            for party in run.parties
        }
    return {party: each.result() for party, each in work.items()}
