"""Text of another side on its way into an error, an event or a log: never long, and without control characters."""

from __future__ import annotations

_MOST_QUOTED = 80
MOST_SHOWN = 200
"""Letters of another side's text that are shown where it is not in quotes."""
_REST = "..."


def quoted(text: str) -> str:
    """A name that another side sent, in quotes; a long one is cut."""
    return repr(text if len(text) <= _MOST_QUOTED else text[: _MOST_QUOTED - len(_REST)] + _REST)


def shown(text: str, most: int = MOST_SHOWN) -> str:
    """A sentence that another side sent, on one line: cut at so many characters, its control characters written out."""
    kept = text if len(text) <= most else text[: most - len(_REST)] + _REST
    if kept.isprintable():
        return kept
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in kept)
