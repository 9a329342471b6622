"""The status of a run, asked of its server. A party opens the metrics in it; the server's own machine cannot."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_metrics
from fdml.errors import SettingsError
from fdml.federation.addresses import server_address
from fdml.federation.key_files import check_has_members, read_credentials
from fdml.monitor.history import METRIC_OF
from fdml.monitor.status import RunStatus
from fdml.party.alignment_store import stored_group_key
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER
from fdml.protocol.messages import Metrics
from fdml.settings import RunSettings
from fdml.settings_federation import read_run
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_endpoint import Endpoint, check_loopback
from fdml.transport.grpc_status import ask_status


@dataclass(frozen=True)
class ReadStatus:
    """A run's status, and what of its metrics can be read here."""

    status: RunStatus
    metrics: tuple[Metrics, ...]
    """Of every evaluated epoch; without figures where they were asked for without a party's key."""
    metric: str = ""
    """What `test_metric` is."""


@dataclass(frozen=True)
class _Asker:
    """The side as which the server is asked."""

    name: str
    folder: Path
    server: str | None
    """Where its party.toml says the server is."""


def status(path: Path, *, plain: bool, server: str | None = None) -> ReadStatus:
    """Ask as the party whose party.toml this is; with a run.toml, as the server or any party with a folder beside it.

    `server` is where the server is, if not where party.toml or run.toml says.
    """
    run, asker = _asker(path, plain=plain)
    target = server_address(run, asker.server, server)
    if plain:
        check_loopback(target)
        found = ask_status(Endpoint(target, run.federation, asker.name, None))
    else:
        check_has_members(run)
        credentials = read_credentials(asker.folder / "keys")
        found = ask_status(Endpoint(target, run.federation, asker.name, credentials, run.members[SERVER]))
    return ReadStatus(found, _opened(found, _key_of(asker)), METRIC_OF[run.task])


def _asker(path: Path, *, plain: bool) -> tuple[RunSettings, _Asker]:
    if _is_party_toml(path):
        own = read_party(path)
        return read_run(own.run), _Asker(own.party, path.parent, own.server)
    run = read_run(path)
    for name in run.parties if plain else ("server", *run.parties):
        folder = path.parent / name
        if plain or (folder / "keys").is_dir():
            own_file = folder / "party.toml"
            return run, _Asker(name, folder, read_party(own_file).server if own_file.is_file() else None)
    raise SettingsError(
        f"there is neither the server's folder nor a party's beside {str(path)!r}; ask on a machine of one of them"
    )


def _is_party_toml(path: Path) -> bool:
    """Whether a file names one party; whatever else is wrong with it is told by whoever reads it."""
    try:
        return "party" in tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def _key_of(asker: _Asker) -> GroupKey | None:
    state = asker.folder / "state"
    return stored_group_key(FolderDisk(state)) if asker.name != "server" and state.is_dir() else None


def _opened(found: RunStatus, key: GroupKey | None) -> tuple[Metrics, ...]:
    return tuple(Metrics(each.epoch) if key is None else open_metrics(key, each) for each in found.history)
