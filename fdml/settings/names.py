"""Names of federations, runs and parties, and who the members of a federation are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from fdml.errors import SettingsError

Fingerprint = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
"""The SHA-256 of a member's public key, as `fdml keys show` prints it."""
LONGEST_NAME = 64
"""Letters of the name of a federation, run or party."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*( [A-Za-z0-9_.-]+)*")
_TAKEN = ("server", "authority")
"""Folders and roles that are no party's."""


_VERSION = re.compile(r"[0-9a-f]{32}")


def is_version(text: str) -> bool:
    """Whether a text can be the version of a run's bundles."""
    return _VERSION.fullmatch(text) is not None


def check_version(setting: str, text: str | None) -> None:
    """Raise unless a setting is a version, or is not set."""
    if text is not None and not is_version(text):
        raise SettingsError(
            f"{setting} is {text[:LONGEST_NAME]!r}; give a version, 32 digits as `fdml runs versions` lists them "
            f'(`fdml run` also takes the name of a finished run, or "promoted")'
        )


def is_name(text: str) -> bool:
    """Whether a text can name a federation, run or party: it also names folders, certificates and lines of a log."""
    return len(text) <= LONGEST_NAME and _NAME.fullmatch(text) is not None


def check_name(what: str, name: str) -> None:
    """Raise unless a federation, run or party may have this name; `what` begins the sentence."""
    if not is_name(name):
        raise SettingsError(
            f"{what} {name[:LONGEST_NAME]!r} cannot name a folder; use at most {LONGEST_NAME} letters a to z, "
            f"digits, '-', '_' and '.', the first a letter or digit"
        )


def check_party_names(parties: tuple[str, ...]) -> None:
    """Raise unless the names can be names and are distinct."""
    for name in parties:
        check_name("party name", name)
        if name in _TAKEN:
            raise SettingsError(f"party name {name!r} is taken; give the party another name")
    twice = sorted({name for name in parties if parties.count(name) > 1})
    if twice:
        raise SettingsError(f"party {twice[0]!r} is listed twice; give every party its own name")


def check_parties(parties: tuple[str, ...], label_party: str) -> None:
    """Raise unless the names can be names, are distinct, and the label party is among them."""
    check_party_names(parties)
    if label_party not in parties:
        raise SettingsError(f"label_party {label_party!r} is not among the parties {', '.join(parties)}")


def check_members(members: Mapping[str, str], parties: tuple[str, ...], *, mesh: bool = False) -> None:
    """Raise unless the members are none, or the server and all parties, each with a key of its own.

    In a mesh there is no server.
    """
    if not members:
        return
    wanted = {*parties} if mesh else {"server", *parties}
    for name in sorted(wanted - set(members)):
        raise SettingsError(f"[members] lacks {name!r}; `fdml keys members` prints the whole table")
    for name in sorted(set(members) - wanted):
        raise SettingsError(f"[members] names {name!r}, which is neither a party nor the server; take the line out")
    if len(set(members.values())) < len(members):
        raise SettingsError("two of the [members] have the same key; each makes its own with `fdml keys request`")


def check_keys(keys: Mapping[str, tuple[str, ...]], parties: tuple[str, ...], label_party: str) -> None:
    """Raise unless the keys lead from the label party to other parties, each by columns that are named once."""
    for party, columns in keys.items():
        if party not in parties:
            raise SettingsError(f"[keys] names {party!r}, which is not among the parties {', '.join(parties)}")
        if party == label_party:
            raise SettingsError(
                f"[keys] names the label party {party!r}, whose rows the others' are found by; leave it out"
            )
        if len(set(columns)) < len(columns):
            raise SettingsError(f"[keys] of party {party!r} names a column twice; name each once")
