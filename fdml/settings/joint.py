"""The joint function of a run: how the sum of all parties' local predictions becomes a score."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from fdml.errors import SettingsError
from fdml.settings.file import Settings

JointName = Literal["sum", "fm", "head"]
_VECTOR: dict[JointName, int] = {"sum": 0, "fm": 8, "head": 16}
"""Numbers that travel beside each row's own scores, where `joint_width` is not set."""


class JointSettings(Settings):
    """Whether features of different parties may interact, and how many numbers that takes."""

    joint: JointName = "sum"
    """What the loss sees of the sum of all local predictions. "sum": the sum itself, so every party's features count
    by themselves. "fm": every party sends a vector besides, and products of the parties' vectors count, too. "head": a
    small network reads the sum of such vectors; every party holds the same copy of it."""
    joint_width: PositiveInt | None = None
    """Numbers of the vector that a party sends besides its score: of "fm" for each score, of "head" in all. None is 8
    for "fm" and 16 for "head"."""
    head_units: PositiveInt = 32
    """Hidden units of the network of "head"."""

    @property
    def vector(self) -> int:
        """Numbers of the vector; 0 for a sum."""
        return _VECTOR[self.joint] if self.joint_width is None else self.joint_width


SUM = JointSettings()


def prediction_floats(training: JointSettings, scores: int) -> int:
    """How many floats a local prediction has where the loss takes `scores` scores of each row."""
    if training.joint == "fm":
        return scores * (1 + training.vector)
    return scores + training.vector


def scores_in(training: JointSettings, width: int) -> int:
    """How many scores the loss takes of each row where a local prediction has `width` floats."""
    return width // (1 + training.vector) if training.joint == "fm" else width - training.vector


def check_joint(training: JointSettings, *, staleness: int, labels: str) -> None:
    """Raise where a joint function cannot be trained with the rest of the run's settings."""
    if training.joint == "sum":
        if training.joint_width is not None:
            raise SettingsError(
                f"training.joint_width is {training.joint_width}, and a sum has no vector; set training.joint to "
                f'"fm" or "head", or leave joint_width out'
            )
        return
    if labels == "private":
        raise SettingsError(
            f'training.joint = "{training.joint}" needs the labels and totals at every party, and labels = "private" '
            f'gives them gradients of a sum alone; set labels = "shared", or training.joint = "sum"'
        )
    if training.joint == "head" and staleness > 0:
        raise SettingsError(
            f'training.joint = "head" needs totals that are the same at every party, and staleness = '
            f'{staleness} gives each its own; set staleness = 0, or training.joint = "fm"'
        )
