"""The answers to a question: a score for every row that was asked for, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.models.losses import Floats
from fdml.serving.reading import ScoreReading, predictions_of, probabilities_of
from fdml.settings import RunSettings

UNKNOWN = "unknown id"


@dataclass(frozen=True, eq=False)
class Answers:
    """Of some rows, in the order in which they were asked for."""

    run: RunSettings
    version: str
    score: Floats
    """`(rows, scores)`, calibrated; NaN where a row has none."""
    lacks: NDArray[np.bool_]
    """`(rows, parties)`, in the run's order: whether a party's part is not in the score."""
    absent: Mapping[str, str]
    """By party that has not answered at all: why."""
    reading: ScoreReading | None
    """How scores are read; None where the label party has never said."""
    asked: NDArray[np.bool_] | None = None
    """Whether the others were asked for a row, or the asker was sure alone; None where all rows are asked."""

    def __len__(self) -> int:
        return len(self.score)

    def part(self, first: int, last: int) -> Answers:
        """The answers of some of the rows."""
        asked = None if self.asked is None else self.asked[first:last]
        return replace(self, score=self.score[first:last], lacks=self.lacks[first:last], asked=asked)

    @property
    def missed(self) -> NDArray[np.bool_]:
        """As `lacks`, but of rows for which the others were asked: whose part was wanted and is not in the score."""
        return self.lacks if self.asked is None else self.lacks & self.asked[:, None]

    @property
    def has_score(self) -> NDArray[np.bool_]:
        """Whether a row has a score."""
        has: NDArray[np.bool_] = ~np.logical_or.reduce(np.isnan(self.score), axis=1)
        return has

    @property
    def probability(self) -> NDArray[np.float64] | None:
        """Of class 1, or of each class; None where the loss gives none."""
        return probabilities_of(self.run, self.score)

    @property
    def prediction(self) -> NDArray[Any] | None:
        """The class or the value of each row; of rows without a score it means nothing."""
        return None if self.reading is None else predictions_of(self.run, self.score, self.reading.labels)

    def patterns(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """The different rows of `lacks`, and which of them each row has; of a row that was not asked for, one more
        place is true."""
        if self.asked is None:
            return row_patterns(self.lacks)
        return row_patterns(np.column_stack([self.lacks, ~self.asked]))

    def answered_text(self, lacking: NDArray[np.bool_]) -> str:
        """The parties whose parts are in a score."""
        return ",".join(name for name, lacks in zip(self.run.parties, lacking, strict=False) if not lacks)

    def missing_text(self, lacking: NDArray[np.bool_]) -> str:
        """The parties whose parts are missed; nobody's where the others were not asked."""
        return ",".join(self._missed(lacking))

    def _missed(self, lacking: NDArray[np.bool_]) -> list[str]:
        parties = self.run.parties
        if len(lacking) > len(parties) and lacking[-1]:
            return []
        return [name for name, lacks in zip(parties, lacking, strict=False) if lacks]

    def why_text(self, lacking: NDArray[np.bool_]) -> str:
        """Why each of those is not."""
        names = self._missed(lacking)
        return "; ".join(f"{name}: {self.absent.get(name, UNKNOWN)}" for name in names)

    def with_asked(self, others: Answers) -> Answers:
        """These answers of the asker alone, with the others' answers for the rows that were `asked`."""
        if self.asked is None:
            return others
        score, lacks = self.score.copy(), self.lacks.copy()
        score[self.asked], lacks[self.asked] = others.score, others.lacks
        return replace(self, score=score, lacks=lacks, absent=others.absent)


def row_patterns(rows: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """The different rows of a matrix, and which of them each row is; rows are compared as bytes."""
    packed = np.packbits(rows, axis=1)
    wide = np.zeros((len(rows), -(-packed.shape[1] // 8) * 8), np.uint8)
    wide[:, : packed.shape[1]] = packed
    words = wide.view(np.uint64)
    if words.shape[1] == 1:
        _, first, which = np.unique(words[:, 0], return_index=True, return_inverse=True)
    else:
        _, first, which = np.unique(words, axis=0, return_index=True, return_inverse=True)
    return rows[first], which.reshape(-1).astype(np.int64)
