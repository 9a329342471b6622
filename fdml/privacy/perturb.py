"""Clip and noise, on the grid on which predictions travel."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import TrainingDiverged
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import INT64, Codes, FixedPoint, encode, encode_within

Predictions = NDArray[np.floating[Any]]
_STREAM = {"held-out": "trial"}
"""Names of random streams where they are not the purpose's own: a name never changes, or noise would."""
_FAR = 16.0
"""Times the largest that can travel: a prediction up to there is cut, one past it means that training has diverged."""


class Perturbation:
    """Makes predictions fit to leave. Without a clip and noise it only rounds them to the grid.

    Noise is rounded to the grid and added to predictions that are on it: that is
    the rounded sum of both, so no bit of a prediction shows in low digits.
    """

    def __init__(
        self, mechanism: Mechanism, key: NoiseKey | None = None, grid: FixedPoint = INT64, parties: int = 1
    ) -> None:
        self.mechanism = mechanism
        self._key = key
        self._grid = grid
        self._parties = parties

    def protect(self, predictions: Predictions, purpose: str, number: int) -> Codes:
        """Predictions `(rows, width)` as codes; the noise is that of this purpose and number."""
        key, clips = None if self.mechanism.noise == "none" else self._key, not np.isinf(self.mechanism.clip)
        if key is None and not clips:
            ready = encode_within(predictions, self._grid, self._grid.largest(self._parties))
            if ready is not None:
                return ready
        limited = self._limited(predictions)
        if clips:
            limited = self._clipped(limited)
        if key is None:
            return encode(limited, self._grid)
        noise = self._noise(key, f"release {_STREAM.get(purpose, purpose)}", number, limited.size).reshape(
            limited.shape
        )
        step = 2.0**-self._grid.fraction_bits
        on_grid = np.rint(limited / step) + np.rint(noise / step)
        most = float(self._grid.largest_code(self._parties))
        codes: Codes = np.clip(on_grid, -most, most).astype(self._grid.dtype)
        return codes

    def _limited(self, predictions: Predictions) -> Predictions:
        """The predictions if they are numbers that can travel; where the grid saturates they are made so."""
        largest = np.abs(predictions).max(initial=0.0)
        bound = self._grid.largest(self._parties)
        if largest <= bound:
            return predictions
        longest = _FAR * bound if np.isinf(self.mechanism.clip) else np.finfo(np.float64).max
        if self._grid.saturates and largest <= longest:
            return np.clip(predictions, -bound, bound)
        end = longest if self._grid.saturates else bound
        wider = "" if self._grid.bits == INT64.bits else f", raise value_bits (now {self._grid.bits})"
        raise TrainingDiverged(
            f"a local prediction is {largest:g}, past the {end:g} that can be exchanged: training has diverged, or a "
            f"row is far from all others; lower learning_rate, raise echo towards the number of parties, scale the "
            f"features{wider}"
        )

    def _clipped(self, predictions: Predictions) -> NDArray[np.float64]:
        """No row longer than the clip; a step of the grid less, so that rounding makes none longer."""
        width = predictions.shape[1]
        bound = max(0.0, self.mechanism.clip - width * 2.0**-self._grid.fraction_bits)
        wide = predictions.astype(np.float64)
        order = 1 if self.mechanism.noise == "laplace" else 2
        length = np.linalg.norm(wide, ord=order, axis=1, keepdims=True)
        shrink: NDArray[np.float64] = bound / np.maximum(length, max(bound, np.finfo(np.float64).tiny))
        return wide * shrink

    def _noise(self, key: NoiseKey, purpose: str, number: int, size: int) -> NDArray[np.float64]:
        if self.mechanism.noise == "gaussian":
            return self.mechanism.sigma * key.normals(purpose, number, size)
        both = np.log(key.uniforms(purpose, number, 2 * size))
        return self.mechanism.sigma * (both[:size] - both[size:])
