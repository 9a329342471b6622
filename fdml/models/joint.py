"""Joint functions: how the total of all parties' local predictions becomes the scores that a loss takes."""

from __future__ import annotations

from typing import ClassVar, Protocol

from fdml.models.losses import Floats


class JointFunction(Protocol):
    """From totals `(rows, width)` to scores `(rows, scores)`, and from gradients of scores back to those of totals."""

    is_identity: ClassVar[bool]
    """Whether the total is the score itself: kernels then have the loss in their own loops."""

    def width(self, scores: int) -> int:
        """How many floats a local prediction has where the loss takes `scores` scores."""
        ...

    def score(self, total: Floats) -> Floats:
        """The scores of each row."""
        ...

    def gradient(self, total: Floats, of_score: Floats) -> Floats:
        """dLoss/dtotal, given dLoss/dscore of the same rows."""
        ...


class Sum:
    """The total is the score, as in the paper."""

    is_identity: ClassVar[bool] = True

    def width(self, scores: int) -> int:
        """One float for each score."""
        return scores

    def score(self, total: Floats) -> Floats:
        """The total itself."""
        return total

    def gradient(self, total: Floats, of_score: Floats) -> Floats:  # noqa: ARG002 (others need the total)
        """The gradient of the score itself."""
        return of_score


SUM = Sum()
