"""An attack on served predictions: was this person among those that the model was trained on?"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fdml.audit.recording import Recording
from fdml.audit.result import Attack, AttackResult, not_applicable, passed_if
from fdml.data.rows import Rows
from fdml.models.metrics import auc
from fdml.party.plan import joint_score

Values = NDArray[np.float64]

_TITLE = "membership by the loss"
_VIEW = "whoever is served predictions and knows labels"
_BAR = 0.55


def tell_members(recording: Recording) -> list[AttackResult]:
    """A12: rows with a small loss of the joint model are taken for training rows."""
    truth = recording.truth
    if not len(truth.held_out_labels) or not truth.held_out:
        return [not_applicable("A12", _TITLE, _VIEW, "no rows were held out, so there is nobody to tell members from")]
    if not truth.models:
        return [not_applicable("A12", _TITLE, _VIEW, "the recording has no final models")]
    inside = _losses(recording, truth.features, truth.labels)
    outside = _losses(recording, truth.held_out, truth.held_out_labels)
    found, doubt = _told_by(-inside, -outside), _doubt(len(inside), len(outside))
    return [
        passed_if(
            found <= _BAR,
            "A12",
            _TITLE,
            _VIEW,
            score=found,
            baseline=0.5,
            bar=f"AUC <= {_BAR}",
            reason=f"{len(inside):,} training rows and {len(outside):,} held out; by chance alone the AUC of so many "
            f"is off by {doubt:.3f} (one standard deviation)",
            details={"training_loss": float(inside.mean()), "held_out_loss": float(outside.mean()), "doubt": doubt},
        )
    ]


def _losses(recording: Recording, parts: Mapping[str, Rows], labels: Values) -> Values:
    score = joint_score(recording.truth.models, parts, recording.objective)
    return recording.objective.loss.value(score, labels).astype(np.float64)


def _told_by(inside: Values, outside: Values) -> float:
    """The chance that a training row scores higher than one held out."""
    labels = np.concatenate([np.ones(len(inside)), np.zeros(len(outside))])
    return auc(labels, np.concatenate([inside, outside]), np.ones(len(labels)))


def _doubt(inside: int, outside: int) -> float:
    """The standard deviation of the AUC of two samples that are alike."""
    return math.sqrt((inside + outside + 1) / (12 * inside * outside))


attacks: dict[str, Attack] = {"A12": tell_members}
