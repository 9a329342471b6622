"""Private labels as they are shown: each row's answer follows from its id, its label and a secret that outlives runs.

So every run shows the same answer of a row to the same question, and a further run tells nothing new. A question is
the label column, its classes and the epsilon; another question is answered independently, and the epsilons add up. A
label that has changed is answered independently too: two answers that agree do not tell whether it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from fdml.data.id_hashes import hash_ids
from fdml.data.label_encoding import LabelEncoding
from fdml.party.alignment import RowIds
from fdml.privacy.noise import NoiseKey
from fdml.privacy.randomised_response import DRAW_BYTES, draws_of, randomised
from fdml.settings import PrivacySettings

Labels = NDArray[np.float64]


@dataclass(frozen=True)
class LabelFlips:
    """How a label party randomises its labels."""

    secret: NoiseKey
    column: str = ""
    """The label's name in the party's file."""
    rows: str = ""
    """Which file the rows are numbered in, where they have no ids: in another file the numbers mean other rows."""

    def question(self, epsilon: float, classes: int, encoding: LabelEncoding | None) -> str:
        """What an answer is an answer to: the same text means the same answers."""
        known = None if encoding is None or encoding.classes is None else encoding.classes.tolist()
        return json.dumps([self.column, self.rows, epsilon, classes if known is None else known])

    def shown(self, labels: Labels, ids: pa.LargeStringArray, epsilon: float, *, classes: int, question: str) -> Labels:
        """The answers of rows with these ids, whose true class numbers are `labels`."""
        answers = np.zeros_like(labels)
        for each in range(classes):
            mine = np.flatnonzero(labels == each)
            key = self.secret.bound(b"label", question.encode(), str(each).encode()).secret
            draws = draws_of(hash_ids(ids.take(pa.array(mine)), key, DRAW_BYTES))
            answers[mine] = randomised(labels[mine], classes, epsilon, draws)
        return answers


def shown_labels(
    labels: Labels,
    privacy: PrivacySettings,
    flips: LabelFlips,
    *,
    classes: int,
    encoding: LabelEncoding | None,
    ids: Callable[[], pa.LargeStringArray],
) -> Labels:
    """What training uses: private labels are randomised, unless that is switched off."""
    epsilon = privacy.label_epsilon
    if privacy.labels == "shared" or epsilon == "off":
        return labels
    classes = max(classes, 2)
    question = flips.question(epsilon, classes, encoding)
    return flips.shown(labels, ids(), epsilon, classes=classes, question=question)


def training_ids(own: RowIds, train: NDArray[np.int64]) -> pa.LargeStringArray:
    """The ids of these rows of the training file; without ids their numbers in it, which must then stay theirs."""
    if own.ids.train is None:
        return pa.array([f"row {row}" for row in train.tolist()], pa.large_string())
    return own.ids.train.take(pa.array(np.searchsorted(own.train_rows, train)))
