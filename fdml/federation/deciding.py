"""What a party says to a proposed run: whether it is what it claims to be, and what the policy says of it."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from fdml.errors import MessageRefused, Refusal, SettingsError
from fdml.federation.decision_log import FOLDER, Choice, Decision, DecisionLog, latest
from fdml.federation.party_home import PartyHome
from fdml.federation.run_folder import MODEL, RUNS, SETTINGS, STATE, RunFolder, begun_run, run_names
from fdml.federation.versions import why_not_here
from fdml.party.alignment_store import aligned_row_count
from fdml.party.checkpoint import CheckpointStore
from fdml.party.planned_spending import planned_run, shown_of_labels, spending_of
from fdml.party.policy import PolicyAnswer, ProposedRun, answer_of, hours_objection
from fdml.party.settings import read_party
from fdml.privacy.accounts import RunAccount
from fdml.protocol.alignment_identity import alignment_hash
from fdml.protocol.run_messages import RunDecision, RunFacts
from fdml.protocol.signed_proposals import check_proposal, proposed_settings
from fdml.settings import GuardSettings, RunSettings, run_hash
from fdml.settings.difference import difference_text, differences
from fdml.storage.disk import FolderDisk
from fdml.storage.lock import shared_turns

_CHOICES: dict[str, Choice] = {"accept": "accepted", "ask": "waits", "refuse": "refused"}

_TURN = "turn"
"""Where, beside the log, the lock is of whoever decides."""


class Decider:
    """One party's decisions. The log is what counts: what the server says that this party has decided does not."""

    def __init__(self, home: PartyHome, now: Callable[[], datetime.datetime] = datetime.datetime.now) -> None:
        self._home = home
        self._now = now

    @property
    def log(self) -> DecisionLog:
        """What was decided up to now."""
        return self._home.log

    def last_on(self, run: RunSettings) -> Decision | None:
        """What was last decided on a run with these settings; None if nothing was."""
        return latest(self.log.read()).get((run.name, run_hash(run).hex()))

    def in_turn(self) -> AbstractContextManager[None]:
        """Processes of this party decide in turns: none accepts a run by a log that another is about to add to."""
        return shared_turns(self._home.folder / FOLDER / _TURN)

    def decide(self, facts: RunFacts) -> Decision:
        """The party's decision on a run, written to its log if it is a new one.

        A run that waits for a person is looked at again, as hours begin and party.toml is changed.
        """
        try:
            run = self.checked(facts)
        except MessageRefused as refused:
            return self._note(facts, _hash_of(facts), PolicyAnswer("refuse", "proposal", str(refused)))
        with self.in_turn():
            known = self.last_on(run)
            if known is not None and known.choice != "waits":
                return known
            answer = self.answer(run, facts.starter)
            if known is not None and (known.choice, known.rule) == (_CHOICES[answer.outcome], answer.rule):
                return known
            return self._note(facts, run_hash(run).hex(), answer)

    def note_ends(self, runs: Iterable[RunFacts]) -> None:
        """Write down which accepted runs somebody has ended, as the server says: such a run does not go on here.

        That a run is finished is seen here, and not believed.
        """
        accepted = {key: each for key, each in latest(self.log.read()).items() if each.choice == "accepted"}
        names = {name for name, _ in accepted}
        for facts in runs:
            if facts.state not in ("refused", "stopped") or facts.name not in names:
                continue
            known = accepted.get((facts.name, _hash_of(facts)))
            if known is not None:
                reason = f": {facts.ended_reason}" if facts.ended_reason else ""
                text = f"{facts.state} by {facts.ended_by}{reason}"
                self.log.append(replace(known, choice="stopped", by="server", rule=facts.state, reason=text))

    def why_not_yet(self, run: RunSettings, decision: Decision) -> str:
        """Why a run that the policy has accepted may not begin now; empty if it may, or has begun."""
        if decision.by != "policy" or RunFolder(self._home.folder, run).state.is_dir():
            return ""
        return hours_objection(read_party(self._home.file).policy, self._now())

    def checked(self, facts: RunFacts) -> RunSettings:
        """The settings of a proposed run, or `MessageRefused` unless its starter has signed it and may start it."""
        home, run = self._home, proposed_settings(facts.proposal)
        ours = home.federation
        found = differences(run.model_copy(update=ours.of_every_run), run)
        if found or run.name != facts.name:
            text = difference_text(found, "here", f"at {facts.starter}") or f"it is called {run.name!r}"
            raise MessageRefused(f"it is no run of this federation: {text}", Refusal.MISMATCH)
        if facts.starter not in ours.starters:
            raise MessageRefused(
                f"{facts.starter!r} has no right to start runs ([rights] in federation.toml)", Refusal.NOT_PERMITTED
            )
        keys = home.endpoint.credentials
        if keys is not None:
            check_proposal(facts.proposal, run, facts.starter, keys.authority, keys.revoked())
        return run

    def answer(self, run: RunSettings, starter: str) -> PolicyAnswer:
        """What the policy of party.toml, as it is now, says of a run."""
        own = read_party(self._home.file)
        try:
            RunFolder(self._home.folder, run)
        except SettingsError as error:
            return PolicyAnswer("refuse", "name", str(error))
        lacks = why_not_here(self._home.folder, own, run)
        if lacks:
            return PolicyAnswer("refuse", f"from.{run.from_version or run.compared_version}", lacks)
        try:
            planned = self._planned(run, own.guard)
            others = [each for each in self._accepted() if each != run]
            accepted = [self._planned(each, own.guard) for each in others]
        except SettingsError as error:
            return PolicyAnswer("refuse", "guard", str(error))
        accounts = self._home.accounts()
        labels = shown_of_labels(own.party, own.data.label or "", [*others, run], accounts)
        spending = replace(spending_of(planned, own.guard, accounts, accepted), label_epsilon=labels)
        rows, taken = known_rows(self._home.folder, run), runs_of_search(self._home.folder, run)
        proposed = ProposedRun(run, starter, own.model.kind, spending, rows, taken)
        return answer_of(own.policy, proposed, self._now(), own.guard.total_epsilon)

    def record(self, run: RunSettings, starter: str, choice: Choice, rule: str = "", reason: str = "") -> Decision:
        """Write down what a person has decided, in a turn. A run that is accepted gets its folder here."""
        return self._write(Decision(run.name, run_hash(run).hex(), starter, choice, "person", rule, reason), run)

    def _planned(self, run: RunSettings, guard: GuardSettings) -> RunAccount:
        return planned_run(run, guard, known_rows(self._home.folder, run))

    def _accepted(self) -> list[RunSettings]:
        """The runs that this party has accepted and that are not over here, whatever the server says."""
        known = latest(self.log.read())
        begun = [begun_run(self._home.folder, name) for name in run_names(self._home.folder)]
        chosen = [(run, known.get((run.name, run_hash(run).hex()))) for run in begun]
        accepted = [run for run, decision in chosen if decision is not None and decision.choice == "accepted"]
        return [run for run in accepted if not self._is_over(RunFolder(self._home.folder, run))]

    def _is_over(self, run: RunFolder) -> bool:
        """Whether a run can release nothing more."""
        if run.is_forgotten or (run.path / MODEL).is_dir():
            return True
        return run.state.is_dir() and CheckpointStore(FolderDisk(run.state)).result() is not None

    def _note(self, facts: RunFacts, digest: str, answer: PolicyAnswer) -> Decision:
        choice = _CHOICES[answer.outcome]
        decision = Decision(facts.name, digest, facts.starter, choice, "policy", answer.rule, answer.reason)
        known = latest(self.log.read()).get((facts.name, digest))
        if known == decision:
            return known
        return self._write(decision, proposed_settings(facts.proposal) if choice == "accepted" else None)

    def _write(self, decision: Decision, run: RunSettings | None) -> Decision:
        if run is not None and decision.choice == "accepted":
            RunFolder(self._home.folder, run).begin()
        self.log.append(decision)
        return decision


