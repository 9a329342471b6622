"""A twin of the paper's app store data, which is not public.

Three apps know the same users: a store that also knows what was downloaded, a
browser and a guard. As in the paper they have 7,000 and 1,700 sparse features, and
training alone, joint and pooled, with LR and with an NN, comes near the figures of
its Table 1; `generator` says what makes the difference.

Row i depends on the seed and i alone, so fewer rows are the first of more. After
every 50 rows that all parties hold, each has one that the others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import SparseRows, take
from fdml.data.samples.app_store.features import View
from fdml.data.samples.app_store.files import ArchiveWriter
from fdml.data.samples.app_store.generator import CHUNK, FACTORS, people
from fdml.errors import SettingsError
from fdml.protocol.shuffle import permutation

PARTIES = tuple(FACTORS)
"""The first holds the labels."""
FEWEST = 1000
"""Of fewer rows hardly any is positive."""
_SHARED = 50
_ROUND = _SHARED + len(PARTIES)
"""Rows that all hold, then one of each party's own."""
SHARED_PER_CHUNK = CHUNK // _ROUND * _SHARED
_MILLION = 1_000_000

Progress = Callable[[], None]
"""Called whenever a step of `AppStore.steps` is done."""


class Part(NamedTuple):
    """Rows of one party."""

    rows: SparseRows
    ids: NDArray[np.int64]
    """User and app, `(rows, 2)`."""
    labels: NDArray[np.int8]
    numbers: NDArray[np.int64]
    """Which of the shared rows each is; -1 if the others do not have it."""
    tests: NDArray[np.bool_]
    """Which of them are for testing."""

    def take(self, index: NDArray[np.int64]) -> Part:
        """The rows at these places, in this order."""
        rows = take(self.rows, index)
        if not isinstance(rows, SparseRows):
            raise AssertionError("sparse rows stay sparse")
        return Part(rows, self.ids[index], self.labels[index], self.numbers[index], self.tests[index])


@dataclass(frozen=True)
class AppStore:
    """So many rows that all parties hold, and each party's own."""

    rows: int
    seed: int = 7
    test_share: float = 0.1

    def __post_init__(self) -> None:
        """Raise unless there is something to train on and to test on."""
        if self.rows < FEWEST:
            raise SettingsError(f"{self.rows} rows are too few for 2.3 % to be positive; ask for {FEWEST} or more")
        if not 0.001 <= self.test_share <= 0.9:
            raise SettingsError(f"the test share is {self.test_share:g}; give a share from 0.001 to 0.9, 0.1 for one")

    @property
    def chunks(self) -> int:
        """How many chunks the rows are drawn in."""
        return -(-self.rows // SHARED_PER_CHUNK)

    @property
    def steps(self) -> int:
        """How often `write` calls `progress`."""
        return self.chunks * len(PARTIES)

    def part(self, party: str, chunk: int) -> Part:
        """What a party holds of a chunk, in the order of the rows' numbers."""
        round_, seat = np.divmod(chunk * CHUNK + np.arange(CHUNK), _ROUND)
        shared = seat < _SHARED
        numbers = np.where(shared, round_ * _SHARED + seat, -1)
        own = (seat == _SHARED + PARTIES.index(party)) & ((round_ + 1) * _SHARED <= self.rows)
        tests = self._are_tests(np.where(shared, numbers, round_))
        drawn = people(self.seed, chunk)
        features = _view(party).rows(drawn.factors, self.seed, chunk)
        whole = Part(features, drawn.ids, drawn.labels, numbers, tests)
        return whole.take(np.flatnonzero((shared & (numbers < self.rows)) | own))

    def write(self, folder: Path, progress: Progress = lambda: None) -> None:
        """Write `train.npz` and `test.npz` of every party into a folder of its name; each has an order of its own."""
        for party in PARTIES:
            home = folder / party
            home.mkdir(parents=True)
            width = _view(party).width
            with ArchiveWriter(home / "train.npz", width) as train, ArchiveWriter(home / "test.npz", width) as test:
                for mixed in self._mixed(party):
                    for writer, chosen in ((train, ~mixed.tests), (test, mixed.tests)):
                        _add(writer, mixed.take(np.flatnonzero(chosen)), labelled=party == PARTIES[0])
                    progress()

    def _mixed(self, party: str) -> Iterator[Part]:
        """All a party holds, chunks and the rows of each in an order that only this party has."""
        for chunk in permutation(self.chunks, self.seed, "chunks of", party):
            found = self.part(party, int(chunk))
            yield found.take(permutation(len(found.labels), self.seed, "rows of", party, int(chunk)))

    def _are_tests(self, numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Of any first so many rows just the test share, to a whole row."""
        millionths = round(self.test_share * _MILLION)
        before, after = (each * millionths // _MILLION for each in (numbers, numbers + 1))
        return after > before


@cache
def _view(party: str) -> View:
    return View(party)


def _add(writer: ArchiveWriter, part: Part, *, labelled: bool) -> None:
    if labelled:
        writer.add(part.rows, ids=part.ids, y=part.labels)
    else:
        writer.add(part.rows, ids=part.ids)
