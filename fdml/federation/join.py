"""One party of a run: it aligns its rows, trains with the others, and saves its model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from fdml.data.origins import Origin
from fdml.errors import AlignmentError, FdmlError, SettingsError
from fdml.events import Listener
from fdml.federation.accepting import await_acceptance, joining_proposal
from fdml.federation.addresses import check_no_server, own_address
from fdml.federation.decision_log import Decision, latest
from fdml.federation.hosting import hosted_run, hosts
from fdml.federation.mesh import Mesh
from fdml.federation.page_process import reached_here
from fdml.federation.party_folder import HISTORY, PartyFolder
from fdml.federation.party_home import decision_log
from fdml.federation.publish import publish
from fdml.federation.run_folder import MODEL, SETTINGS, settings_in
from fdml.federation.run_report import write_report
from fdml.federation.standing import STANDING
from fdml.federation.tracking import check_trackers, tracked
from fdml.federation.versions import with_versions
from fdml.monitor.history import HistoryFile
from fdml.monitor.listeners import all_of, remarks_of
from fdml.monitor.measures import MEASURES, MeasuresFile
from fdml.party.alignment import SharedRows
from fdml.party.checkpoint import SavedState
from fdml.party.consent import Ask
from fdml.party.driver import run_alignment, run_session
from fdml.party.effects import PartyResult
from fdml.party.session import PartySession
from fdml.party.settings import PartySettings, read_party
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.certificates import SERVER
from fdml.settings import RunSettings, evaluation_schedule, run_hash
from fdml.settings.federation import FederationSettings, read_run
from fdml.storage.failures import explained_failures
from fdml.storage.lock import is_locked
from fdml.transport.grpc_channel import GrpcChannel
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.mesh_channel import MeshChannel
from fdml.transport.wait_report import WaitReport

Lines = Callable[[Listener, float | None], AbstractContextManager[GrpcChannel | MeshChannel]]
"""Opens a party's line to the server, or its lines to all parties."""


@explained_failures()
def join(
    path: Path,
    run: Path | None = None,
    *,
    name: str | None = None,
    begin_with: str | None = None,
    plain: bool = False,
    server: str | None = None,
    wait: float | None = None,
    yes: bool = False,
    ask: Ask | None = None,
    origins: Sequence[Origin] | None = None,
    on_event: Listener = lambda _: None,
    settings: PartySettings | None = None,
    port_file: Path | None = None,
) -> PartyResult:
    """Take part in a run to its end, going on from where an earlier start was stopped.

    `path` is the party's party.toml; `run` is the run.toml, if not the one beside federation.toml. `name` and
    `begin_with` take the place of `name` and `from` in it; all parties need the same.
    `server` is where the server is, if not where party.toml or federation.toml says. `wait` is how many seconds the
    server or other parties may be missing before the run is under way; None waits as long as it takes. `yes`
    consents to the shared rows being told to all parties, `ask` puts that question to
    a person; else align.max_rows in party.toml decides. `origins` and `settings` take the
    place of what party.toml says. A party that hosts the server writes the port at which that listens to
    `port_file`. In a process of its own, `machine_limits.tune_party_process` makes it faster.
    """
    party = read_party(path) if settings is None else settings
    agreed = _begun(run)
    if name is not None or begin_with is not None:
        changed = partial(with_versions, path.parent, name=name, begin_with=begin_with)
        agreed = read_run(run, party.federation, changed)
    folder = PartyFolder(path, agreed, origins=origins, settings=party)
    check_trackers(folder.settings.track)
    folder.settings.workers.check()
    with folder.lock(), ExitStack() as held:
        if folder.run.is_mesh:
            check_no_server(server)
            keys = folder.credentials(plain=plain, on_event=on_event)
            mesh = Mesh(FederationSettings.of_run(folder.run), party.party, folder.path, keys)
            own, takers = held.enter_context(_own_session(folder, mesh, port_file, on_event, plain=plain))
            endpoints = [mesh.endpoint(name, own) for name in takers]
            lines: Lines = partial(mesh.channel, folder.run, own)
        else:
            server = held.enter_context(_server(folder, server, port_file, on_event, plain=plain))
            endpoints = [folder.endpoint(plain=plain, server=server, on_event=on_event)]
            lines = partial(_channel, folder.run, endpoints[0])
        return _join(folder, endpoints, lines, wait=wait, yes=yes, ask=ask, on_event=on_event)


