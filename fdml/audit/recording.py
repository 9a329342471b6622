"""A run as it was seen: all that travelled, and the truth that attacks are evaluated against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import PlainRows
from fdml.models.model import Model
from fdml.models.objective import Objective
from fdml.privacy.ledger import Mechanism
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.fixed_point import FixedPoint, grid_of
from fdml.protocol.messages import Finished, Gradient, HeldOutPredictions, Push, SealedMetrics
from fdml.protocol.schedule import Schedule
from fdml.settings import AgreedTraining, GuardSettings, ModelSettings, RunSettings
from fdml.settings.data import DataSettings


@dataclass(frozen=True)
class FurtherRun:
    """One more run over the same rows, as far as it shows labels."""

    order: NDArray[np.int64]
    """Which of the first run's rows stands where in it."""
    shown_labels: NDArray[np.float64]
    """In its own order."""


@dataclass(frozen=True)
class PartyFile:
    """A party's file, and how its rows were used."""

    data: DataSettings
    guard: GuardSettings
    order: NDArray[np.int64]
    """Which row of the file each training row is."""


@dataclass(frozen=True)
class GroundTruth:
    """What only the owners know. Row i is the same person everywhere, in the run's order."""

    features: Mapping[str, PlainRows]
    """Of every party, the rows it trained on."""
    labels: NDArray[np.float64]
    shown_labels: NDArray[np.float64]
    """What training used: the same, or randomised ones where labels are private."""
    held_out: Mapping[str, PlainRows] = field(default_factory=dict)
    held_out_labels: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    models: Mapping[str, Model] = field(default_factory=dict)
    """As they were after training."""
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    """One per row, mean 1; empty where all are 1."""
    files: Mapping[str, PartyFile] = field(default_factory=dict)
    """How the parties' rows came from their files; empty for a run in one process."""
    further_run: FurtherRun | None = None
    """What the label party would show if it started over; None where that is not known."""


@dataclass(frozen=True)
class Recording:
    """All messages that carried predictions or gradients, in the order in which the server took them."""

    run: RunSettings
    schedule: Schedule
    objective: Objective
    echo: float
    pushes: Mapping[str, Mapping[int, Push]]
    """By party and step, as they travelled: under masks where the server is blind."""
    plain: Mapping[str, Mapping[int, NDArray[np.float64]]]
    """The same as values `(rows, width)` without masks, noise and clip still on: what other parties' sums hold."""
    held_out: Mapping[str, Mapping[int, HeldOutPredictions]]
    """By party and epoch, as they travelled."""
    gradients: Mapping[int, NDArray[np.float64]]
    """By step, without masks; empty where labels are shared."""
    mechanisms: Mapping[str, Mechanism]
    truth: GroundTruth
    repeated: tuple[tuple[str, Push | HeldOutPredictions | Gradient], ...] = ()
    """Every message as it came, resends included: for the test of masks."""
    metrics: Mapping[int, SealedMetrics] = field(default_factory=dict)
    """By epoch, as they travelled."""
    finished: Mapping[str, Finished] = field(default_factory=dict)
    """By party, what it sent of its final model."""
    model_settings: Mapping[str, ModelSettings] = field(default_factory=dict)
    """Of every party: taken as known to attackers, as a secret method protects nobody for long."""

    @property
    def grid(self) -> FixedPoint:
        """What predictions were rounded to."""
        return grid_of(self.training.value_bits)

    @property
    def training(self) -> AgreedTraining:
        """How the parties trained."""
        return agreed_training(self.run.training, self.schedule.rows, len(self.run.parties))
