"""A party's rows in the run's order: found once with the other parties, then kept beside its saved state."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.align.group_key import GroupKey, agree
from fdml.align.matching import PartyIds, align
from fdml.align.party_secrets import Secrets
from fdml.data.block_store import fingerprint, open_blocks, write_blocks
from fdml.data.encoders import AnyEncoder, encoder_from_json
from fdml.data.ids import IdCounts
from fdml.data.rows import Rows, span
from fdml.data.sources import Source, open_sources
from fdml.errors import AlignmentError, DataError, LabelError, StateCorrupt
from fdml.settings import PartySettings, RunSettings, run_hash
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_bulletin import GrpcBulletin
from fdml.transport.grpc_channel import Endpoint

_STORED = "alignment"
_ENCODER = "encoder.json"


@dataclass(frozen=True)
class AlignmentReport:
    """What aligning found, for people and for `--json`."""

    mode: str
    rows: Mapping[str, int]
    """Of every party's training file, the rows it brought."""
    shared: int
    """Rows that all parties hold."""
    train: int
    held_out: int
    seconds: float
    bytes_sent: int
    bytes_received: int
    ids: tuple[IdCounts, ...] = ()
    """What was found among this party's ids, of each file."""
    warning: str = ""

    def remarks(self) -> list[str]:
        """Remarks on the shared rows: every row that was left out is counted, and why."""
        said = []
        for file, ids in zip(("data.path", "data.test_path"), self.ids, strict=False):
            said += _rows_named(file, ids.missing, "without an id", ids.missing_at)
            said += _rows_named(file, ids.repeated, "with a duplicate id", ids.repeated_at)
            if ids.dropped:
                said.append(f"{file}: {ids.dropped:,} rows were left out for that")
        return [*said, f"warning: {self.warning}"] if self.warning else said


def _rows_named(file: str, count: int, what: str, examples: Sequence[int]) -> list[str]:
    if not count:
        return []
    more = ", ..." if count > len(examples) else ""
    return [f"{file}: {count:,} rows {what} (data rows {', '.join(map(str, examples))}{more})"]


@dataclass(frozen=True)
class SharedRows:
    """Which rows of this party's files the run uses, in the run's order."""

    train: NDArray[np.int64]
    """Numbers of rows in the training file."""
    held_out: NDArray[np.int64]
    """In the test file, or in the training file where there is none."""
    digest: bytes
    key: GroupKey
    report: AlignmentReport


class PartyFiles:
    """A party's files; they are opened only when something of them is needed, as that may mean to read them once."""

    def __init__(self, party: PartySettings, run: RunSettings) -> None:
        self._party = party
        self._run = run
        self.paths = [path for path in (party.data.path, party.data.test_path) if path is not None]
        for path in self.paths:
            if not path.is_file():
                raise DataError(f"there is no file {str(path)!r}; correct data.path or data.test_path")

    @cached_property
    def sources(self) -> list[Source]:
        """Of the training file, and of the test file if there is one."""
        sources = open_sources(self._party.data)
        name = self._party.party
        if name != self._run.label_party and not sources[0].names:
            raise DataError(f"party {name!r} has no features; only the label party may have none")
        if name == self._run.label_party and any(source.labels() is None for source in sources):
            raise LabelError(f"label party {name!r} has no labels; set data.label to its label column")
        return sources

    def fingerprint(self) -> str:
        """Equal if the files are, and the settings by which they are read."""
        told = self._party.data.model_copy(update={"path": Path(), "test_path": None}).model_dump_json()
        return fingerprint(self.paths, told).hex()


