"""What a run that goes on from an earlier version, or is compared with one, may say of its parties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fdml.errors import SettingsError


def check_frozen(epochs: int, *, of: int | Literal["auto"], new: bool) -> None:
    """Raise unless epochs in which only new parties learn are among those of a run that has such parties."""
    if epochs and not new:
        raise SettingsError(
            f"training.frozen_epochs = {epochs} lets only new_parties learn, beside the parties of a version; name "
            f"them, and the version in `from`, or leave frozen_epochs out"
        )
    if of != "auto" and epochs > of:
        raise SettingsError(f"training.frozen_epochs = {epochs}, and training.epochs = {of}; it cannot be more")


def check_new_parties(new: Sequence[str], parties: Sequence[str], label_party: str) -> None:
    """Raise unless the new parties are parties of the run that an earlier version can do without."""
    for party in new:
        if party not in parties:
            raise SettingsError(f"new_parties names {party!r}, which is not among the parties {', '.join(parties)}")
        if party == label_party:
            raise SettingsError(f"new_parties names the label party {party!r}, without which there is no version")


def check_same_parties(version: str, trained: Sequence[str], parties: Sequence[str], new: Sequence[str]) -> None:
    """Raise unless those who trained a version are the parties of a run, but for the new ones."""
    for party in trained:
        if party in new:
            raise SettingsError(f"new_parties names {party!r}, which is a party of version {version}; take it out")
        if party not in parties:
            raise SettingsError(
                f"version {version} has a part of {party!r}, which is no party of this run, and the others' parts mean "
                f"little without it; leave `from` and evaluation.against out to train anew"
            )
    for party in parties:
        if party not in (*trained, *new):
            raise SettingsError(f"version {version} was trained without {party!r}; name it in new_parties")
