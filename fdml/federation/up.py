"""A party that stays: it watches for runs, decides on them by its policy, keeps a process up for each, and answers.

All connections go outward. Everything that has to last is in files: decisions in the log, runs in their folders. So it
may be killed at any time; a new start goes on, and processes of runs that have outlived it are left to their work.
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from fdml.errors import FdmlError, MessageRefused, SettingsError
from fdml.events import Listener
from fdml.federation.addresses import own_address
from fdml.federation.answering import Answering
from fdml.federation.deciding import Decider, told
from fdml.federation.decision_log import Decision
from fdml.federation.hosting import hosted_federation, hosts
from fdml.federation.party_home import PartyHome
from fdml.federation.processes import ChildProcess
from fdml.federation.run_children import RunChildren
from fdml.federation.run_folder import MODEL, RUNS, SETTINGS, STATE, RunFolder, begun_run, run_names
from fdml.federation.spreading import Spreading
from fdml.federation.standing import STANDING
from fdml.models.bundle import Bundle
from fdml.monitor.figures import figures_line
from fdml.monitor.listeners import remarks_of
from fdml.party.checkpoint import CheckpointStore
from fdml.party.settings import read_party
from fdml.protocol.run_messages import LONGEST_WAIT, RunFacts, RunList, RunQuery
from fdml.protocol.signed_proposals import proposed_settings
from fdml.storage.disk import FolderDisk
from fdml.storage.failures import explained_failures
from fdml.storage.lock import exclusive_lock, is_locked
from fdml.transport.grpc_endpoint import Trouble
from fdml.transport.grpc_runs import RunsClient

LOG = "join.log"
"""What the process of a run prints, in the run's folder."""
_LOG_BYTES = 2**20
"""A longer one is begun anew with the next start."""
_LOOK_SECONDS = 0.5
_STOP_SECONDS = 10.0
"""Time that processes get to end by themselves once they are asked to."""
_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
"""Between two tries to reach the server."""


@explained_failures()
def up(
    path: Path,
    *,
    plain: bool = False,
    server: str | None = None,
    on_event: Listener = lambda _: None,
    is_over: Callable[[], bool] = lambda: False,
) -> None:
    """Stand by as the party of this party.toml until it is interrupted, or `is_over()` holds.

    The host of a federation runs its standing server meanwhile. Where there is no server, a party holds the session to
    which all others come with their runs, and over which it asks.
    """
    home = PartyHome.read(path, plain=plain, server=server, on_event=on_event)
    tunnels = None if home.mesh is None else home.mesh.tunnels
    _check_consent(home)
    with exclusive_lock(home.folder / STANDING, f"`fdml up` of party {home.name!r}"), ExitStack() as hosting:
        home.log.read()  # a log that does not hold is told now
        own = home.settings
        if server is None and hosts(own.party, home.federation.host, own.federation):
            served = hosted_federation(own.federation, plain=plain, listen=own.listen, on_event=on_event)
            server = hosting.enter_context(served)
        if home.mesh is not None:
            address = own_address(home.federation, own.party, own.listen)
            hosting.enter_context(
                hosted_federation(path, plain=plain, listen=address, on_event=on_event, mesh=home.mesh)
            )
        read = partial(PartyHome.read, path, plain=plain, server=server, on_event=on_event, tunnels=tunnels)
        options = [*(["--plain"] if plain else []), *(["--server", server] if server else [])]
        Supervisor(read, options, on_event).run(is_over)


