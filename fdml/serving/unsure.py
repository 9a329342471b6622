"""Asking only when unsure: where the asker's own part, read alone, is outside a band, nobody else is asked.

The own part is read by a scale and an offset for the absence of all others, so only the label party can do it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fdml.models.calibration import Calibration
from fdml.models.losses import Floats
from fdml.protocol.fixed_point import Codes
from fdml.serving.answers import Answers
from fdml.serving.publication import Publication
from fdml.serving.reading import ScoreReading, probabilities_of, score_of

FindCalibration = Callable[[frozenset[str]], Calibration | None]
"""How the score is read without these parties; None where that is not known."""


def answers_alone(
    own: Publication, reading: ScoreReading | None, find: FindCalibration, part: Codes, known: NDArray[np.bool_]
) -> Answers | None:
    """Answers from the asker's own part; rows of which it is unsure are `asked`. None where all are to be asked."""
    calibration = find(frozenset(own.others)) if own.others else None
    if reading is None or calibration is None:
        return None
    run = own.run
    score = calibration.apply(score_of(run, part, own.facts.bits, reading).astype(np.float64))
    asked = ~known | is_unsure(probabilities_of(run, score), run.serving.band)
    score[~known] = np.nan
    lacks = np.ones((len(part), len(run.parties)), bool)
    lacks[:, run.parties.index(own.party)] = ~known
    return Answers(run, own.facts.version, score, lacks, {}, reading, asked)


def is_unsure(probability: Floats | None, band: tuple[float, float]) -> NDArray[np.bool_]:
    """Whether a probability of class 1 is inside the band; of several classes, whether the likeliest is below it."""
    if probability is None:
        raise ValueError("the loss gives no probabilities; RunSettings refuses it")
    low, high = band
    inside = probability.max(axis=1) < high if probability.ndim > 1 else (probability > low) & (probability < high)
    return np.asarray(inside, bool)
