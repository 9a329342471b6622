"""Features of a linear party, up to a rotation, from its predictions alone: no row of them is known.

A guess of the features tells the weights of every step (`TrainingReplay.trajectory`); the
weights tell what features give the predictions that were pushed; the mean of
both guesses is the next one. Where the training is linear in the features this
is Newton's iteration for the nearest rotation, which takes a handful of turns.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fdml.audit.replay import TrainingReplay

Values = NDArray[np.float64]
_RANKS = (6, 10)
_COMMON = (2.0, 0.3)
"""How long the part of the features is, at first, that all rows have in common."""
_SMALL = 200_000
"""Predictions of a replay that is small enough to try every rank on."""
_WORK = 60_000_000
"""Predictions looked at in one fit, over all turns."""
_MOST_TURNS = 60
_SMALL_TURNS = 35
"""Where several starts are tried."""
_FEWEST_TURNS = 10
_FIRST_RIDGE, _LAST_RIDGE = 1.0, 1e-4


@lru_cache(maxsize=8)
def recovered(replay: TrainingReplay) -> Values:
    """The guess `(rows, rank)` that explains best what was pushed; its scale and rotation mean nothing."""
    seen = sum(update.then.size for update in replay.steps)
    most = min(replay.features, _observations(replay))
    small = seen <= _SMALL
    ranks = {min(rank, most) for rank in (*_RANKS[: 1 if small else 2], *([most] if small else []))}
    commons = _COMMON if small else _COMMON[:1]
    most_turns = _SMALL_TURNS if small else _MOST_TURNS
    turns = int(np.clip(_WORK // max(seen, 1), _FEWEST_TURNS, most_turns))
    fits = [_fit(replay, _first_guess(replay, rank, common), turns) for rank in sorted(ranks) for common in commons]
    return min(fits, key=lambda fit: fit[1])[0]


def _fit(replay: TrainingReplay, guess: Values, turns: int) -> tuple[Values, float]:
    """The best guess on the way, and how far it is from explaining what was pushed."""
    best, least = guess, np.inf
    for turn in range(turns):
        ridge = _FIRST_RIDGE * (_LAST_RIDGE / _FIRST_RIDGE) ** (turn / turns) + replay.variance
        better, misfit = _improved(replay, guess, ridge)
        if not np.isfinite(better).all():
            break
        if misfit < least:
            best, least = guess, misfit
        guess = better
    return best, least


def _improved(replay: TrainingReplay, guess: Values, ridge: float) -> tuple[Values, float]:
    """The mean of the guess and of what its own weights say the features are; and the guess's squared misfit."""
    with np.errstate(all="ignore"):
        weights, biases = replay.trajectory(guess)
        if not np.isfinite(weights).all():
            return np.full_like(guess, np.nan), np.inf
    better, misfit = np.empty_like(guess), 0.0
    for (start, stop), steps in _blocks(replay).items():
        after = [replay.steps[step].pushed_after for step in steps]
        directions = np.concatenate([weights[number].T for number in after])
        seen = np.hstack([replay.steps[step].then - biases[number] for step, number in zip(steps, after, strict=True)])
        wrong = seen - guess[start:stop] @ directions.T
        left, sizes, right = np.linalg.svd(directions, full_matrices=False)
        better[start:stop] = guess[start:stop] + 0.5 * ((wrong @ left) * (sizes / (sizes**2 + ridge))) @ right
        misfit += float(np.square(wrong).sum())
    return better, misfit


def _blocks(replay: TrainingReplay) -> dict[tuple[int, int], list[int]]:
    """The steps that visit each block."""
    blocks: dict[tuple[int, int], list[int]] = {}
    for step, update in enumerate(replay.steps):
        blocks.setdefault((update.start, update.stop), []).append(step)
    return blocks


def _observations(replay: TrainingReplay) -> int:
    """How often every row was pushed at least, each output counted."""
    return replay.objective.width * min(len(steps) for steps in _blocks(replay).values())


def _first_guess(replay: TrainingReplay, rank: int, common: float) -> Values:
    """What all rows have in common, then the main components of the rows' predictions through the epochs."""
    count = min(len(steps) for steps in _blocks(replay).values())
    seen = np.empty((replay.rows, count * replay.objective.width))
    for (start, stop), steps in _blocks(replay).items():
        seen[start:stop] = np.hstack([replay.steps[step].then for step in steps[:count]])
    left, _, _ = np.linalg.svd(seen - seen.mean(axis=0), full_matrices=False)
    return np.hstack([np.full((replay.rows, 1), common), 0.5 * np.sqrt(replay.rows) * left[:, : rank - 1]])


def gram_score(guess: Values, features: Values, seed: int = 0, most: int = 1000) -> float:
    """How much of the variance of the rows' inner products a guess explains, up to scale: signed squared correlation.

    Rows are sampled where there are many; a row's product with itself is left out.
    """
    rows = np.random.default_rng(seed).permutation(len(features))[:most]
    above = np.triu_indices(len(rows), 1)
    true, found = ((each[rows] @ each[rows].T)[above] for each in (features, guess))
    if not true.std() or not found.std() or not np.isfinite(found).all():
        return 0.0
    correlation = float(np.corrcoef(true, found)[0, 1])
    return correlation * abs(correlation)
