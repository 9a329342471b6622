"""Sessions for tests: a small run, held once with a real server, and one party of it driven over a scripted channel."""

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from fdml.align.consent import consent_to_all
from fdml.align.party_ids import PartyIds
from fdml.align.party_secrets import Secrets
from fdml.align.sealed_labels import LabelSet
from fdml.data.rows import take
from fdml.models.registry import model_settings
from fdml.party.alignment import RowIds
from fdml.party.checkpoint import CheckpointStore, SavedState
from fdml.party.data import PartyRows
from fdml.party.disk_store import DiskStore
from fdml.party.driver import SessionDriver
from fdml.party.effects import Emit, Receive, SaveCheckpoint, SaveResult, Send
from fdml.party.member import AlignmentKeys, Member
from fdml.party.session import PartySession
from fdml.privacy.noise import NoiseKey
from fdml.protocol.alignment_messages import RowCounts
from fdml.protocol.messages import FromServer
from fdml.server.alignment import AlignmentPhase
from fdml.server.generations import Generations
from fdml.server.run_alignment import RunAlignment
from fdml.server.run_state import RunDefinition, RunState
from fdml.server.session import ServerSession
from fdml.settings import GuardSettings, PrivacySettings, RunSettings, TrainingSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from fdml.transport.in_process import InProcessServer
from tests.models.random_updates import FORM_OF, stored
from tests.storage.memory_disk import MemoryDisk

STORE, BROWSER = "store", "browser"
ROWS = 10
"""Of which two are held out; the others are two blocks of two batches."""
TRAINING = TrainingSettings(epochs=2, batch_size=2, batches_per_block=2, learning_rate=0.1, checkpoint_seconds=0.0)


@dataclass(frozen=True, eq=False)
class ArrayData:
    """One party's rows as an array, matched by position; the labels are asked of the label party only."""

    features: np.ndarray
    values: np.ndarray
    classes: int = 2
    weighted: bool = False
    counts: tuple = ()

    def row_ids(self):
        rows = np.arange(len(self.values))
        return RowIds(PartyIds(by_position=RowCounts(len(rows), None)), rows, rows, self.counts)

    def rows(self, shared):
        own = stored(self.features, FORM_OF["double"])
        return PartyRows(take(own, shared.train), take(own, shared.held_out))

    def labels(self, shared):
        train, held_out = self.values[shared.train], self.values[shared.held_out]
        return LabelSet(self.classes, train, held_out, np.ones(len(train)), np.ones(len(held_out))), None


class Clock:
    """Virtual seconds; every look at it takes `each` of them."""

    def __init__(self, each=0.0):
        self.now, self.each = 100.0, each

    def __call__(self):
        self.now += self.each
        return self.now


@dataclass(frozen=True, eq=False)
class SmallRun:
    """Two parties with a linear model each."""

    training: TrainingSettings = TRAINING
    every: str = "epoch"
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    guards: dict = field(default_factory=dict)
    weighted: bool = False
    stop_after: int | None = None
    baseline: str = "alone"
    rows: int = ROWS

    @property
    def settings(self):
        return RunSettings(
            parties=(STORE, BROWSER),
            label_party=STORE,
            task="multiclass" if self.privacy.labels == "private" else "binary",
            training=self.training,
            evaluation=EvaluationSettings(
                holdout=0.2, every=self.every, stop_after=self.stop_after, baseline=self.baseline
            ),
            privacy=self.privacy,
        )

    def member(self, party, disk=None, shared=None):
        """A party; without a disk nothing is stored."""
        random = np.random.default_rng([5, len(party)])
        labels = np.random.default_rng(6).permutation(self.rows) % 2.0
        secrets = Secrets.load_or_make(MemoryDisk(), self.settings, party, None)
        return Member(
            run=self.settings,
            name=party,
            data=ArrayData(random.normal(size=(self.rows, 3)).astype(np.float32), labels, weighted=self.weighted),
            noise=NoiseKey(party.encode()[:1] * 32),
            model=model_settings(precision="double"),
            guard=self.guards.get(party, GuardSettings()),
            alignment=lambda: AlignmentKeys(secrets, consent_to_all),
            shared=shared,
            disk=disk,
            mask_id=lambda: 1 + len(party),
        )


class MemoryStore(DiskStore):
    """A party's store in memory; keeps a copy of the disk as it was after every checkpoint."""

    def __init__(self, run, disk):
        super().__init__(disk, run_hash=run_hash(run.settings), data="rows in memory")
        self.after_checkpoint, self.bundles, self.statements = [], [], []

    def save_checkpoint(self, checkpoint):
        super().save_checkpoint(checkpoint)
        self.after_checkpoint.append(self.disk.copy())

    def write_statement(self, statement):
        self.statements.append(statement)

    def write_bundle(self, bundle):
        self.bundles.append(bundle)


