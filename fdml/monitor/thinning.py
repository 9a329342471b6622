"""Long series made short enough to look at: no peak is lost."""

from __future__ import annotations

from collections.abc import Sequence

MOST_POINTS = 2000
"""Of a series on a page, however long the run was."""
Point = tuple[float, float]


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """At most so many of the points, in their order: the first and the last, and the lowest and highest of each part.

    A series that is short enough stays as it is.
    """
    if len(points) <= most:
        return list(points)
    parts = max(1, (most - 2) // 2)
    inner = len(points) - 2
    kept = [points[0]]
    for part in range(parts):
        begin, end = 1 + part * inner // parts, 1 + (part + 1) * inner // parts
        places = range(begin, end)
        if places:
            chosen = {min(places, key=lambda at: points[at][1]), max(places, key=lambda at: points[at][1])}
            kept += [points[at] for at in sorted(chosen)]
    return [*kept, points[-1]]
