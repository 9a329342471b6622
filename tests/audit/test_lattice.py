"""Lattice reduction against exact fractions, and bits from their sums."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from fdml.audit import lattice
from fdml.audit.lattice import reduce_basis, solve_bits


def gram_schmidt(basis):
    """The squared lengths and coefficients of a basis, exactly."""
    rows = [[Fraction(int(entry)) for entry in row] for row in basis]
    stars, mu = [], {}
    for k, row in enumerate(rows):
        star = list(row)
        for j, other in enumerate(stars):
            mu[k, j] = sum(a * b for a, b in zip(row, other, strict=True)) / sum(a * a for a in other)
            star = [a - mu[k, j] * b for a, b in zip(star, other, strict=True)]
        stars.append(star)
    return [sum(a * a for a in star) for star in stars], mu


@pytest.mark.parametrize("seed", range(5))
def test_a_reduced_basis_keeps_the_lattice_and_both_conditions(seed):
    """Size reduction and Lovasz' condition in exact fractions; the squared volume stays."""
    random = np.random.default_rng(seed)
    basis = np.column_stack([np.eye(8, dtype=np.int64), random.integers(-(10**6), 10**6, 8)])
    before, _ = gram_schmidt(basis)
    reduce_basis(basis)
    lengths, mu = gram_schmidt(basis)
    volume = [np.prod(np.array(each, dtype=object)) for each in (before, lengths)]
    assert volume[0] == volume[1]
    assert all(abs(value) <= Fraction(51, 100) for value in mu.values())
    for k in range(1, 8):
        assert lengths[k] + mu[k, k - 1] ** 2 * lengths[k - 1] >= Fraction(98, 100) * lengths[k - 1]
    assert max(lengths[0], 1) < before[0] + 1, "shorter than what it was"


def test_the_rows_stay_whole_combinations_of_what_they_were():
    basis = np.array([[1, 0, 0, 1345], [0, 1, 0, 35], [0, 0, 1, 154]], np.int64)
    reduce_basis(basis)
    assert abs(round(np.linalg.det(basis[:, :3]))) == 1
    assert basis[:, 3].tolist() == (basis[:, :3] @ [1345, 35, 154]).tolist()
    assert np.abs(basis).max() < 20


def equations_of(bits, count, seed):
    random = np.random.default_rng(seed)
    found = [[int(value * 2**32) for value in random.normal(size=len(bits))] for _ in range(count)]
    return found, [sum(value for value, bit in zip(each, bits, strict=True) if bit) for each in found]


@pytest.mark.parametrize("bits", list(product((0, 1), repeat=4)))
def test_few_bits_follow_from_one_sum(bits):
    equations, sums = equations_of(bits, 1, 7)
    assert solve_bits(equations, sums).tolist() == list(bits)


@pytest.mark.parametrize("rows", [20, 40, 60])
def test_many_bits_follow_from_twenty_sums(rows):
    """The sums of 20 epochs: more rows than that make a lattice necessary."""
    bits = np.random.default_rng(rows).integers(0, 2, rows)
    equations, sums = equations_of(bits, 20, rows)
    assert solve_bits(equations, sums).tolist() == bits.tolist()


def test_a_sum_that_no_bits_have_gives_none():
    equations, sums = equations_of([0, 1, 1, 0, 1, 0], 3, 1)
    assert solve_bits(equations, [sums[0], sums[1] + 1, sums[2]]) is None


def test_equations_with_several_solutions_give_one_of_them():
    found = solve_bits([[1, 1, 1, 1]], [2])
    assert sorted(found.tolist()) == [0, 0, 1, 1]


def test_an_equation_that_is_given_up_gives_none(monkeypatch):
    equations, sums = equations_of([1, 0, 1, 1, 0], 1, 3)
    monkeypatch.setattr(lattice, "_MOST_TURNS", 0)
    assert solve_bits(equations, sums) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_compiled_reduction_equals_its_own_lines_in_python(monkeypatch, seed):
    """Entries of many digits: multiples are inexact at first and looked at again."""
    random = np.random.default_rng(seed)
    basis = np.column_stack([np.eye(5, dtype=np.int64), random.integers(-(2**40), 2**40, 5)])
    plain = basis.copy()
    reduce_basis(basis)
    for name in ("_size_reduce", "_orthogonalise"):
        monkeypatch.setattr(lattice, name, getattr(lattice, name).py_func)
    reduce_basis.py_func(plain)
    assert plain.tolist() == basis.tolist()
