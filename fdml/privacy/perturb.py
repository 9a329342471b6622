"""Clip and noise, on the grid on which predictions travel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fdml.errors import TrainingDiverged
from fdml.privacy.discrete_noise import noise_on_grid
from fdml.privacy.ledger import Mechanism
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import INT64, Codes, FixedPoint, encode, encode_within

Predictions = NDArray[np.floating[Any]]
_STREAM = {"held-out": "trial"}
"""Names of random streams where they are not the purpose's own: a name never changes, or noise would."""
_FAR = 16.0
"""Without a clip, on a grid that saturates: a prediction up to so many times the largest that can travel is cut to
that; a larger one ends the run."""
_LONGEST = 1e100
"""A prediction is cut to it before its norm is taken, which might overflow."""


class Perturbation:
    """Makes predictions fit to leave. Without a clip and noise it only rounds them to the grid.

    Noise is drawn on the grid and added to predictions that are on it, in whole numbers: so no bit of a prediction
    shows in low digits, and none of the noise's own making. With a clip no row can end the run: one that is no number
    leaves as 0, unless all are none.
    """

    def __init__(
        self, mechanism: Mechanism, key: NoiseKey | None = None, grid: FixedPoint = INT64, parties: int = 1
    ) -> None:
        self.mechanism = mechanism
        self._key = key
        self._grid = grid
        self._parties = parties
        self._largest = grid.largest(parties)
        self._clips = not math.isinf(mechanism.clip)
        self._noise = None
        if key is not None and mechanism.noise != "none":
            self._noise = noise_on_grid(mechanism.noise, mechanism.sigma, grid.step)

    def protect(self, predictions: Predictions, purpose: str, number: int) -> Codes:
        """Predictions `(rows, width)` as codes; the noise is that of this purpose and number."""
        if not self._clips:
            return self._rounded(predictions)
        clipped = self._clipped(self._numbers(predictions))
        if self._noise is None or self._key is None:
            return encode(clipped, self._grid)
        stream = f"release {_STREAM.get(purpose, purpose)}"
        noise = self._noise.draw(self._key, stream, number, clipped.size).reshape(clipped.shape)
        most = self._grid.largest_code(self._parties)
        codes: Codes = np.clip(np.rint(clipped / self._grid.step).astype(np.int64) + noise, -most, most)
        return codes.astype(self._grid.dtype)

    def nothing(self, shape: tuple[int, int]) -> Codes:
        """Codes of no prediction at all."""
        return np.zeros(shape, self._grid.dtype)

    def _rounded(self, predictions: Predictions) -> Codes:
        """Without a clip: the predictions, if all are numbers that can travel; cut where the grid saturates."""
        bound = self._largest
        ready = encode_within(predictions, self._grid, bound)
        if ready is not None:
            return ready
        longest = _FAR * bound if self._grid.saturates else bound
        largest = np.abs(predictions).max(initial=0.0)
        if largest <= longest:
            return encode(np.clip(predictions, -bound, bound), self._grid)
        raise self._diverged(f"a local prediction is {largest:g}, past the {longest:g} that can be exchanged")

    def _numbers(self, predictions: Predictions) -> NDArray[np.float64]:
        """With a clip: all rows, 0 where a row is no number. One row must not end the run, which would tell of it."""
        known = np.logical_and.reduce(np.isfinite(predictions), axis=1)
        if len(known) and not known.any():
            raise self._diverged("no local prediction of a block is a number")
        wide = np.where(known[:, None], predictions, 0.0).astype(np.float64)
        return np.clip(wide, -_LONGEST, _LONGEST)

    def _diverged(self, what: str) -> TrainingDiverged:
        wider = "" if self._grid.bits == INT64.bits else f", raise value_bits (now {self._grid.bits})"
        return TrainingDiverged(
            f"{what}: training has diverged, or a row is far from all others; lower learning_rate, raise echo towards "
            f"the number of parties, scale the features{wider}"
        )

    def _clipped(self, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """No row longer than the clip, nor than can travel; a step less, so that rounding makes none longer."""
        width = predictions.shape[1]
        room = min(self.mechanism.clip, self._largest)
        bound = max(0.0, room - width * self._grid.step)
        order = 1 if self.mechanism.noise == "laplace" else 2
        length = np.linalg.norm(predictions, ord=order, axis=1, keepdims=True)
        shrink: NDArray[np.float64] = bound / np.maximum(length, max(bound, np.finfo(np.float64).tiny))
        return predictions * shrink
