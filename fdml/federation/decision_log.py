"""A party's decisions on runs, in a file that only grows: one JSON object a line, chained by hash and signed.

Every line holds the hash of the line before it and a signature of the party's key, so a line that was changed, taken
out or put in is found. The end of the file is not protected: lines that were cut off there are not missed. A log is of
one key: with a new one the old log is put aside, and the new one begins with the hash of its last line. So the old one
cannot be changed, cut or removed either.
"""

from __future__ import annotations

import datetime
import hashlib
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import count, takewhile
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from fdml.errors import StateCorrupt
from fdml.protocol.certificates import fingerprint_of, utc_now
from fdml.storage.atomic import sync
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import shared_turns

LOG = "log.jsonl"
FOLDER = "decisions"
"""The folder of the log in a party's folder."""
_FIRST = "0" * 64
"""What the first line has in place of the hash of a line before it."""

Choice = Literal["waits", "accepted", "refused", "stopped"]


@dataclass(frozen=True)
class Decision:
    """One line: what was decided on which run, by whom and why."""

    run: str
    run_hash: str
    """Of all its settings, in hex: another run of the same name is another run."""
    starter: str
    choice: Choice
    by: Literal["policy", "person", "server"]
    """The server tells that another party has ended a run."""
    rule: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Entry:
    """A decision with its place in the log."""

    decision: Decision
    number: int
    time: str
    key: str
    """The fingerprint of the key that has signed; empty on plain lines."""
    before: str
    """The hash of the line before."""
    signature: str = ""

    @property
    def signed(self) -> bytes:
        """What the signature stands for."""
        return _line(replace(self, signature=""))


class DecisionLog:
    """The log of one party. `key` signs; None is a party on plain lines, whose log is chained only."""

    def __init__(
        self,
        folder: Path,
        key: ec.EllipticCurvePrivateKey | None,
        now: Callable[[], datetime.datetime] = utc_now,
    ) -> None:
        self._folder = folder
        self._key = key
        self._now = now

    def append(self, decision: Decision) -> Entry:
        """Add a line; durable on return. A line that a crash has torn is cut off first."""
        with shared_turns(self._folder):
            whole = self._whole()
            lines, known = whole.splitlines(), self.read()  # so that nothing wrong is signed over
            before = _hash(lines[-1]) if lines else self._end_of_older()
            if lines and not known:
                self._put_aside()
            entry = Entry(decision, len(known) + 1, self._now().isoformat(timespec="seconds"), self._own, before)
            if self._key is not None:
                entry = replace(entry, signature=self._key.sign(entry.signed, ec.ECDSA(hashes.SHA256())).hex())
            with closing(FolderDisk(self._folder)) as disk:
                if self.path.exists():
                    disk.truncate(LOG, len(whole))
                disk.append(LOG, _line(entry) + b"\n")
        return entry

    def read(self) -> list[Entry]:
        """All lines, checked; raises `StateCorrupt` with the number of the first that does not hold."""
        whole = self._whole()
        lines = whole.splitlines()
        if not lines or self._own not in {_read(line, number).key for number, line in enumerate(lines, 1)}:
            return []  # of another key
        entries = verified(whole, self._public)
        if entries[0].before != self._end_of_older():
            raise _broken(1, "the log of an older key from which it follows is missing, was changed or cut")
        return entries

    def older(self) -> list[Entry]:
        """All lines of logs of older keys, whose chain is checked: the first line of the newer log signs for it."""
        entries: list[Entry] = []
        before = _FIRST
        for path in self._older_logs():
            lines = _whole(path.read_bytes()).splitlines()
            for number, line in enumerate(lines, 1):
                entry = _read(line, number, path.name)
                if (entry.number, entry.before) != (number, before):
                    raise _broken(number, "it does not follow from the line before it", path.name)
                entries.append(entry)
                before = _hash(line)
        return entries

    def _end_of_older(self) -> str:
        """The hash of the last line of the logs of older keys."""
        entries = self.older()
        return _hash(_line(entries[-1])) if entries else _FIRST

    def _older_logs(self) -> list[Path]:
        numbers = takewhile(lambda number: self._older_log(number).exists(), count(1))
        return [self._older_log(number) for number in numbers]

    def _older_log(self, number: int) -> Path:
        return self._folder / f"log-{number}.jsonl"

    @property
    def path(self) -> Path:
        """The file."""
        return self._folder / LOG

    @property
    def _public(self) -> ec.EllipticCurvePublicKey | None:
        return None if self._key is None else self._key.public_key()

    @property
    def _own(self) -> str:
        return "" if self._public is None else fingerprint_of(self._public)

    def _whole(self) -> bytes:
        """All whole lines, without what a crash has torn."""
        try:
            return _whole(self.path.read_bytes())
        except FileNotFoundError:
            return b""

    def _put_aside(self) -> None:
        self.path.rename(self._older_log(len(self._older_logs()) + 1))
        sync(self._folder)


def latest(entries: list[Entry]) -> dict[tuple[str, str], Decision]:
    """The last decision on every run, by its name and hash."""
    return {(each.decision.run, each.decision.run_hash): each.decision for each in entries}


def verified(raw: bytes, key: ec.EllipticCurvePublicKey | None) -> list[Entry]:
    """All whole lines of a log, or `StateCorrupt` with the first line that does not hold.

    Without a key the chain alone is checked. The first line may follow from the last one of an older key's log.
    """
    entries: list[Entry] = []
    before = None
    own = "" if key is None else fingerprint_of(key)
    for number, line in enumerate(_whole(raw).splitlines(), 1):
        entry = _read(line, number)
        follows = before is None or entry.before == before
        if entry.number != number or not follows or _line(entry) != line:
            raise _broken(number, "it does not follow from the line before it")
        if entry.key != own or (key is not None and not _is_signed(entry, key)):
            raise _broken(number, "its signature is not of this party's key")
        entries.append(entry)
        before = _hash(line)
    return entries


def _is_signed(entry: Entry, key: ec.EllipticCurvePublicKey) -> bool:
    try:
        key.verify(bytes.fromhex(entry.signature), entry.signed, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        return False
    return True


def _whole(raw: bytes) -> bytes:
    """Without a last line that a crash has torn."""
    return raw[: raw.rfind(b"\n") + 1]


def _line(entry: Entry) -> bytes:
    facts = {**asdict(entry.decision), **{name: value for name, value in vars(entry).items() if name != "decision"}}
    return json.dumps(facts, sort_keys=True).encode()


def _read(line: bytes, number: int, file: str = LOG) -> Entry:
    try:
        facts: Mapping[str, Any] = json.loads(line)
        own = {name: facts[name] for name in ("number", "time", "key", "before", "signature")}
        return Entry(Decision(**{name: value for name, value in facts.items() if name not in own}), **own)
    except (ValueError, TypeError, KeyError):
        raise _broken(number, "it is no decision", file) from None


def _hash(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()


def _broken(number: int, why: str, file: str = LOG) -> StateCorrupt:
    which = "" if file == LOG else f"in {file} "
    return StateCorrupt(
        f"line {number} of the log of decisions does not hold: {which}{why}; someone has changed the file: bring it "
        f"back from a backup, or move it away and decide anew"
    )
