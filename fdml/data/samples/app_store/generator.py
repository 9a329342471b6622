"""What lies behind the app store's twin: users, apps, hidden factors, and who downloads what.

A row is a user who is shown an app. Eight factors stand behind it, each partly
the user's and partly the app's; `FACTORS` says which party sees traces of which.
The log-odds of a download are made of

- the factors one by one (`LINEAR`), which a linear model can learn;
- a product of two factors of the store, which takes a non-linear model at the store alone;
- products of a factor of the store with one of another party, which takes both
  parties' features in one non-linear model: joint training cannot learn it, pooled can;
- noise that leaves no trace.

The factors and weights are fixed. The seed draws its users and what they do, so that the
figures of different seeds differ only by chance.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fdml.protocol.shuffle import stream

FACTORS: dict[str, tuple[int, ...]] = {"store": (0, 1, 2, 3), "browser": (4, 5), "guard": (6, 7)}
"""The factors that each party's features are traces of; the first party holds the labels."""
LINEAR = (0.39, 0.35, 0.09, 0.09, 0.37, 0.10, 0.34, 0.10)
PRODUCTS = ((2, 3, 0.46), (2, 5, 0.24), (3, 7, 0.24))
"""Two factors and the weight of their product."""
NOISE = 0.25
INTERCEPT = -4.226
"""So that 2.3 % of the rows are positive."""

PEOPLE = 10_600
"""Users of a chunk: rows are drawn a chunk at a time, each from a stream of its own."""
ROWS_PER_USER = 5
CHUNK = PEOPLE * ROWS_PER_USER
_RANKS = 800
"""How many apps there are for each of a user's rows; a user is never shown one twice."""
_OF_USER, _OF_APP = np.float32(0.8), np.float32(0.6)
"""How much of a factor is the user's and how much the app's; the squares add up to 1."""


class People(NamedTuple):
    """The rows of a chunk before anyone sees a trace of them."""

    ids: NDArray[np.int64]
    """User and app, `(CHUNK, 2)`."""
    factors: NDArray[np.float32]
    """`(CHUNK, 8)`, each with mean 0 and variance 1."""
    labels: NDArray[np.int8]
    """1 for a download."""


def generator(*key: int | str) -> np.random.Generator:
    """A generator whose stream depends on the key alone, and on numpy, whose versions may differ in it."""
    return np.random.Generator(np.random.Philox(stream("app store", *key)))


def people(seed: int, chunk: int) -> People:
    """All rows of a chunk; they depend on the seed and the chunk's number alone."""
    users = chunk * PEOPLE + np.repeat(np.arange(PEOPLE), ROWS_PER_USER)
    ranks = ((_RANKS + 1) ** generator(seed, "apps", chunk).random(CHUNK)).astype(np.int64) - 1
    apps = ranks * ROWS_PER_USER + np.arange(CHUNK) % ROWS_PER_USER
    of_users = generator(seed, "users", chunk).standard_normal((PEOPLE, len(LINEAR)), np.float32)
    factors = _OF_USER * np.repeat(of_users, ROWS_PER_USER, axis=0) + _OF_APP * _app_factors()[apps]
    return People(np.column_stack([users, apps]), factors, _labels(seed, chunk, factors))


def log_odds(factors: NDArray[np.float32]) -> NDArray[np.float64]:
    """What the factors say of a download, without the noise."""
    odds: NDArray[np.float64] = INTERCEPT + factors.astype(np.float64) @ np.array(LINEAR)
    for one, other, weight in PRODUCTS:
        odds += weight * factors[:, one] * factors[:, other]
    return odds


def _labels(seed: int, chunk: int, factors: NDArray[np.float32]) -> NDArray[np.int8]:
    chance = generator(seed, "labels", chunk)
    odds = log_odds(factors) + chance.normal(0.0, NOISE, len(factors))
    return (chance.random(len(factors)) < 1.0 / (1.0 + np.exp(-odds))).astype(np.int8)


@cache
def _app_factors() -> NDArray[np.float32]:
    """What each app adds to the factors: mean 0 and variance 1, counted by how often it is shown."""
    found = generator("world", "apps").standard_normal((_RANKS, ROWS_PER_USER, len(LINEAR)))
    ranks = np.arange(1, _RANKS + 2)
    often = np.diff(np.log(ranks)) / np.log(_RANKS + 1) / ROWS_PER_USER
    found -= np.einsum("r,rsf->f", often, found)
    found /= np.sqrt(np.einsum("r,rsf->f", often, found**2))
    return found.reshape(-1, len(LINEAR)).astype(np.float32)
