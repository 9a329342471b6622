"""One party as a member of a run: all that its session is made from."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fdml.align.consent import Decide
from fdml.align.group_key import GroupKey
from fdml.align.kept import KeptAlignment
from fdml.align.party_secrets import Secrets
from fdml.align.sealed_labels import LabelSet
from fdml.cluster.column_groups import check_column_groups
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.sharding import check_shards
from fdml.models.model import State
from fdml.models.registry import model_settings
from fdml.party.alignment import SharedRows
from fdml.party.data import PartyData, PartyRows
from fdml.party.earlier import EarlierModel
from fdml.party.label_flips import LabelFlips
from fdml.party.ledger import PartyLedger
from fdml.party.loop import Worker
from fdml.party.plan import Plan, build_worker
from fdml.party.record_level import check_repeats
from fdml.privacy.accounts import BudgetedAccount
from fdml.privacy.build_guard import dp_sgd_for
from fdml.privacy.guard import Guard
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.alignment_messages import START_BYTES, RowsOffer
from fdml.protocol.identity import Credentials
from fdml.protocol.schedule import schedule_of
from fdml.settings import AgreedTraining, GuardSettings, ModelSettings, RunSettings, run_hash
from fdml.settings.hash import training_hash
from fdml.storage.disk import Disk

_MASK_BITS = 63


def _random_mask_id() -> int:
    return secrets.randbits(_MASK_BITS) + 1


def _fingerprint(pair_keys: Mapping[str, bytes]) -> str:
    """By which it is noticed that what was stored under masks is under those of other keys."""
    content = b"".join(pair_keys[party] for party in sorted(pair_keys))
    return hashlib.blake2b(content, digest_size=16, person=b"fdml pair check").hexdigest()


def pairwise_masks_of(run: RunSettings, party: str, shared: SharedRows) -> PairwiseMasks:
    """A party's masks that cancel in the sum of all parties'."""
    total_key = shared.key.derive(f"total mask {run_hash(run).hex()} {shared.digest.hex()}")
    return PairwiseMasks(run.parties, party, pair_keys=shared.pair_keys, total_key=total_key)


@dataclass(frozen=True)
class AlignmentKeys:
    """What a party needs to find its shared rows with the others."""

    secrets: Secrets
    consent: Decide
    """Answers how many rows are shared, before anyone is told which."""
    credentials: Credentials | None = None
    group_key_file: Path | None = None
    kept: KeptAlignment = field(default_factory=KeptAlignment)
    """What this party keeps of earlier alignments."""
    offered: tuple[bytes, RowsOffer] | None = None
    """What an earlier start of this run has offered, and the state of the ids then."""
    start: bytes = field(default_factory=lambda: secrets.token_bytes(START_BYTES))
    """What is drawn when this party begins the run; the first start's stays, with what it has offered."""
    piece_rows: int | None = None
    """Rows of a piece of a larger set of ids; None takes what is usual."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Member:
    """A party's settings, rows and keys. Nothing in it changes during a run."""

    run: RunSettings
    name: str
    data: PartyData
    noise: NoiseKey
    """The secret that this party's noise follows from."""
    flips: LabelFlips | None = None
    """How private labels are randomised; None goes by `noise`, where nothing outlives the run."""
    model: ModelSettings = field(default_factory=model_settings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    threads: int = 1
    workers: WorkersSettings = field(default_factory=WorkersSettings)
    """Who works for it where it trains in shards or in column groups."""
    shared: SharedRows | None = None
    """The alignment of an earlier start."""
    alignment: Callable[[], AlignmentKeys] | None = None
    """Gives the keys to align with; None where `shared` is given."""
    ledger: PartyLedger | None = None
    """Counts over all runs; None where nothing outlives the run."""
    disk: Disk | None = None
    """Where releases with noise are stored before they leave; None where nothing is stored."""
    plain: bool = False
    """Whether the line is not encrypted."""
    start: State | None = None
    """Parameters to begin with."""
    earlier: EarlierModel | None = None
    """The version that the run is compared with."""
    watch_loss: bool = False
    """Whether the label party keeps the training loss of every epoch, also without held-out rows."""
    build: Callable[..., Worker] = build_worker
    piece_rows: int | None = None
    """Rows of a piece of labels and of held-out predictions; None takes what is usual, which all sides know."""
    mask_id: Callable[[], int] = _random_mask_id
    """Draws the id of a start's masks; no two starts may have the same."""

    def __post_init__(self) -> None:
        check_repeats(self.guard, self.run, self.name)
        noisy = self.guard.training is not None
        check_shards(self.model, self.run.training.joint, self.run.chosen_loss, noisy=noisy)
        check_column_groups(self.model, self.run.training.joint, self.run.chosen_loss, noisy=noisy)

    @property
    def is_label_party(self) -> bool:
        """Whether this party owns the labels."""
        return self.name == self.run.label_party

    @property
    def has_private_labels(self) -> bool:
        """Whether labels stay at the label party."""
        return self.run.privacy.labels == "private"

    @property
    def is_durable(self) -> bool:
        """Whether a restarted process could go on."""
        return self.disk is not None

    def facts(self, shared: SharedRows) -> dict[str, str]:
        """What saved state belongs to; nothing where nothing is saved."""
        if not self.is_durable:
            return {}
        return {
            "run.toml": run_hash(self.run).hex(),
            "data": shared.digest.hex(),
            "model": self.model.model_dump_json(),
            "guard": self.guard.model_dump_json(exclude={"total_epsilon"}),
            "noise key": self.noise.fingerprint,
            "keys of pairs": _fingerprint(shared.pair_keys) if self.run.has_pairwise_masks else "",
        }

    def noise_key(self, shared: SharedRows) -> NoiseKey:
        """The key of this run's noise over these rows: in another run or order of rows the noise is another."""
        return self.noise.bound(b"noise", training_hash(self.run), shared.digest)

    def open_account(self, shared: SharedRows) -> BudgetedAccount | None:
        """This run's account in the party's ledger; raises if the run as planned would exceed the party's total."""
        if self.ledger is None:
            return None
        schedule = schedule_of(len(shared.train), self.training(shared))
        return self.ledger.open_run(self.run, self.guard, schedule, self.noise_key(shared))

    def training(self, shared: SharedRows) -> AgreedTraining:
        """How all parties train over these rows."""
        return agreed_training(self.run.training, len(shared.train), len(self.run.parties), shared.line)

    def plan(self, classes: int, shared: SharedRows, rows: PartyRows) -> Plan:
        """How this party trains on these rows of its own."""
        plan = Plan(
            self.run.training,
            {self.name: self.model},
            self.run.label_party,
            self.run.chosen_loss,
            classes,
            parties=len(self.run.parties),
            others=tuple(party for party in self.run.parties if party != self.name),
            order=self.run.parties,
            guards={self.name: self.guard},
            line=shared.line,
            new_parties=self.run.new_parties,
        )
        return plan.with_native(self.name, rows.native).resolved(len(shared.train), {self.name: rows.train})

    def masks(self, key: GroupKey) -> Masks:
        """The masks of one start of this party, under an id that no other start has."""
        return Masks(key.derive("masks"), self.run.parties, self.name, self.mask_id())

    def model_mac(self, model_hash: bytes, alignment_hash: bytes) -> bytes:
        """What the server may compare models by: under this party's secret, so that nobody can try out a guess."""
        content = run_hash(self.run) + alignment_hash + model_hash
        return hashlib.blake2b(content, key=self.noise.secret, digest_size=32, person=b"fdml model mac").digest()

    def pairwise_masks(self, shared: SharedRows) -> PairwiseMasks | None:
        """The masks of predictions that cancel in their sum; None where they are under the group key, or under none."""
        return pairwise_masks_of(self.run, self.name, shared) if self.run.has_pairwise_masks else None

    def worker(self, plan: Plan, labels: LabelSet, rows: PartyRows, guard: Guard, noise: NoiseKey) -> Worker:
        """This party's training, before its first step."""
        return self.build(
            plan,
            labels.train_rows({self.name: rows.train}),
            self.name,
            guard,
            held_out=rows.held_out,
            dp_sgd=dp_sgd_for(self.guard, noise),
            threads=self.threads,
            workers=self.workers,
            watch_loss=self.is_label_party and (self.watch_loss or len(labels.held_out) > 0),
            gradient_party=self.run.label_party if self.has_private_labels else None,
            start=self.start,
            stop_after=self.run.evaluation.stop_after,
        )