class ScriptedChannel:
    """A channel on which everything has come already; `failing` maps kinds of messages to the error of sending one."""

    traffic = (70, 80)

    def __init__(self, script, failing=None):
        self._script, self._failing = deque(script), failing or {}
        self.sent, self.all_stored, self.on_their_way = [], True, []

    @property
    def has_message(self):
        return bool(self._script)

    def send(self, message):
        if type(message) in self._failing:
            raise self._failing[type(message)]
        self.sent.append(message)

    def poll(self):
        return self._script.popleft() if self._script else None

    def unacknowledged(self):
        return list(self.on_their_way)

    def close(self):
        """Nothing."""


class RecordedChannel:
    """Another channel, with what came and went written down."""

    def __init__(self, channel):
        self._channel, self.received, self.sent = channel, [], []

    def __getattr__(self, name):
        return getattr(self._channel, name)

    def send(self, message):
        self.sent.append(message)
        self._channel.send(message)

    def poll(self):
        message = self._channel.poll()
        self.received.append(message)
        return message


class LoggedWork:
    """The work of a session, with every effect written down."""

    def __init__(self, work):
        self._work, self.effects = work, []

    def __next__(self):
        return self._logged(next(self._work))

    def throw(self, error):
        return self._logged(self._work.throw(error))

    def _logged(self, effect):
        self.effects.append(effect)
        return effect


class Side:
    """One party's session with its driver, store and channel, and all that happened."""

    def __init__(self, run, party, channel, *, saved=None, disk=None, shared=None, clock=None, durable=True):
        self.disk = disk or MemoryDisk()
        self.store = MemoryStore(run, self.disk)
        self.channel, self.events = channel, []
        member = run.member(party, self.disk if durable else None, shared)
        self.session = PartySession(member, saved or SavedState(), clock or Clock())
        self.work = LoggedWork(self.session.run())
        self.driver = SessionDriver(self.work, self.session, channel, self.store, self.events.append)

    @property
    def effects(self):
        return self.work.effects

    @property
    def result(self):
        return self.driver.result

    def parameters(self):
        return {name: array.tobytes() for name, array in self.session.worker.parameters().items()}

    def events_of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]

    def remarks(self):
        return [event.text for event in self.events if type(event).__name__ == "Remark"]


def server_of(run):
    settings = run.settings
    digest, clock = run_hash(settings), Clock()
    rows = RunAlignment(settings, MemoryDisk(), Generations.of(settings, MemoryDisk()))
    alignment = AlignmentPhase(rows, settings.parties, digest, clock)
    state = RunState(RunDefinition(settings, digest))
    session = ServerSession(state, alignment, settings, clock)
    return InProcessServer(session, digest, settings.training.peer_timeout_seconds)


def hold(run, **options):
    """All parties of a run with a real server, in turns, to their end."""
    server = server_of(run)
    sides = {name: Side(run, name, RecordedChannel(server.channel(name)), **options) for name in run.settings.parties}
    while any(not side.driver.has_ended for side in sides.values()):
        ready = [side for side in sides.values() if not side.driver.has_ended and side.driver.is_ready]
        assert ready, "all parties wait for each other"
        for side in ready:
            side.driver.advance()
    return sides


def again(run, side, *, saved=None, disk=None, failing=None, script=None, **options):
    """A further start of a party that is sent all that it was sent before, over a channel that has it already."""
    name = side.session.worker.party
    channel = ScriptedChannel(training_part(side) if script is None else script, failing)
    start = Side(run, name, channel, saved=saved, disk=disk, shared=side.store.shared_rows(), **options)
    start.driver.advance()
    return start


def training_part(side):
    """What a party was sent after its alignment."""
    return [message for message in side.channel.received if isinstance(message, FromServer)]


def saved_on(disk):
    """What a further start would find on a copy of a disk."""
    return CheckpointStore(disk.copy()).load()


def order_of(effects):
    """The names of effects in their order, with the number of what was sent; each run of receives once."""
    names = []
    for effect in effects:
        name = _name_of(effect)
        if name != "receive" or names[-1:] != ["receive"]:
            names.append(name)
    return names


def _name_of(effect):
    match effect:
        case Send(message):
            number = getattr(message, "step", getattr(message, "epoch", ""))
            return f"send {type(message).__name__} {number}".rstrip()
        case Emit(event):
            return f"emit {type(event).__name__}"
        case Receive():
            return "receive"
        case SaveCheckpoint(checkpoint):
            return f"save checkpoint {checkpoint.step}"
        case SaveResult(result):
            return "save result, reported" if result.reported else "save result"
        case _:
            return type(effect).__name__


def with_training(run, **changes):
    return replace(run, training=run.training.model_copy(update=changes))