class Supervisor:
    """Brings the list of runs, the party's decisions and its processes together."""

    def __init__(self, read: Callable[[], PartyHome], options: list[str], on_event: Listener) -> None:
        """`read` gives the party's settings and keys as they are now; `options` are those of `fdml join`."""
        self._read = read
        self._home = home = read()
        self._options = options
        self._on_event = on_event
        self._remark = remarks_of(home.name, on_event)
        self._children = RunChildren(self._start, self._is_in_use, time.monotonic, self._remark, self._outcome)
        self._lists: queue.SimpleQueue[RunList] = queue.SimpleQueue()
        self._over = threading.Event()
        self._wanted: set[str] = set()
        self._stopped: set[str] = set()
        self._finished: set[str] = set()
        """Runs that are over at the server, and of which this party has its model."""
        self._unfinished_by_some: frozenset[str] | None = None
        """Runs that not all parties have finished, so that their versions do not count; None before the first list."""
        self._spreading = Spreading(read, self._over.is_set, report=self._report)
        self._answering = Answering(read, self._counts, on_event=on_event, report=self._report)
        self._last_at_once = home.settings.policy.at_once
        self._reported: dict[str, str] = {}
        self._trouble = ""
        """What was last wrong with the line to the server."""

    def run(self, is_over: Callable[[], bool]) -> None:
        """Stand by; leaving ends the processes of all runs, which go on with the next start."""
        self._remark(f"party {self._home.name!r} stands by for runs at {self._home.endpoint.target}")
        watch = threading.Thread(target=self._watch, name="watch", daemon=True)
        watch.start()
        self._spreading.start()
        self._answering.start()
        try:
            while not is_over():
                self._look()
        finally:
            self._over.set()
            self._answering.stop()
            self._end_children()

    # Watching

    def _watch(self) -> None:
        """Ask for the runs again and again; what the server says is acted on by the main thread."""
        version, pause = 0, _PAUSE
        while not self._over.is_set():
            try:
                with RunsClient(self._home.endpoint, on_event=self._on_event, keep_trying=self._note) as client:
                    while not self._over.is_set():
                        found = client.runs(RunQuery(version, 0.0 if not version else LONGEST_WAIT / 2))
                        version, pause = found.version, _PAUSE
                        self._lists.put(found)
                        self._note_answer()
            except FdmlError as error:
                self._report("server", self._trouble or str(error))
                version, self._trouble = 0, ""
                self._over.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                self._read_again()

    def _note(self, trouble: Trouble, _: float) -> bool:
        """The line has failed; a new one is made, with keys and address as they are then."""
        self._trouble = f"{trouble}; it is tried again until it answers"
        return False

    def _note_answer(self) -> None:
        if self._reported.pop("server", ""):
            self._remark(f"{self._home.endpoint.place} answers now")

    def _read_again(self) -> None:
        """There may be a new certificate, or another address of the server."""
        try:
            self._home = self._read()
        except FdmlError as error:
            self._report("party.toml", str(error))

    def _look(self) -> None:
        try:
            found = self._lists.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            pass
        else:
            self._consider(found)
        self._children.look(self._wanted, self._stopped)

    # Deciding

    def _consider(self, found: RunList) -> None:
        self._spreading.tell(found)
        turns, unfinished = [], []
        try:
            Decider(self._home).note_ends(found.runs)
        except FdmlError as error:
            self._report("log", str(error))
        for facts in found.runs:
            try:
                if facts.is_open and self._takes_part(facts):
                    turns.append(facts.name)
                elif self._is_unfinished(facts):
                    unfinished.append(facts.name)
            except FdmlError as error:
                self._report(facts.name, f"run {facts.name!r}: {error}")
        at_once = self._at_once()
        for name in turns[at_once:]:  # all parties have the same order, so the first run is in everyone's turn
            self._report(f"turn of {name}", f"run {name!r} waits for its turn; policy.at_once is {at_once}")
        self._report_ends(found)
        self._wanted = {*turns[:at_once], *unfinished}
        self._unfinished_by_some = frozenset(each.name for each in found.runs if each.state != "finished")
        self._stopped = {each.name for each in found.runs if each.state in ("refused", "stopped")}

    def _report_ends(self, found: RunList) -> None:
        """Say which of the runs that were told of here somebody has ended since."""
        for facts in found.runs:
            if facts.state in ("refused", "stopped") and facts.name in self._reported:
                reason = f" ({facts.ended_reason})" if facts.ended_reason else ""
                self._report(facts.name, f"run {facts.name!r} was {facts.state} by {facts.ended_by}{reason}")

    def _at_once(self) -> int:
        """As party.toml says now, or said when it could last be read."""
        try:
            self._last_at_once = read_party(self._home.file).policy.at_once
        except FdmlError as error:
            self._report("party.toml", str(error))
        return self._last_at_once

    def _takes_part(self, facts: RunFacts) -> bool:
        """Decide on a run, tell the server if it does not know, and say whether its process is wanted."""
        decider = Decider(self._home)
        decision = decider.decide(facts)
        self._report(facts.name, _text_of(decision, self._home.file))
        known = facts.decision_of(self._home.name)
        if known is None or known.choice != decision.choice:
            try:
                with self._home.client(on_event=self._on_event) as client:
                    facts = client.decide(told(decision))
            except MessageRefused as refused:
                self._report(facts.name, f"run {facts.name!r}: {refused}")
        if decision.choice != "accepted" or facts.state != "running":
            return False
        not_yet = decider.why_not_yet(proposed_settings(facts.proposal), decision)
        self._report(f"hours of {facts.name}", f"run {facts.name!r} does not begin yet: {not_yet}" if not_yet else "")
        return not not_yet

    def _is_unfinished(self, facts: RunFacts) -> bool:
        """Whether a run is over at the server, and this party has not written its model yet."""
        home, name = self._home.folder, facts.name
        if facts.state != "finished" or name in self._finished or name not in run_names(home):
            return False
        run = RunFolder(home, begun_run(home, name))
        is_done = run.is_forgotten or not run.state.is_dir()
        if is_done or CheckpointStore(FolderDisk(run.state)).result() is not None:
            self._finished.add(name)
        return name not in self._finished

    def _counts(self, run: str) -> bool:
        """Whether the version of a run counts: the server does not say that somebody has not finished it.

        A run that was trained over a server of its own is not in the list; then the answers alone confirm it.
        """
        return self._unfinished_by_some is not None and run not in self._unfinished_by_some

    # Processes

    def _start(self, name: str) -> ChildProcess:
        folder = self._home.folder / RUNS / name
        if not (folder / SETTINGS).is_file():
            raise SettingsError(
                f"{str(folder)!r} has no {SETTINGS} any more; put the folder back, or end the run with `fdml runs stop "
                f"{name}`"
            )
        log = folder / LOG
        mode = "a" if log.exists() and log.stat().st_size < _LOG_BYTES else "w"
        words = ["join", str(self._home.file), "--run", str(folder / SETTINGS), *self._options]
        with log.open(mode, encoding="utf-8") as output:
            log.chmod(0o600)
            process = subprocess.Popen(
                [sys.executable, "-m", "fdml", *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                process_group=0,
            )
        self._remark(f"run {name!r} is under way; {log} has what its process says")
        return ChildProcess(name, process, log)

    def _outcome(self, name: str) -> str:
        """What came of a run: figures at the label party, and where the model is."""
        folder = self._home.folder / RUNS / name / MODEL
        if not folder.is_dir():
            return ""
        card = Bundle.load(folder).card
        found = [] if not card.figures else [figures_line(dict([next(iter(card.figures.items()))]))]
        found += [] if card.compared is None else [card.compared.text]
        return f"{': ' * bool(found)}{', '.join(found)}; model in {folder}"

    def _is_in_use(self, name: str) -> bool:
        return is_locked(self._home.folder / RUNS / name / STATE)

    def _end_children(self) -> None:
        self._children.stop()
        deadline = time.monotonic() + _STOP_SECONDS
        while self._children.are_running() and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS / 10)
        self._children.stop(signal.SIGKILL)

    def _report(self, about: str, text: str) -> None:
        """Say something once, until it changes."""
        if self._reported.get(about, "") != text:
            self._reported[about] = text
            if text:
                self._remark(text)


def _check_consent(home: PartyHome) -> None:
    """Nobody is there to be asked, so limits must say how many rows another party may bring."""
    if home.settings.align.max_rows is None:
        raise SettingsError(
            f"party {home.name!r} stands by without a person, and nothing says how many rows another party may bring "
            f"to find out which of them it holds; set align.max_rows in {str(home.file)!r}"
        )


def _text_of(decision: Decision, file: Path) -> str:
    words = {"waits": "waits for a person", "accepted": "is accepted", "refused": "is refused", "stopped": "is stopped"}
    more = f" ({decision.rule}: {decision.reason})" if decision.choice in ("waits", "refused") else ""
    how = f"; `fdml runs approve {decision.run} --party {file}` or `refuse`" if decision.choice == "waits" else ""
    return f"run {decision.run!r} of {decision.starter} {words[decision.choice]}{more}{how}"
