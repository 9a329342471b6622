"""The board's twin without a network: parties are threads around one board, which may die and come back."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from fdml.align.keys import agree
from fdml.align.secrets import Secrets
from fdml.align.session import align
from fdml.errors import WaitedTooLong
from fdml.exchange.notice_wire import decode_notice, encode_notice, kind_of
from fdml.server.board import Board
from tests.data.memory_disk import MemoryDisk


class Stopped(Exception):
    """A party was killed at this point."""


class Hall:
    """One server board and all who stand before it."""

    def __init__(self, run, disk=None, patience=20.0):
        self.disk = MemoryDisk() if disk is None else disk
        self.board = Board.open(run.parties, run.align, self.disk)
        self.patience = patience
        self.changed = threading.Condition()

    def line(self, party, calls_left=None):
        """One party's view of the board; it is killed before its call number `calls_left`."""
        return Line(self, party, calls_left)


class Line:
    """A `fdml.exchange.board.Board` of one party."""

    def __init__(self, hall, party, calls_left=None):
        self._hall = hall
        self._party = party
        self._calls_left = calls_left
        self.posted = []

    def post(self, notice, to="", about=""):
        self._spend()
        raw = encode_notice(notice)
        with self._hall.changed:
            self._hall.board.post(self._party, to, about, raw)
            self._hall.changed.notify_all()
        self.posted.append((kind_of(type(notice)), to, about, raw))

    def fetch(self, kind, sender, about=""):
        self._spend()
        deadline = time.monotonic() + self._hall.patience
        asked = (self._party, kind_of(kind), sender, about)
        with self._hall.changed:
            while (raw := self._hall.board.fetch(*asked)) is None:
                left = deadline - time.monotonic()
                if left <= 0:
                    names = ", ".join(repr(name) for name in self._hall.board.waits_for(*asked))
                    raise WaitedTooLong(f"party {self._party!r} waited {self._hall.patience:g} s for {names}")
                self._hall.changed.wait(left)
        return decode_notice(raw)

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