def _join(
    folder: PartyFolder,
    endpoints: Sequence[Endpoint],
    lines: Lines,
    *,
    wait: float | None,
    yes: bool,
    ask: Ask | None,
    on_event: Listener,
) -> PartyResult:
    """Take part, with the folder locked. The endpoints take proposals: of the server, or where there is none, of all
    who stand by, or of who compares ids."""
    endpoint = endpoints[0]
    with ExitStack() as held:
        folder.run_folder.begin()
        saved, remark = folder.load(), remarks_of(folder.settings.party, on_event)
        is_new = saved.checkpoint is None and saved.result is None  # a run under way was accepted by all
        if is_new and (decision := _decision(folder, endpoint)) is not None and decision.by == "policy":
            folder.accepted_by = folder.settings.policy
        folder.files.remark = remark
        known = () if saved.checkpoint is None else saved.checkpoint.progress.history
        history = HistoryFile(folder.run_folder.path / HISTORY, known=known, remark=remark)
        held.callback(history.sync)
        measures = MeasuresFile(folder.run_folder.path / MEASURES) if saved.result is None else None
        heard: list[Listener] = [each for each in (history, measures, on_event) if each is not None]
        if saved.result is None:
            heard += tracked(held, folder.settings, folder.run, folder.run_folder.path, remark)
        listener = all_of(*heard)
        session = PartySession(folder.member(endpoint, yes=yes, ask=ask), saved, time.monotonic)
        if is_new:
            _accept(folder, endpoints, on_event, wait)
        with lines(listener, wait) as channel, _measured(measures, channel):
            result = run_session(session, channel, folder, listener)
        try:
            publish(folder)
        except FdmlError as error:  # the model is there all the same
            remark(f"nobody can ask for predictions of this model: {error}")
        lacking = _lacking(folder, history) if saved.result is None else ""
        if lacking:
            remark(f"{HISTORY} lacks {lacking}: an earlier start had evaluated them, and its figures are lost")
        write_report(folder.path, folder.settings.party, folder.run.name)
    return replace(result, bundle=folder.run_folder.path / MODEL)  # an earlier start may have written it


@explained_failures()
def align(
    path: Path,
    run: Path | None = None,
    *,
    plain: bool = False,
    server: str | None = None,
    wait: float | None = None,
    yes: bool = False,
    ask: Ask | None = None,
    on_event: Listener,
) -> SharedRows:
    """Find a party's shared rows with the others, put its features in their order, and store both for `join`."""
    folder = PartyFolder(path, _begun(run))
    own = folder.settings
    if folder.run.is_mesh or (server is None and hosts(own.party, folder.run.host, own.federation)):
        raise SettingsError(
            f"party {own.party!r} has what the others align with in its own process, and `fdml align` "
            f"would end it before they have their rows; `fdml join` aligns as well, or have the host stand by with "
            f"`fdml up` first"
        )
    endpoint = folder.endpoint(plain=plain, server=server, on_event=on_event)
    with folder.lock():
        folder.run_folder.begin()
        session = PartySession(folder.member(endpoint, yes=yes, ask=ask), SavedState(), time.monotonic)
        if folder.shared_rows() is None:  # else nobody has to be asked for anything
            _accept(folder, [endpoint], on_event, wait)
        with _channel(folder.run, endpoint, on_event, wait) as channel:
            run_alignment(session, channel, folder, on_event)
        shared = folder.shared_rows()
        if shared is None:
            raise AlignmentError("the alignment was not stored; run the same command again")
        folder.files.rows(shared)
    return shared


