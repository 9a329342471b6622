"""All runs of a federation at its server, without sockets, threads or sessions: who may start what, what was decided.

A run is made when a party that has the right to proposes it, waits until all parties have accepted it, and is then
open for their sessions. What was said is stored before it is answered, so a server that is started again knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.certificates import SERVER
from fdml.protocol.quoting import quoted, shown
from fdml.protocol.run_messages import (
    DIFFERS,
    LONGEST_REASON,
    PartyDecision,
    Proposal,
    RunDecision,
    RunFacts,
    RunList,
    RunQuery,
)
from fdml.protocol.signed_proposals import check_proposal, proposed_settings
from fdml.server.hosted_run import HostedRun
from fdml.settings import RunSettings
from fdml.settings.difference import difference_text, differences
from fdml.settings.federation import FederationSettings

_MOST_OPEN = 100
"""Runs that may be open at once: each waits for people or takes memory."""
_MOST_RUNS = 100_000
_HERE_SECONDS = 30.0
"""A party that stands by asks again at least this often."""
_NEW_NAME = "give the run a new name"


class RunStore(Protocol):
    """Where the records of runs are kept."""

    def load(self) -> Sequence[HostedRun]:
        """All runs that were ever saved."""
        ...

    def save(self, run: HostedRun) -> None:
        """Store a run in place of what was stored under its name; durable on return."""
        ...


class _NoRuns:
    """Of a server that has one run, whose own folder knows all about it."""

    def load(self) -> Sequence[HostedRun]:
        return ()

    def save(self, run: HostedRun) -> None:
        pass


NO_RUNS: RunStore = _NoRuns()


class RunHost:
    """The runs of one federation. With `only` the server's operator has started that run, and there is no other."""

    def __init__(
        self,
        federation: FederationSettings,
        store: RunStore,
        clock: Callable[[], float],
        *,
        authority: bytes | None = None,
        only: RunSettings | None = None,
    ) -> None:
        """`clock` gives seconds since 1970; `authority` is the certificate that signatures go back to, if any."""
        self._federation = federation
        self._store = store
        self._clock = clock
        self._authority = authority
        self._only = only
        self._runs = {run.name: run for run in store.load()}
        self._version = int(clock() * 1e6)
        self._watched: dict[str, float] = {}
        """When a party that stands by last asked."""
        self._differs: dict[tuple[str, str], PartyDecision] = {}
        """By run and party that would join it with other settings: what others are told; not stored."""
        if only is not None:
            proposal = Proposal(only.model_dump_json(exclude_unset=True).encode())
            self._runs[only.name] = HostedRun(proposal, SERVER, clock(), {})

    @property
    def version(self) -> int:
        """Another number after every change."""
        return self._version

    @property
    def names(self) -> tuple[str, ...]:
        """All runs, in the order in which they were proposed."""
        return tuple(sorted(self._runs, key=lambda name: self._runs[name].proposed_at))

    def run(self, name: str) -> HostedRun:
        """A run that was proposed, or `MessageRefused`."""
        found = self._runs.get(name)
        if found is None:
            raise MessageRefused(self._unknown(name), Refusal.NO_RUN)
        return found

    def open_run(self, party: str, name: str) -> HostedRun:
        """The run for which a party calls, or `MessageRefused` unless all have accepted it and it was not ended."""
        found = self.run(name)
        if found.state in ("refused", "stopped"):
            raise MessageRefused(_over(found), Refusal.NO_RUN)
        if found.state == "waiting":
            raise MessageRefused(
                f"party {party!r} is ahead: run {name!r} waits for {', '.join(found.undecided)} to accept it",
                Refusal.GAP,
            )
        return found

    def why_over(self, name: str) -> str:
        """Why a run that has ended is not open."""
        return _over(self.run(name))

    def propose(self, party: str, proposal: Proposal) -> RunFacts:
        """Start a run, or join one that is there with the same settings; either way the party accepts it."""
        run = proposed_settings(proposal)
        known = self._runs.get(run.name)
        try:
            self._check_federation(party, run)
            if known is not None:
                return self._accept(known, party, run)
        except MessageRefused as refused:
            if known is not None and refused.refusal is Refusal.MISMATCH:
                self._note_difference(known.name, party, str(refused))
            raise
        if self._only is not None:
            raise MessageRefused(self._unknown(run.name), Refusal.NO_RUN)
        starters = self._federation.starters
        if party not in starters:
            raise MessageRefused(
                f"run {run.name!r} has not been started yet; {' or '.join(starters) or 'nobody'} may start runs "
                f"([rights] in federation.toml), party {party!r} may not",
                Refusal.GAP,
            )
        self._check_case(run.name)
        if self._authority is not None and not proposal.signature:
            raise MessageRefused(
                f"run {run.name!r} has not been started yet: `fdml run` at its starter does, under its signature",
                Refusal.GAP,
            )
        if self._authority is not None:
            check_proposal(proposal, run, party, self._authority)
        self._check_room()
        now = self._clock()
        made = HostedRun(proposal, party, now, {})
        return self._save(made.decided(PartyDecision(party, "accepted", time=now)))

    def decide(self, party: str, decision: RunDecision) -> RunFacts:
        """Note what a party says to a run; the same again changes nothing."""
        known = self.run(decision.run)
        if decision.run_hash != known.run_hash:
            raise MessageRefused(
                f"party {party!r} decides on a run {known.name!r} with other settings than the one that was proposed; "
                f"look at it again with `fdml runs show {known.name}`",
                Refusal.MISMATCH,
            )
        said = PartyDecision(party, decision.choice, decision.rule, decision.reason, self._clock())
        before = known.decisions.get(party)
        if before is not None and replace(before, time=said.time) == said:
            return self._facts(known)
        if known.ended:
            raise MessageRefused(_over(known), Refusal.NO_RUN)
        if known.is_accepted_by(party) and decision.choice in ("waits", "refused"):
            raise MessageRefused(
                f"party {party!r} has accepted run {known.name!r}; `fdml runs stop {known.name}` ends it",
                Refusal.CONFLICT,
            )
        return self._save(known.decided(said))

    def finish(self, name: str) -> None:
        """All parties of a run have trained to the end."""
        known = self._runs[name]
        if not known.ended:
            self._save(known.finished(self._clock()))

    def listing(self, query: RunQuery) -> RunList:
        """The runs that were asked for, as they are now."""
        names = [query.run] if query.run else self.names
        found = [self._facts(self._runs[name]) for name in names if name in self._runs]
        now = self._clock()
        here = [name for name in self._federation.parties if now - self._watched.get(name, 0.0) < _HERE_SECONDS]
        wanted = tuple(each for each in found if each.is_open or not query.open_only)
        return RunList(self._version, wanted, tuple(here))

    def watches(self, party: str) -> None:
        """A party that stands by has asked for the runs."""
        is_new = self._clock() - self._watched.get(party, 0.0) >= _HERE_SECONDS
        self._watched[party] = self._clock()
        if is_new:
            self._version += 1

    def _accept(self, known: HostedRun, party: str, run: RunSettings) -> RunFacts:
        found = differences(run, known.settings)
        if found:
            text = difference_text(found, f"at party {party!r}", f"when run {known.name!r} began")
            raise MessageRefused(f"{text}; {_NEW_NAME}, or put it back", Refusal.MISMATCH)
        if known.state in ("refused", "stopped"):
            raise MessageRefused(_over(known), Refusal.NO_RUN)
        if known.ended or known.is_accepted_by(party):
            return self._facts(known)
        return self._save(known.decided(PartyDecision(party, "accepted", time=self._clock())))

    def _save(self, run: HostedRun) -> RunFacts:
        self._store.save(run)
        self._runs[run.name] = run
        self._version += 1
        for party in run.settings.parties:
            if run.ended or run.is_accepted_by(party):
                self._differs.pop((run.name, party), None)
        return self._facts(run)

    def _note_difference(self, name: str, party: str, why: str) -> None:
        """So that those who wait for the party hear why it does not come."""
        reason, known = shown(why, LONGEST_REASON), self._differs.get((name, party))
        if known is None or known.reason != reason:
            self._differs[name, party] = PartyDecision(party, "waits", DIFFERS, reason, self._clock())
            self._version += 1

    def _facts(self, run: HostedRun) -> RunFacts:
        """A run as others are told of it, with those who would join it with other settings."""
        facts, missing = run.facts, run.undecided
        more = [self._differs[run.name, party] for party in missing if (run.name, party) in self._differs]
        if not more:
            return facts
        names = [each.party for each in more]
        return replace(facts, decisions=(*(each for each in facts.decisions if each.party not in names), *more))

    def _check_federation(self, party: str, run: RunSettings) -> None:
        """Refuse a run of another federation: who takes part is not the starter's to say."""
        ours = self._federation
        who = {"federation": ours.name, "server": ours.server, "parties": ours.parties, "members": ours.members}
        found = differences(run, run.model_copy(update=who))
        if found:
            text = difference_text(found, f"at party {party!r}", "at the server")
            raise MessageRefused(f"{text}; give both sides the same federation.toml", Refusal.MISMATCH)

    def _check_case(self, name: str) -> None:
        """Refuse a name that is another run's but for capital letters: some disks take both for one folder."""
        same = next((each for each in self._runs if each.lower() == name.lower()), None)
        if same is not None:
            raise MessageRefused(
                f"there is a run {same!r}, and {name!r} differs from it by capital letters alone; {_NEW_NAME}",
                Refusal.MISMATCH,
            )

    def _check_room(self) -> None:
        still_open = sum(not run.ended for run in self._runs.values())
        if still_open >= _MOST_OPEN or len(self._runs) >= _MOST_RUNS:
            raise MessageRefused(
                f"this server has {still_open} open runs of {len(self._runs)} in all, and takes no more; end some with "
                f"`fdml runs stop`",
                Refusal.TOO_LARGE,
            )

    def _unknown(self, name: str) -> str:
        if self._only is not None:
            return f"this server has run {self._only.name!r} alone, not {quoted(name)}; check the name in run.toml"
        return f"there is no run {quoted(name)} at this server; `fdml run` starts one, `fdml runs list` has all"


def _over(run: HostedRun) -> str:
    """Why a run that has ended is not open."""
    if run.state == "finished":
        return f"run {run.name!r} is finished; {_NEW_NAME}"
    reason = f" ({run.ended_reason})" if run.ended_reason else ""
    return f"run {run.name!r} was {run.state} by {run.ended_by}{reason}; {_NEW_NAME} to start another"
