"""What saved state belongs to: a run, its rows, a model. State of other facts is never gone on with."""

from __future__ import annotations

from collections.abc import Mapping

from fdml.errors import StateCorrupt


def damaged(name: str, why: object) -> StateCorrupt:
    """The error for a file of saved state that cannot be read."""
    return StateCorrupt(
        f"the file {name!r} in the state folder is damaged ({why}); bring it back from a backup, or give the run a "
        f"new name at every side"
    )


def check_facts(known: Mapping[str, str], facts: Mapping[str, str], what: str = "saved state") -> None:
    """Raise unless what was saved with the `known` facts belongs to these; a fact that was not known is no change."""
    changed = [key for key, value in facts.items() if known.get(key, value) != value]
    if changed:
        raise StateCorrupt(
            f"the {what} belongs to another {' and '.join(changed)}; put it back, or give the run a new name at every "
            f"side"
        )