@contextmanager
def _server(
    folder: PartyFolder, server: str | None, port_file: Path | None, on_event: Listener, *, plain: bool
) -> Iterator[str | None]:
    """Where the server is, if not where the settings say; one that this party hosts is up meanwhile."""
    own = folder.settings
    if server is not None or not hosts(own.party, folder.run.host, own.federation):
        yield server
        return
    with hosted_run(
        own.federation, folder.run, plain=plain, listen=own.listen, port_file=port_file, on_event=on_event
    ) as address:
        yield address


@contextmanager
def _own_session(
    folder: PartyFolder, mesh: Mesh, port_file: Path | None, on_event: Listener, *, plain: bool
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The session that sums for this party, where there is no server: where it is reached, and whose take proposals.

    It is up meanwhile, unless this party stands by: then it is that of `fdml up`, and so it is with all others.
    """
    run = folder.run
    own = own_address(FederationSettings.of_run(run), mesh.party, folder.settings.listen)
    if is_locked(folder.path / SERVER / STANDING):
        yield reached_here(own), (mesh.party, *mesh.others)
        return
    with hosted_run(
        folder.file, run, plain=plain, listen=own, port_file=port_file, on_event=on_event, mesh=mesh
    ) as address:
        yield address, (run.comparer,)


def _begun(run: Path | None) -> Path | RunSettings | None:
    """A run.json is that of a run that was accepted before: its folder has all settings."""
    if run is None or run.name != SETTINGS:
        return run
    found = settings_in(run.parent)
    if found is None:
        raise SettingsError(f"there is no {str(run)!r}: no run has begun there; name its run.toml, or correct the path")
    return found


def _decision(folder: PartyFolder, endpoint: Endpoint) -> Decision | None:
    """What this party has last decided on the run."""
    log = decision_log(folder.path, endpoint.credentials)
    return latest(log.read()).get((folder.run.name, run_hash(folder.run).hex()))


def _accept(folder: PartyFolder, endpoints: Sequence[Endpoint], on_event: Listener, wait: float | None) -> None:
    """Write down that this party takes part, tell whoever takes proposals, and wait until all parties do."""
    endpoint = endpoints[0]
    run, party, known = folder.run, folder.settings.party, _decision(folder, endpoint)
    if known is None or known.choice == "waits":
        known = Decision(run.name, run_hash(run).hex(), party, "accepted", "person", reason="fdml join")
        decision_log(folder.path, endpoint.credentials).append(known)
    elif known.choice != "accepted":
        raise SettingsError(
            f"party {party!r} has {known.choice} run {run.name!r} ({known.rule or known.reason}); give the run a new "
            f"name"
        )
    proposal = joining_proposal(run, party, known.starter, endpoint.credentials)
    longest = math.inf if wait is None else wait
    for each in endpoints:
        await_acceptance(each, proposal, run.parties, on_event, longest=longest)


def _lacking(folder: PartyFolder, history: HistoryFile) -> str:
    """Epochs that were evaluated and are not in the label party's history."""
    run, shared = folder.run, folder.shared_rows()
    if folder.settings.party != run.label_party or shared is None or not len(shared.held_out):
        return ""
    agreed = agreed_training(run.training, len(shared.train), len(run.parties), shared.line)
    epochs = agreed.exchanges or agreed.epochs
    return history.lacking(epochs, each_epoch=evaluation_schedule(run) == "epoch")


@contextmanager
def _measured(measures: MeasuresFile | None, channel: GrpcChannel | MeshChannel) -> Iterator[None]:
    """Count what this channel carries, and write it down however the run ends."""
    if measures is None:  # the run was over before
        yield
        return
    measures.line = channel
    try:
        yield
    finally:
        measures.save()


@contextmanager
def _channel(run: RunSettings, endpoint: Endpoint, on_event: Listener, wait: float | None) -> Iterator[GrpcChannel]:
    waits = WaitReport(endpoint, on_event, longest=math.inf if wait is None else wait)
    channel = GrpcChannel(endpoint, run, run.training.peer_timeout_seconds, on_event, waits)
    try:
        yield channel
    finally:
        channel.close()
