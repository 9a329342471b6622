"""A host of runs without a network, for tests."""

from __future__ import annotations

from fdml.protocol.run_messages import RunDecision
from fdml.protocol.signed_proposals import make_proposal
from fdml.server.host import NO_RUNS, RunHost
from fdml.server.hosted_run import HostedRun
from fdml.settings import TrainingSettings, run_hash
from fdml.settings.federation import FederationSettings, RightsSettings

FEDERATION = FederationSettings(name="shop", parties=("ann", "bob", "cid"))


class StoredRuns:
    """Records as a disk has them: bytes."""

    def __init__(self):
        self.files = {}

    def load(self):
        return [HostedRun.from_json(raw, name) for name, raw in self.files.items()]

    def save(self, run):
        self.files[run.name] = run.to_json()


class Now:
    """Seconds since 1970, moved by hand."""

    def __init__(self):
        self.seconds = 1000.0

    def __call__(self):
        return self.seconds


def run_of(name="first", federation=FEDERATION, **training):
    return federation.run(name=name, label_party="ann", training=TrainingSettings(**{"epochs": 3, **training}))


class Hosted:
    """A host and its disk, for parties that speak in turn."""

    def __init__(self, federation=FEDERATION, only=None, **options):
        self.federation = federation
        self.store = StoredRuns() if only is None else NO_RUNS
        self.now = Now()
        self._only = only
        self._options = options
        self.restart()

    def restart(self):
        self.now.seconds += 1
        self.host = RunHost(self.federation, self.store, self.now, only=self._only, **self._options)

    def propose(self, party, run=None, credentials=None):
        run = run or run_of(federation=self.federation)
        return self.host.propose(party, make_proposal(run, party, credentials))

    def decide(self, party, choice, run=None, **more):
        run = run or run_of(federation=self.federation)
        return self.host.decide(party, RunDecision(run.name, run_hash(run), choice, **more))

    def accept_all(self, run=None):
        self.propose("ann", run)
        self.decide("bob", "accepted", run)
        return self.decide("cid", "accepted", run)


def with_rights(*starters):
    return FederationSettings(name="shop", parties=("ann", "bob", "cid"), rights=RightsSettings(start=starters))
