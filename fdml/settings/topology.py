"""Where the sums are made: at a server, at one of the parties, or at every party."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fdml.errors import SettingsError
from fdml.settings.choices import Align
from fdml.settings.privacy import PrivacySettings

NO_SERVER = "none"
"""In place of a server's address: every party sums for itself."""


class Shown(NamedTuple):
    """What of a run decides what a place that sums could see."""

    align: Align
    privacy: PrivacySettings
    staleness: int


def check_addresses(server: str, addresses: Mapping[str, str], host: str | None, parties: tuple[str, ...]) -> None:
    """Raise unless all parties but one have an address where there is no server, and none where there is one."""
    if server != NO_SERVER:
        if addresses:
            raise SettingsError(
                f"[addresses] says where parties reach each other without a server, and there is one at {server!r}; "
                f'set server = "none", or leave [addresses] out'
            )
        return
    if host is not None:
        raise SettingsError(
            f'server = "none" has every party sum for itself, and host = {host!r}; leave one of them out'
        )
    hidden = [name for name in parties if name not in addresses]
    if len(hidden) > 1:
        raise SettingsError(
            f'server = "none" needs one of every two parties to accept connections, and [addresses] lacks '
            f'{hidden[0]!r} and {hidden[1]!r}; add {hidden[0]} = "host:7443"'
        )
    for name in sorted(set(addresses) - set(parties)):
        raise SettingsError(f"[addresses] names {name!r}, which is not among the parties {', '.join(parties)}")


def check_mesh(
    server: str,
    comparing_party: str | None,
    parties: tuple[str, ...],
    shown: Shown,
) -> None:
    """Raise where parties that sum for themselves would see more than a total, or not all the same."""
    if server != NO_SERVER:
        if comparing_party is not None:
            raise SettingsError(
                f"comparing_party = {comparing_party!r} compares blinded ids where there is no server, and there is "
                f"one at {server!r}; leave it out"
            )
        return
    if comparing_party is not None and comparing_party not in parties:
        raise SettingsError(
            f"comparing_party is {comparing_party!r}, which is not among the parties {', '.join(parties)}; name one of "
            f"them, or leave it out for the first"
        )
    if shown.align == "tokens":
        raise SettingsError(
            'server = "none" with align = "tokens": a party would compare the tokens and has their key, so it could '
            'look for any id in every other party\'s set; set align = "ecdh"'
        )
    if shown.privacy.server == "plain":
        raise SettingsError(
            'server = "none" shows every party what all others push; set server = "blind" under [privacy], so that '
            "it is under masks"
        )
    if shown.staleness:
        raise SettingsError(
            f'server = "none" with staleness = {shown.staleness}: every party would sum other parts, and all could '
            f"take off all masks; set staleness = 0"
        )
    if shown.privacy.labels == "private":
        raise SettingsError(
            'labels = "private" keeps totals from all but the label party, and with server = "none" every party has '
            "them; have the label party host the server: host = its name"
        )


def check_host_name(host: str | None, parties: tuple[str, ...]) -> None:
    """Raise unless the host is one of the parties, or there is none."""
    if host is not None and host not in parties:
        raise SettingsError(
            f"host is {host!r}, which is not among the parties {', '.join(parties)}; name the party that runs the "
            f"server inside its own process, or leave host out"
        )


def check_host(
    host: str | None,
    parties: tuple[str, ...],
    label_party: str,
    shown: Shown,
) -> None:
    """Raise where a party that hosts the server would see more than it sees as a party, but for held-out sums.

    It has the group key, so only masks of pairs of parties hide anything from it, and no mask hides the totals.
    """
    check_host_name(host, parties)
    if host is None or len(parties) == 1:
        return
    if shown.align == "tokens":
        raise SettingsError(
            f'host = {host!r} with align = "tokens": the host has the key of the tokens and could look for any id in '
            f'every other party\'s set; set align = "ecdh"'
        )
    if shown.privacy.server == "plain":
        raise SettingsError(
            f'host = {host!r} with [privacy] server = "plain" would show that party the predictions of every other '
            f'one; set server = "blind"'
        )
    if shown.staleness:
        raise SettingsError(
            f"host = {host!r} with staleness = {shown.staleness}: the masks are then under a key that every party has, "
            f"and the host could take them all off; set staleness = 0, or have a server of its own and leave host out"
        )
    if shown.privacy.labels == "private" and host != label_party:
        raise SettingsError(
            f'labels = "private" keeps totals from all but the label party, and the host has them; set host = '
            f"{label_party!r}, or leave host out"
        )
