"""Looking for a bug that was put in on purpose."""

from collections.abc import Iterable

import pytest

from fdml.errors import InvariantBroken
from simulator.run import run_seed


def found(seeds: Iterable[int]) -> str:
    """What the first failing seed says."""
    tried = 0
    for seed in seeds:
        tried += 1
        try:
            run_seed(seed)
        except InvariantBroken as error:
            return str(error)
    pytest.fail(f"{tried} seeds did not find the bug")
