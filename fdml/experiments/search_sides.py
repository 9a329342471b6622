"""How the runs of a search are carried out: at parties that stand by, or with all sides on this machine."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from fdml.errors import MessageRefused, PartyFailed, PeerTimeout, PrivacyBudgetSpent, SettingsError
from fdml.events import Listener
from fdml.experiments.search import End
from fdml.experiments.search_settings import Candidate, Search
from fdml.federation.party_home import PartyHome
from fdml.federation.processes import run_processes
from fdml.federation.run_folder import RUNS, RunFolder
from fdml.federation.runs import decide, start, waits_text
from fdml.federation.up import LOG
from fdml.party.settings import PartySettings, read_party
from fdml.privacy.accounts import AccountFile, LedgerAccounts
from fdml.protocol.run_messages import LONGEST_REASON, RunFacts, RunQuery
from fdml.settings.file import written_table
from fdml.storage.disk import FolderDisk

_LINE_SECONDS = 600.0
"""For how long a server that is away is tried again."""
_LOOK_SECONDS = 2.0
_DIVERGED = "training has diverged"
"""In what a party's process says: the same settings would diverge again."""
_WAITED = " waited "
"""In what it says where others are missing: they may come back."""
_MOST_FAILURES = 3
"""So often a process may end with the same words."""


class StandingSides:
    """This party proposes each run, and the others that stand by take it as their policies allow."""

    def __init__(
        self,
        home: PartyHome,
        *,
        accept_seconds: float,
        run_seconds: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`accept_seconds` is how long to wait until all parties have accepted a run before going on with the next."""
        self.homes: Mapping[str, Path] = {home.name: home.folder}
        self._home = home
        self._accept_seconds = accept_seconds
        self._run_seconds = run_seconds
        self._clock = clock
        if home.name not in home.federation.starters:
            raise SettingsError(f"party {home.name!r} has no right to start runs ([rights] in federation.toml)")

    def settings(self, party: str) -> PartySettings:
        """This party's."""
        del party
        return self._home.settings

    def accounts(self, party: str) -> LedgerAccounts:
        """This party's."""
        del party
        return self._home.accounts()

    def carry_out(self, candidate: Candidate) -> End:
        """Propose a run and wait for its end; one that some party keeps waiting is left for later."""
        with self._home.client(_LINE_SECONDS) as client:
            known = client.run(candidate.name)
        if known is None or known.is_open:
            RunFolder(self._home.folder, candidate.run).set_own_model(candidate.models.get(self._home.name, {}))
            try:
                known = start(self._home, candidate.run).facts
            except (MessageRefused, PrivacyBudgetSpent, SettingsError) as error:
                return End("refused", str(error))
        return self._end_of(self._waited_for(known))

    def _waited_for(self, facts: RunFacts) -> RunFacts:
        """The run once it is over, or waits for too long."""
        began, state, version = self._clock(), facts.state, 0
        with self._home.client(_LINE_SECONDS) as client:
            while facts.is_open:
                passed = self._clock() - began
                if facts.state == "waiting" and passed >= self._accept_seconds:
                    return facts
                why = self._why_hopeless(facts, passed)
                if why:
                    return decide(self._home, facts.name, "stopped", why[:LONGEST_REASON])
                found = client.runs(RunQuery(version, _LOOK_SECONDS if version else 0.0))
                version = found.version
                facts = next((each for each in found.runs if each.name == facts.name), facts)
                if facts.state != state:
                    began, state = self._clock(), facts.state
        return facts

    def _why_hopeless(self, facts: RunFacts, passed: float) -> str:
        """Why a run that is under way is not waited for any longer; empty where it is."""
        if facts.state != "running":
            return ""
        if self._run_seconds is not None and passed >= self._run_seconds:
            return f"not over after run_seconds = {self._run_seconds:g}"
        log = self._home.folder / RUNS / facts.name / LOG
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
        failures = [line.removeprefix("fdml: ") for line in lines if line.startswith("fdml: ")]
        last = failures[-_MOST_FAILURES:]
        again = len(last) == _MOST_FAILURES and len(set(last)) == 1 and _WAITED not in last[0]
        return next((each for each in failures if _DIVERGED in each), last[0] if again else "")

    def _end_of(self, facts: RunFacts) -> End:
        match facts.state:
            case "finished":
                return End("finished")
            case "refused":
                return End("refused", f"by {facts.ended_by}: {facts.ended_reason}")
            case "stopped" if facts.ended_by == self._home.name:
                return End("failed", facts.ended_reason)
            case "stopped":
                return End("stopped", f"by {facts.ended_by}: {facts.ended_reason}")
            case _:
                return End("waiting", f"for {waits_text(facts)}")


class OneMachine:
    """The server and all parties as processes of this machine, anew for every run; their folders are kept."""

    def __init__(self, search: Search, *, plain: bool = False, on_event: Listener = lambda _: None) -> None:
        self._search = search
        self._plain = plain
        self._on_event = on_event
        folder = search.federation_path.parent
        self.homes: Mapping[str, Path] = {party: folder / party for party in search.federation.parties}

    def settings(self, party: str) -> PartySettings:
        """A party's."""
        return read_party(self.homes[party] / "party.toml")

    def accounts(self, party: str) -> LedgerAccounts:
        """A party's."""
        return AccountFile(FolderDisk(self.settings(party).ledger)).read()

    def carry_out(self, candidate: Candidate) -> End:
        """Run it to its end, going on where an earlier start was stopped."""
        for party, home in self.homes.items():
            RunFolder(home, candidate.run).set_own_model(candidate.models.get(party, {}))
        whole = {**candidate.values, "name": candidate.name, "search": candidate.run.search}
        with tempfile.TemporaryDirectory(prefix="fdml-tune-") as name:
            path = Path(name) / f"{candidate.name}.toml"
            path.write_text(written_table(whole), encoding="utf-8")
            try:
                run_processes(path, federation=self._search.federation_path, plain=self._plain, on_event=self._on_event)
            except (PartyFailed, PeerTimeout) as error:
                return End("failed", str(error))
        return End("finished")