def runs_without_decision(home: PartyHome) -> list[str]:
    """Runs that have begun here and that no line accepts: lines at the end of the log may have been cut off."""
    decisions = [each.decision for each in (*home.log.older(), *home.log.read())]
    accepted = {(each.run, each.run_hash) for each in decisions if each.choice == "accepted"}
    begun = [begun_run(home.folder, name) for name in run_names(home.folder)]
    return [run.name for run in begun if (run.name, run_hash(run).hex()) not in accepted]


def known_rows(home: Path, run: RunSettings) -> int | None:
    """How many rows a run would train on, by the last run here with the same way of matching; None if none is known."""
    began = sorted(run_names(home), key=lambda name: (home / RUNS / name / SETTINGS).stat().st_mtime, reverse=True)
    for name in began:
        other, disk = begun_run(home, name), home / RUNS / name / STATE
        same = alignment_hash(other) == alignment_hash(run) and other.evaluation.holdout == run.evaluation.holdout
        if same and disk.is_dir() and (rows := aligned_row_count(FolderDisk(disk))) is not None:
            return rows
    return None


def runs_of_search(home: Path, run: RunSettings) -> int:
    """How many other runs of a run's search have begun here."""
    if run.search is None:
        return 0
    others = [begun_run(home, name) for name in run_names(home) if name != run.name]
    return sum(other.search == run.search for other in others)


def told(decision: Decision) -> RunDecision:
    """What the others are told: the choice, the rule's name, and of a person's words the reason."""
    reason = decision.reason if decision.by == "person" else ""
    return RunDecision(decision.run, bytes.fromhex(decision.run_hash), decision.choice, decision.rule, reason)


def _hash_of(facts: RunFacts) -> str:
    """Of settings that may be nonsense."""
    try:
        return run_hash(proposed_settings(facts.proposal)).hex()
    except MessageRefused:
        return "00" * 32
