"""Forests in LightGBM's text form: several are joined to one, and numbers of their trees are read from it."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

_TREE = re.compile(r"^Tree=\d+\n", re.MULTILINE)
_END = "end of trees\n"
_SIZES = "tree_sizes="


def joined(texts: list[str]) -> str:
    """One forest with the trees of all, in order; they were grown on the same features."""
    trees = [tree for text in texts for tree in _trees(text)]
    numbered = [f"Tree={number}\n{tree}" for number, tree in enumerate(trees)]
    sizes = " ".join(str(len(tree.encode())) for tree in numbered)
    return _head(texts[-1], sizes) + "".join(numbered) + _END


def leaf_values(text: str) -> NDArray[np.float64]:
    """The value of every leaf of every tree."""
    found = [line.removeprefix("leaf_value=") for line in text.splitlines() if line.startswith("leaf_value=")]
    return np.array([float(value) for line in found for value in line.split()])


def split_gains(text: str, inputs: int) -> NDArray[np.float64]:
    """By feature, how much its splits lower the loss in all."""
    gains = np.zeros(inputs)
    features: list[int] = []
    for line in text.splitlines():
        name, _, values = line.partition("=")
        if name == "split_feature":
            features = [int(value) for value in values.split()]
        elif name == "split_gain":
            np.add.at(gains, features, [float(value) for value in values.split()])
    return gains


def _head(text: str, sizes: str) -> str:
    """All before the first tree."""
    lines = text[: text.index("Tree=0\n")].rstrip().splitlines()
    return "\n".join(f"{_SIZES}{sizes}" if line.startswith(_SIZES) else line for line in lines) + "\n\n"


def _trees(text: str) -> list[str]:
    """Each tree without its number."""
    return _TREE.split(text[: text.index(_END)])[1:]
