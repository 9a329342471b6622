"""A4: an insider knows some rows of the target's features and solves for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import RidgeCV

Values = NDArray[np.float64]
_RIDGES = np.logspace(-4, 4, 17)
_COMPONENTS = (1, 3, 10, 30)
_STRESS = (1.0, 5.0)
"""How much more the run's figures may count than the attacker's own features, under a ridge."""


def explained(known: NDArray[np.int64], inputs: Sequence[Values], features: Values) -> float:
    """The share of the unknown rows' variance that a ridge regression explains.

    Of several inputs the one is taken that does best on the known rows, each left out in turn.
    """
    fits = [_fitted(known, each, features) for each in inputs]
    guess = max(fits, key=lambda fit: fit[0])[1]
    unknown = np.ones(len(features), bool)
    unknown[known] = False
    wrong = np.square(features[unknown] - guess[unknown]).sum()
    return float(1.0 - wrong / np.square(features[unknown] - features[unknown].mean(axis=0)).sum())


def _fitted(known: NDArray[np.int64], inputs: Values, features: Values) -> tuple[float, Values]:
    """How well it does on known rows, and its guess of all rows."""
    if not inputs.shape[1]:
        return -np.inf, np.broadcast_to(features[known].mean(axis=0), features.shape)
    spread = inputs.std(axis=0)
    model = RidgeCV(_RIDGES).fit(inputs[known], features[known])
    return (float(model.best_score_), model.predict(inputs)) if spread.any() else (-np.inf, model.predict(inputs))


def combined(own: Values, seen: Values, recovered: Values | None) -> Iterator[Values]:
    """Own features beside what the run gives: main components of the predictions, or features found without help."""
    own = standardised(own)
    whitened = components(seen)
    offers = [whitened[:, :count] for count in _COMPONENTS if count <= whitened.shape[1]] + [whitened]
    if recovered is not None:
        offers.append(standardised(recovered))
    yield own
    for offer in offers:
        for stress in _STRESS:
            yield np.hstack([own, stress * offer])


def components(seen: Values) -> Values:
    """All components of the predictions that are above rounding, main ones first, each of variance 1."""
    flat = seen.reshape(len(seen), -1)
    left, sizes, _ = np.linalg.svd(flat - flat.mean(axis=0), full_matrices=False)
    kept = sizes > 1e-6 * max(sizes[0], 1e-300)
    found: Values = left[:, kept] * np.sqrt(len(seen))
    return found


def standardised(values: Values) -> Values:
    """Columns of mean 0 and variance 1; constant ones become 0."""
    spread = values.std(axis=0)
    scaled: Values = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled
