"""A standing party without a server tells all others which runs it has started, and what it says to every run.

With a server all say so to that one. Here every party has runs of its own, and hears from each other party about the
runs that this one has started and about its decisions, over lines on which that one shows its own certificate.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fdml.errors import FdmlError, MessageRefused
from fdml.federation.party_home import PartyHome
from fdml.protocol.run_messages import DIFFERS, RunDecision, RunFacts, RunList, RunQuery
from fdml.protocol.signed_proposals import proposed_settings
from fdml.settings import run_hash
from fdml.transport.grpc_endpoint import Trouble
from fdml.transport.grpc_runs import RunsClient

_WAIT_SECONDS = 1.0
"""How long a party is asked to hold its answer back if nothing has changed there."""
_PAUSE = 1.0
"""Between two tries to reach a party."""


class Spreading:
    """Keeps the runs of all other parties up to date with what this party says; without others it does nothing."""

    def __init__(
        self, read: Callable[[], PartyHome], is_over: Callable[[], bool], *, report: Callable[[str, str], None]
    ) -> None:
        """`read` gives the party's keys as they are now; `report` hears of troubles, by their subject."""
        self._read = read
        self._is_over = is_over
        self._report = report
        self._own = RunList(0)
        mesh = read().mesh
        others = () if mesh is None else mesh.others
        self._threads = [
            threading.Thread(target=self._keep, args=(name,), name="runs of others", daemon=True) for name in others
        ]
        self._left = threading.Event()

    def start(self) -> None:
        """Begin to tell."""
        for thread in self._threads:
            thread.start()

    def tell(self, own: RunList) -> None:
        """The runs as this party's own session has them now."""
        self._own = own

    def _keep(self, other: str) -> None:
        """Tell one party whatever it lacks, again and again; a line that fails is made anew, with keys as they are."""
        trouble: list[Trouble] = []

        def note(why: Trouble, _: float) -> bool:
            trouble.append(why)
            return False

        while not self._is_over():
            try:
                home = self._read()
                if home.mesh is None:
                    return
                trouble.clear()
                with RunsClient(home.mesh.endpoint(other), keep_trying=note) as client:
                    self._tell_one(other, home.name, client)
            except FdmlError as error:
                why = trouble[0] if trouble else error
                self._report(f"party {other}", f"{why}; it is told of runs once it answers")
            self._left.wait(_PAUSE)

    def _tell_one(self, other: str, party: str, client: RunsClient) -> None:
        version = 0
        while not self._is_over():
            found = client.runs(RunQuery(version, _WAIT_SECONDS if version else 0.0))
            self._report(f"party {other}", "")
            version = found.version
            theirs = {facts.name: facts for facts in found.runs}
            for facts in self._own.runs:
                try:
                    tell_of(facts, theirs.get(facts.name), party, client)
                except MessageRefused as refused:
                    self._report(f"{facts.name} at {other}", f"run {facts.name!r} at party {other!r}: {refused}")


def tell_of(own: RunFacts, theirs: RunFacts | None, party: str, client: RunsClient) -> None:
    """Tell another party what it lacks of one run: that this party has started it, or what this party says to it."""
    if theirs is None:
        if own.starter == party and own.is_open:
            client.propose(own.proposal)
        return
    said, known = own.decision_of(party), theirs.decision_of(party)
    if said is None or said.rule == DIFFERS or not theirs.is_open:
        return
    if known is None or (known.choice, known.rule, known.reason) != (said.choice, said.rule, said.reason):
        digest = run_hash(proposed_settings(own.proposal))
        client.decide(RunDecision(own.name, digest, said.choice, said.rule, said.reason))
