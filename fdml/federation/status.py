"""The status of a run, asked of its server. A party opens the metrics in it; the server's own machine cannot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import open_metrics
from fdml.errors import SettingsError
from fdml.federation.addresses import own_address, server_address
from fdml.federation.key_files import check_has_members, read_credentials
from fdml.federation.page_process import reached_here
from fdml.federation.run_folder import RunFolder, begun_run, run_names
from fdml.monitor.history import metric_of
from fdml.monitor.status import RunStatus
from fdml.party.alignment_store import stored_group_key
from fdml.party.settings import read_party
from fdml.protocol.certificates import SERVER
from fdml.protocol.messages import Metrics
from fdml.protocol.run_messages import RunFacts, RunQuery
from fdml.protocol.signed_proposals import proposed_settings
from fdml.settings.federation import FederationSettings, read_federation
from fdml.settings.file import read_table
from fdml.settings.topology import NO_SERVER
from fdml.storage.disk import FolderDisk
from fdml.transport.grpc_endpoint import Endpoint, check_loopback
from fdml.transport.grpc_runs import RunsClient
from fdml.transport.grpc_status import ask_status

ANSWER_SECONDS = 5.0


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
    server: str | None = None
    """Where its party.toml says the server is."""
    listen: str | None = None
    """Where its party.toml says that it listens."""


def status(path: Path, name: str | None = None, *, plain: bool, server: str | None = None) -> ReadStatus:
    """Ask as the party whose party.toml this is; with a federation.toml, as the server or any party beside it.

    `name` is the run that is meant, `server` where the server is, if not where party.toml or federation.toml says.
    """
    return AskedRun(path, name, plain=plain, server=server).ask()


class AskedRun:
    """A run whose server can be asked for its status again and again."""

    def __init__(
        self,
        path: Path,
        name: str | None = None,
        *,
        plain: bool,
        server: str | None = None,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        """As `status` takes them; which run is meant is found out by the first question, where it is not named.

        `seconds` is how long the server may take to answer.
        """
        self._seconds = seconds
        federation, asker = _asker(path, plain=plain)
        is_mesh = federation.server == NO_SERVER
        own = reached_here(own_address(federation, asker.name, asker.listen)) if is_mesh else None
        target = server_address(federation.server, asker.server, server or own)
        answers = asker.name if is_mesh else ""  # without a server a party asks the session that sums for itself
        if plain:
            check_loopback(target)
            self._endpoint = Endpoint(target, federation.name, asker.name, None, answers_as=answers)
        else:
            check_has_members(federation.name, federation.members)
            credentials = read_credentials(asker.folder / "keys")
            key = federation.members[answers or SERVER]
            self._endpoint = Endpoint(target, federation.name, asker.name, credentials, key, answers_as=answers)
        self._name = name
        self.side = asker.name
        """Who asks: a party, or the server."""
        self.folder = asker.folder

    @property
    def name(self) -> str:
        """The run that is meant."""
        if self._name is None:
            self._name = _run_under_way(self._endpoint, self._seconds)
        return self._name

    def ask(self) -> ReadStatus:
        """The status now, with the metrics that can be read here."""
        found = ask_status(replace(self._endpoint, run=self.name), self._seconds)
        if found.run not in run_names(self.folder):
            return ReadStatus(found, _opened(found, None))
        run = RunFolder(self.folder, begun_run(self.folder, found.run))
        key = stored_group_key(FolderDisk(run.state)) if self.side != SERVER else None
        return ReadStatus(found, _opened(found, key), metric_of(run.settings.task, run.settings.loss))


def _run_under_way(endpoint: Endpoint, seconds: float) -> str:
    """The run that is meant where none is named: the only one that is not over, or else the last one."""
    with RunsClient(endpoint, seconds) as client:
        runs = client.runs(RunQuery()).runs
    if not runs:
        raise SettingsError(f"the server at {endpoint.target} has no run yet; `fdml run RUN.toml` starts one")
    still_open = [each.name for each in runs if each.is_open]
    if len(still_open) > 1:
        raise SettingsError(f"the server has {len(still_open)} runs: name one with --run: {', '.join(still_open)}")
    if still_open and (waits_for := _undecided(runs, still_open[0])):
        raise SettingsError(
            f"run {still_open[0]!r} has not begun: it waits for {', '.join(waits_for)} to accept it; `fdml runs show "
            f"{still_open[0]}` says why, --run NAME shows another run"
        )
    return still_open[0] if still_open else runs[-1].name


def _undecided(runs: Sequence[RunFacts], name: str) -> list[str]:
    """The parties that have not accepted a run that waits."""
    facts = next(each for each in runs if each.name == name)
    if facts.state != "waiting":
        return []
    decided = {each.party for each in facts.decisions if each.choice == "accepted"}
    return [party for party in proposed_settings(facts.proposal).parties if party not in decided]


def _asker(path: Path, *, plain: bool) -> tuple[FederationSettings, _Asker]:
    if "party" in read_table(path):
        own = read_party(path)
        return read_federation(own.federation), _Asker(own.party, path.parent, own.server, own.listen)
    federation = read_federation(path)
    for name in federation.parties if plain or federation.server == NO_SERVER else (SERVER, *federation.parties):
        folder = path.parent / name
        if plain or (folder / "keys").is_dir():
            own_file = folder / "party.toml"
            if not own_file.is_file():
                return federation, _Asker(name, folder)
            party = read_party(own_file)
            return federation, _Asker(name, folder, party.server, party.listen)
    raise SettingsError(
        f"there is neither the server's folder nor a party's beside {str(path)!r}; ask on a machine of one of them"
    )


def _opened(found: RunStatus, key: GroupKey | None) -> tuple[Metrics, ...]:
    return tuple(Metrics(each.epoch) if key is None else open_metrics(key, each) for each in found.history)