@dataclass(frozen=True)
class AlignedData:
    """A party's features in the run's order, mapped from disk, and how they were found."""

    found: SharedRows
    train: Rows
    held_out: Rows
    files: PartyFiles
    encoder: AnyEncoder
    """The encoder that made the features; stored with them, so that it is theirs even if the file changes later."""

    def labels(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The labels of training and held-out rows as the files have them."""
        train, test = self.files.sources[0].labels(), self.files.sources[-1].labels()
        if train is None or test is None:
            raise LabelError("the label party has no labels; set data.label to its label column")
        return train[self.found.train], test[self.found.held_out]

    def weights(self) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """Their weights; None where the file has none."""
        train, test = self.files.sources[0].weights(), self.files.sources[-1].weights()
        return None if train is None else train[self.found.train], None if test is None else test[self.found.held_out]


class Aligner:
    """Aligns one party's rows, or takes up what was found before."""

    def __init__(self, home: Path, party: PartySettings, run: RunSettings, say: Callable[[str], None]) -> None:
        self._home = home / "state"
        self._disk = FolderDisk(self._home)
        self._party = party
        self._run = run
        self._say = say
        self._files = PartyFiles(party, run)
        self._facts = {"run.toml": run_hash(run).hex(), "data": self._files.fingerprint()}

    def forget(self) -> None:
        """Start over."""
        self._disk.remove(_STORED)
        self._disk.remove(_ENCODER)
        Secrets.forget(self._disk)

    def aligned(self, address: Endpoint) -> AlignedData:
        """The party's rows in the run's order."""
        before = self.aligned_before()
        if before is not None:
            self._say("the rows were aligned before")
            return before
        found = self._align(address)
        self._store(found)
        return self._opened(found)

    def aligned_before(self) -> AlignedData | None:
        """The same if they were found before; asks nobody."""
        found = self._stored()
        return None if found is None else self._opened(found)

    def _align(self, address: Endpoint) -> SharedRows:
        sources = self._files.sources
        self._say(f"looking for the rows that {', '.join(self._run.parties)} share")
        began = time.monotonic()
        ids = [source.ids() for source in sources]
        secrets = Secrets.load_or_make(self._disk, self._run, self._party.party, address.credentials)
        board = GrpcBulletin(address, run_hash(self._run), self._run.training.peer_timeout_seconds, self._say)
        try:
            key = agree(board, self._run, self._party.party, secrets, address.credentials, self._party.group_key)
            given = PartyIds.of(ids, [source.count for source in sources])
            result = align(board, self._run, self._party.party, given, key, secrets)
        finally:
            board.close()
        kept = [
            np.arange(source.count) if each is None else each.rows for source, each in zip(sources, ids, strict=True)
        ]
        report = AlignmentReport(
            self._run.align,
            result.counts,
            result.shared,
            len(result.train),
            len(result.held_out),
            time.monotonic() - began,
            board.bytes_sent,
            board.bytes_received,
            tuple(each.counts for each in ids if each is not None),
            result.warning,
        )
        self._say(f"{result.shared:,} rows are shared by all, {len(result.train):,} of them to train on")
        return SharedRows(kept[0][result.train], kept[-1][result.held_out], result.digest, key, report)

    def _opened(self, found: SharedRows) -> AlignedData:
        """The features in the run's order; written once, then only mapped."""
        rows, held_out = len(found.train), len(found.held_out)
        if len(self._files.paths) == 1:
            (whole,) = self._blocks([np.concatenate([found.train, found.held_out])])
            parts = span(whole, 0, rows), span(whole, rows, rows + held_out)
        else:
            train, test = self._blocks([found.train, found.held_out])
            parts = train, test
        return AlignedData(found, *parts, self._files, self._stored_encoder())

    def _blocks(self, orders: Sequence[NDArray[np.int64]]) -> list[Rows]:
        """The features of these rows of each file in this order, from the store; others in the store are removed."""
        store = self._home / "blocks"
        store.mkdir(exist_ok=True)
        folders = []
        for number, order in enumerate(orders):
            name = hashlib.blake2b(self._facts["data"].encode() + order.tobytes(), digest_size=8)
            folders.append(store / f"{number}-{name.hexdigest()}")
            if not folders[-1].exists():
                source = self._files.sources[number]
                places = np.full(source.count, -1, np.int64)
                places[order] = np.arange(len(order))
                write_blocks(folders[-1], source.chunks(), places, len(order), len(source.names))
        for other in set(store.iterdir()) - set(folders):
            shutil.rmtree(other)
        return [open_blocks(folder) for folder in folders]

    def _stored_encoder(self) -> AnyEncoder:
        text = self._disk.read(_ENCODER)
        if text is None:
            raise StateCorrupt(f"there is no {str(self._home / _ENCODER)!r}; align again with `fdml align --fresh`")
        return encoder_from_json(text)

    def _store(self, found: SharedRows) -> None:
        self._disk.replace(_ENCODER, self._files.sources[0].encoder.to_json().encode())
        report = asdict(found.report)
        facts = {"facts": self._facts, "digest": found.digest.hex(), "key": found.key.secret.hex(), "report": report}
        buffer = io.BytesIO()
        np.savez(
            buffer,
            allow_pickle=False,
            facts=np.array(json.dumps(facts)),
            train=found.train,
            held_out=found.held_out,
        )
        self._disk.replace(_STORED, buffer.getvalue())

    def _stored(self) -> SharedRows | None:
        """What was found before, if the files and settings are still the same."""
        raw = self._disk.read(_STORED)
        if raw is None:
            return None
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            arrays = dict(archive)
        facts = json.loads(str(arrays["facts"]))
        if facts["facts"]["run.toml"] != self._facts["run.toml"]:
            raise StateCorrupt("the saved state belongs to another run.toml; put it back, or start over with --fresh")
        if facts["facts"]["data"] != self._facts["data"]:
            raise AlignmentError(
                f"the data of party {self._party.party!r} has changed since its rows were aligned: "
                f"{str(self._party.data.path)!r} or the [data] settings are not what they were; put them back, or "
                f"start over at every side with --fresh"
            )
        report = {**facts["report"], "ids": tuple(IdCounts(**each) for each in facts["report"]["ids"])}
        return SharedRows(
            arrays["train"],
            arrays["held_out"],
            bytes.fromhex(facts["digest"]),
            GroupKey(bytes.fromhex(facts["key"])),
            AlignmentReport(**report),
        )


def found_rows(home: Path) -> NDArray[np.int64]:
    """The rows of a party's training file that its run trained on, in the run's order; `home` is the party's folder."""
    raw = FolderDisk(home / "state").read(_STORED)
    if raw is None:
        raise AlignmentError(f"the party in {str(home)!r} has not aligned its rows; run `fdml align` first")
    with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
        rows: NDArray[np.int64] = archive["train"]
    return rows
