"""How many random examples a test tries that needs more or fewer than others."""

from __future__ import annotations

from hypothesis import settings

_USUAL = 50
"""Of a test that says nothing."""


def examples(count: int) -> settings:
    """So many; in `make quick` the same share of them that it tries of all others."""
    return settings(max_examples=max(1, count * settings().max_examples // _USUAL))
