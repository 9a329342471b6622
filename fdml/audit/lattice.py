"""Lattice reduction, and with it bits that solve linear equations: what exact sums of a few labels tell.

Few equations with large coefficients fix many unknown bits: of all whole vectors
that solve them, the one of bits is by far the shortest, and LLL finds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
_DELTA = 0.99
"""How much shorter a swap must make a vector (Lovasz' condition)."""
_STEP_BITS = 24
"""Digits of an equation that are brought in at once, so that floats are exact enough."""
_INEXACT = 1000.0
"""A multiple above this may be off by some: it is looked at again."""
_MOST_TURNS = 50
"""Reductions for one equation, after which it is given up."""


def solve_bits(equations: Sequence[Sequence[int]], sums: Sequence[int]) -> Whole | None:
    """Bits y with sum(y * equation) = sum for every equation; None if none are found.

    A row of the basis is (2 x_i - x_n, ..., x_n) for whole numbers x that solve the
    equations so far with the sum times x_n: bits are the vectors of ones and minus ones.
    """
    count = len(equations[0])
    basis = np.eye(count + 1, dtype=np.int64) * 2
    basis[count] = -1
    basis[count, count] = 1
    for equation, total in zip(equations, sums, strict=True):
        solving = _solving(basis, np.array(equation, dtype=object), total)
        if solving is None:
            return None
        basis = solving
        for bits in _bits_among(basis):
            if _solves(bits, equations, sums):
                return bits
    return None


def _solving(basis: Whole, equation: NDArray[Any], total: int) -> Whole | None:
    """A reduced basis of those vectors of a lattice that solve one more equation."""
    for _ in range(_MOST_TURNS):
        missing = _missing(basis, equation, total)
        wrong = np.flatnonzero(missing != 0)
        if len(wrong) <= 1:  # the others solve it, and this one's multiples never do
            return np.delete(basis, wrong, axis=0)
        digits = max(abs(int(each)) for each in missing[wrong]).bit_length()
        column = [_scaled(int(each), _STEP_BITS - digits) for each in missing]
        joined = np.column_stack([basis, np.array(column, np.int64)])
        reduce_basis(joined)
        basis = np.ascontiguousarray(joined[:, :-1])
    return None


def _scaled(value: int, digits: int) -> int:
    """The leading digits of a large number; a small one weighs more, so that it becomes 0 in the end."""
    return value << min(digits, _STEP_BITS - 4) if digits >= 0 else value >> -digits


def _missing(basis: Whole, equation: NDArray[Any], total: int) -> NDArray[Any]:
    """By how much each vector misses the equation, exactly."""
    last = basis[:, -1].astype(object)
    found: NDArray[Any] = ((basis[:, :-1].astype(object) + last[:, None]) // 2) @ equation - last * total
    return found


def _bits_among(basis: Whole) -> Iterator[Whole]:
    for vector in basis[(np.abs(basis) == 1).all(axis=1)]:
        yield (vector[:-1] * vector[-1] + 1) // 2


def _solves(bits: Whole, equations: Sequence[Sequence[int]], sums: Sequence[int]) -> bool:
    chosen = np.flatnonzero(bits).tolist()
    return all(sum(each[at] for at in chosen) == total for each, total in zip(equations, sums, strict=True))


@numba.njit(cache=True)
def reduce_basis(basis: Whole) -> None:
    """Make the rows of a basis short and nearly orthogonal, in place (Lenstra, Lenstra, Lovasz 1982).

    r[k, j] = <b_k, b*_j> and mu = r[k, j] / r[j, j] in floats: entries should have few digits.
    """
    count, wide = basis.shape
    r, mu = np.zeros((count, count)), np.zeros((count, count))
    _orthogonalise(basis, r, mu, 0)
    k = 1
    while k < count:
        _size_reduce(basis, r, mu, k)
        if r[k, k] + mu[k, k - 1] * r[k, k - 1] >= _DELTA * r[k - 1, k - 1]:
            k += 1
            continue
        for place in range(wide):
            basis[k, place], basis[k - 1, place] = basis[k - 1, place], basis[k, place]
        k = max(k - 1, 1)
        _orthogonalise(basis, r, mu, k - 1)


@numba.njit(cache=True)
def _size_reduce(basis: Whole, r: NDArray[np.float64], mu: NDArray[np.float64], k: int) -> None:
    """Take whole multiples of the earlier rows off row k, so that each mu is at most a half; large ones are inexact."""
    again = True
    while again:
        again = False
        _orthogonalise(basis, r, mu, k)
        for j in range(k - 1, -1, -1):
            times = np.rint(mu[k, j])
            if times == 0.0:
                continue
            again = again or abs(times) > _INEXACT
            for i in range(j):
                mu[k, i] -= times * mu[j, i]
            for place in range(basis.shape[1]):
                basis[k, place] -= np.int64(times) * basis[j, place]
    _orthogonalise(basis, r, mu, k)


@numba.njit(cache=True)
def _orthogonalise(basis: Whole, r: NDArray[np.float64], mu: NDArray[np.float64], k: int) -> None:
    """Row k of the Gram-Schmidt coefficients, from the rows before it."""
    for j in range(k + 1):
        product = 0.0
        for place in range(basis.shape[1]):
            product += float(basis[k, place]) * float(basis[j, place])
        for i in range(j):
            product -= mu[j, i] * r[k, i]
        r[k, j] = product
        if j < k:
            mu[k, j] = product / r[j, j]
