"""The status of a run, asked of its server. A party opens the metrics in it; the server's own machine cannot."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_metrics
from fdml.errors import SettingsError
from fdml.federation.addresses import server_address
from fdml.federation.key_files import check_has_members, read_credentials
from fdml.federation.run_folder import RunFolder, begun_run, run_names
from fdml.monitor.history import METRIC_OF
from fdml.monitor.status import RunStatus
from fdml.party.alignment_store import stored_group_key
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER
from fdml.protocol.messages import Metrics
from fdml.protocol.run_messages import RunQuery
from fdml.settings_federation import FederationSettings, read_federation
from fdml.settings_file import read_table
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_endpoint import Endpoint, check_loopback
from fdml.transport.grpc_runs import RunsClient
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


def status(path: Path, name: str | None = None, *, plain: bool, server: str | None = None) -> ReadStatus:
    """Ask as the party whose party.toml this is; with a federation.toml, as the server or any party beside it.

    `name` is the run that is meant, `server` where the server is, if not where party.toml or federation.toml says.
    """
    federation, asker = _asker(path, plain=plain)
    target = server_address(federation.server, asker.server, server)
    if plain:
        check_loopback(target)
        endpoint = Endpoint(target, federation.name, asker.name, None)
    else:
        check_has_members(federation.name, federation.members)
        credentials = read_credentials(asker.folder / "keys")
        endpoint = Endpoint(target, federation.name, asker.name, credentials, federation.members[SERVER])
    found = ask_status(replace(endpoint, run=name or _run_under_way(endpoint)))
    if found.run not in run_names(asker.folder):
        return ReadStatus(found, _opened(found, None))
    run = RunFolder(asker.folder, begun_run(asker.folder, found.run))
    key = stored_group_key(FolderDisk(run.state)) if asker.name != SERVER else None
    return ReadStatus(found, _opened(found, key), METRIC_OF[run.settings.task])


def _run_under_way(endpoint: Endpoint) -> str:
    """The run that is meant where none is named: the only one that is not over, or else the last one."""
    with RunsClient(endpoint) as client:
        runs = client.runs(RunQuery()).runs
    if not runs:
        raise SettingsError(f"the server at {endpoint.target} has no run yet; `fdml run RUN.toml` starts one")
    still_open = [each.name for each in runs if each.is_open]
    if len(still_open) > 1:
        raise SettingsError(f"the server has {len(still_open)} runs: name one with --run: {', '.join(still_open)}")
    return still_open[0] if still_open else runs[-1].name


def _asker(path: Path, *, plain: bool) -> tuple[FederationSettings, _Asker]:
    if "party" in read_table(path):
        own = read_party(path)
        return read_federation(own.federation), _Asker(own.party, path.parent, own.server)
    federation = read_federation(path)
    for name in federation.parties if plain else (SERVER, *federation.parties):
        folder = path.parent / name
        if plain or (folder / "keys").is_dir():
            own_file = folder / "party.toml"
            return federation, _Asker(name, folder, read_party(own_file).server if own_file.is_file() else None)
    raise SettingsError(
        f"there is neither the server's folder nor a party's beside {str(path)!r}; ask on a machine of one of them"
    )


def _opened(found: RunStatus, key: GroupKey | None) -> tuple[Metrics, ...]:
    return tuple(Metrics(each.epoch) if key is None else open_metrics(key, each) for each in found.history)
