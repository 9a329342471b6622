"""The pairwise logistic loss of rows in groups, and what the label party keeps to compute it block by block.

A pair is two rows of one group with different labels; its loss is log(1 + exp(-m)), where m is the score of the
positive row less that of the negative one. A pair in a group of n rows counts 1 / (n - 1): so the gradient of a row is
never beyond -1 and 1, and does not depend on how many rows of its group have which label.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fdml.errors import DataError
from fdml.models.loss_protocol import Floats
from fdml.models.ranking import kernel


class RowPairs:
    """All pairs of some rows, by the number of each row's group and its label, 0 or 1."""

    def __init__(self, groups: NDArray[np.int64], labels: Floats) -> None:
        _, self._group_of = np.unique(groups, return_inverse=True)
        self._labels = np.ascontiguousarray(labels, np.float64)
        self._members = np.argsort(self._group_of, kind="stable")
        self._bounds = np.concatenate([[0], np.cumsum(np.bincount(self._group_of))]).astype(np.int64)

    def compare(self, scores: Floats, start: int, stop: int) -> tuple[Floats, Floats]:
        """The gradient `(rows, 1)` and the loss of the rows from `start` to `stop`, where all rows have these scores.

        A row's score is NaN where it is not known; such a row is in no pair.
        """
        pulls, losses = np.zeros(stop - start), np.zeros(stop - start)
        kernel.compare(
            np.ascontiguousarray(scores, np.float64), self._labels, self._group_of, self._members, self._bounds, start,
            pulls, losses,
        )  # fmt: skip
        return pulls[:, None], losses


def pair_losses(groups: NDArray[np.int64] | None, score: Floats, labels: Floats) -> Floats:
    """Each row's part of the pairwise loss: half of that of its pairs."""
    if groups is None:
        raise DataError('loss "pairwise" compares rows of a group, and these rows have no groups; set data.group')
    return RowPairs(groups, labels).compare(score[:, 0], 0, len(labels))[1]


class GroupTotals:
    """The last total of every training row at the label party.

    Rows are shuffled, so a block holds few rows of a group. Its rows are compared with all rows of their groups: with
    those of the block at the totals that came with it, with the others at their last ones, of at most an epoch ago.
    """

    def __init__(self, groups: NDArray[np.int64], labels: Floats) -> None:
        self._pairs = RowPairs(groups, labels)
        self.scores = np.full(len(labels), np.nan)
        """NaN of rows that no total has come of yet."""
        self.loss = 0.0
        """Of the rows of the last block, summed."""

    def gradient(self, start: int, total: Floats) -> Floats:
        """dLoss/dtotal of the block from row `start` on, `(rows, 1)`."""
        stop = start + len(total)
        self.scores[start:stop] = total[:, 0]
        found, losses = self._pairs.compare(self.scores, start, stop)
        self.loss = float(losses.sum())
        return found

    def restore(self, scores: Floats) -> None:
        """Become the one that had these scores."""
        self.scores = np.array(scores, np.float64)
