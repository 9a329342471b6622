"""Small runs, drawn from a seed, of a model whose every prediction depends on every bit it was ever trained with."""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from fdml.align.consent import consent_to_all
from fdml.align.group_key import GroupKey
from fdml.align.kept import KeptAlignment
from fdml.align.offers import make_offer
from fdml.align.party_ids import LeadingKeys, PartyIds
from fdml.align.party_secrets import Secrets
from fdml.align.sealed_labels import LabelSet
from fdml.data.label_encoding import LabelEncoding
from fdml.data.row_set import RowSet
from fdml.data.rows import DenseRows, Rows, plain_rows, take
from fdml.models.learner import LocalLearner
from fdml.models.losses import Floats
from fdml.models.model import State
from fdml.models.signals import BlockUpdate, Scores
from fdml.party.alignment import RowIds, SharedRows
from fdml.party.data import PartyRows
from fdml.party.loop import Worker
from fdml.party.member import AlignmentKeys, Member
from fdml.party.plan import Plan, training_task
from fdml.privacy.guard import Guard
from fdml.privacy.ledger import Mechanism, epsilon_of
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.protocol.absences import absences_of
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.alignment_messages import PIECE_ROWS, START_BYTES, RowCounts, RowsOffer
from fdml.protocol.schedule import Schedule, schedule_of
from fdml.settings import AgreedTraining, GuardSettings, PrivacySettings, RunSettings, TrainingSettings, run_hash
from fdml.settings.evaluation import EvaluationSettings
from fdml.storage.disk import Disk
from simulator.drawn_ids import draw_ids

_FEATURES = 2
_MOST_STEPS = 12
_NEVER = 1e9
_DELTA, _CLIP, _SIGMA = 1e-5, 1.0, 0.5
_FEW = (4, 2, 8)


class HashingModel:
    """Every prediction depends on every bit of every update so far, so that no wrong or missing one stays unseen."""

    concurrent: ClassVar[bool] = False

    def __init__(self, width: int) -> None:
        self._width = width
        self._weights = np.zeros(_FEATURES)
        self._hash = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return np.dtype(np.float64)

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, width)`."""
        values = plain_rows(rows).values[start:stop] @ self._weights + self._hash / 2.0**32
        return np.outer(values, 1.0 / np.arange(1, self._width + 1))

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block."""
        for part in (block.order, block.rates, scores.total, scores.own_at_push, scores.labels):
            self._hash = zlib.crc32(part.tobytes(), self._hash)
        values = plain_rows(rows).values[block.start : block.start + len(block.order)]
        self._weights = 0.5 * self._weights + np.tanh(scores.total[:, 0] @ values)

    def penalty(self) -> float:
        """Nothing."""
        return 0.0

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        return {"weights": self._weights.copy(), "hash": np.array(self._hash)}

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self._weights = state["weights"].copy()
        self._hash = int(state["hash"])


def build_hashing_worker(
    plan: Plan,
    rows: RowSet,
    party: str,
    guard: Guard,
    *,
    held_out: Rows | None,
    stop_after: int | None = None,
    **_: Any,
) -> Worker:
    """A party with a `HashingModel`."""
    gradient_party = plan.label_party if plan.loss == "softmax" else None
    watch_loss = party == plan.label_party
    task = training_task(plan, rows, party, watch_loss=watch_loss, gradient_party=gradient_party, stop_after=stop_after)
    learner = LocalLearner(HashingModel(plan.objective.width), rows.parts[party], held_out=held_out)
    return Worker(learner, task, guard)


@dataclass(frozen=True, eq=False)
class ScenarioData:
    """One party's rows: those to train on, those held out, and those that others do not have."""

    features: DenseRows
    ids: Sequence[str] | None
    """None where rows are matched by position."""
    labels_of_rows: np.ndarray[Any, np.dtype[np.float64]]
    classes: int
    led: Mapping[str, bool] = field(default_factory=dict)
    """At a label party whose rows point to others': the other parties, and whether they are in [keys]."""

    @property
    def weighted(self) -> bool:
        """No row has a weight of its own."""
        return False

    def row_ids(self) -> RowIds:
        """By id, or by position."""
        rows = np.arange(len(self.labels_of_rows))
        if self.ids is None:
            return RowIds(PartyIds(by_position=RowCounts(len(rows), None)), rows, rows)
        ids = pa.array(self.ids, pa.large_string())
        leads = {party: LeadingKeys(ids, coarse=coarse) for party, coarse in self.led.items()}
        return RowIds(PartyIds(ids, leads=leads), rows, rows)

    def rows(self, shared: SharedRows) -> PartyRows:
        """The features of the shared rows."""
        return PartyRows(take(self.features, shared.train), take(self.features, shared.held_out))

    def labels(self, shared: SharedRows) -> tuple[LabelSet, LabelEncoding | None]:
        """The labels of the shared rows."""
        train, held_out = self.labels_of_rows[shared.train], self.labels_of_rows[shared.held_out]
        return LabelSet(self.classes, train, held_out, np.ones(len(train)), np.ones(len(held_out))), None


@dataclass(frozen=True, eq=False)
class Scenario:
    """What one seed tries: a run's settings and data, and how often server and parties save. Equal only to itself."""

    settings: RunSettings
    rows: int
    held_out: int
    rotate_bytes: int
    features: Mapping[str, DenseRows]
    """Of every party, all rows."""
    ids: Mapping[str, tuple[str, ...]]
    """Of every party, which person each row is."""
    has_ids: bool
    """Whether the parties know the ids; else their rows are in the same order."""
    allowed: Mapping[str, int]
    """Parties that put noise on what they release, and how many releases of a row their budget allows."""

    @classmethod
    def draw(cls, random: Random) -> Scenario:
        """Any scenario may be drawn, but for long ones."""
        parties = tuple("abcd"[: random.randint(2, 4)])
        rows, batch, per_block = random.randint(2, 9), random.randint(1, 3), random.randint(1, 2)
        held_out = random.randint(1, 2)
        blocks = -(-rows // (batch * per_block))
        training = TrainingSettings(
            epochs=random.randint(1, max(1, min(5, _MOST_STEPS // blocks))),
            batch_size=batch,
            batches_per_block=per_block,
            passes=random.choice((1, 1, 2)),
            value_bits=random.choice((64, 64, 32, 16)),
            lookahead=random.randint(0, 2),
            staleness=random.randint(0, 3),
            seed=random.randrange(1000),
            checkpoint_seconds=random.choice((0.0, 0.01, 0.03, 0.1, _NEVER)),
        )
        private = random.random() < 0.3
        settings = RunSettings(
            parties=parties,
            label_party=random.choice(parties),
            task="multiclass" if private else "regression",
            loss=None if private else (None, "poisson", "quantile")[training.seed % 3],
            align=random.choice(("tokens", "tokens", "ecdh")),
            training=training,
            evaluation=_draw_evaluation(random, holdout=held_out / (rows + held_out), seed=training.seed),
            privacy=PrivacySettings(
                labels="private" if private else "shared", server="blind" if random.random() < 0.4 else "plain"
            ),
        )
        has_ids = random.random() < 0.5
        ids = draw_ids(random, parties, rows + held_out, extra=2 if has_ids else 0)
        features = {party: _draw_features(random, len(ids[party])) for party in parties}
        allowed = {party: random.randint(1, 8) for party in parties if random.random() < 0.3}
        rotate_bytes = random.choice((300, 2000, 20_000, 10**9))
        if not allowed:
            settings = _with_few_bits(settings)
        if training.seed % 5 < 2:  # without a draw of its own, so seeds stay what they are
            settings = settings.model_copy(update={"training": settings.training.model_copy(update={"absence": 0.4})})
        if has_ids:
            settings = settings.model_copy(update={"keys": _keys(settings, allowed)})
        return cls(settings, rows, held_out, rotate_bytes, features, ids, has_ids, allowed)

    @cached_property
    def run_hash(self) -> bytes:
        """What all sides agree on."""
        return run_hash(self.settings)

    @property
    def training(self) -> AgreedTraining:
        """How the parties train."""
        return agreed_training(self.settings.training, self.rows, len(self.settings.parties))

    @cached_property
    def schedule(self) -> Schedule:
        """The run's schedule."""
        return schedule_of(self.rows, self.training)

    @property
    def gradient_party(self) -> str | None:
        """The label party where labels are private."""
        return self.settings.label_party if self.settings.privacy.labels == "private" else None

    @property
    def width(self) -> int:
        """How many floats of each row a prediction has."""
        return 1 if self.gradient_party is None else 2

    @property
    def end(self) -> int:
        """The step before which a training in step ends: that which some party's budget does not allow."""
        absences = absences_of(self.schedule, self.settings.parties, self.settings.label_party)
        spent = Counter[tuple[str, int]]()
        for step in range(self.schedule.steps):
            spent.update(
                (party, self.schedule.visit(step).block) for party in self.allowed if party != absences.at(step)
            )
            if any(times > self.allowed[party] for (party, _), times in spent.items()):
                return step
        return self.schedule.steps

    def masks(self, key: GroupKey, party: str, mask_id: int) -> Masks:
        """A party's masks in one of its starts, under the key that the parties have aligned to."""
        return Masks(key.derive("masks"), self.settings.parties, party, mask_id)

    def member(
        self,
        party: str,
        start: int,
        *,
        disk: Disk | None = None,
        shared: SharedRows | None = None,
        kept: KeptAlignment | None = None,
        offered: tuple[bytes, RowsOffer] | None = None,
    ) -> Member:
        """A party in one of its starts; without a disk nothing is stored."""
        every, private = len(self.ids[party]), self.gradient_party is not None
        labels = np.arange(every, dtype=np.float64) % (2 if private else every)
        ids, classes = (self.ids[party] if self.has_ids else None), (2 if private else 0)
        return Member(
            run=self.settings,
            name=party,
            data=ScenarioData(self.features[party], ids, labels, classes, self._led(party)),
            noise=NoiseKey(party.encode() * 32),
            guard=self._guard(party),
            shared=shared,
            alignment=lambda: AlignmentKeys(
                self._secrets(party),
                consent_to_all,
                kept=kept or KeptAlignment(),
                offered=offered,
                start=self._secret(party, "start")[:START_BYTES],
                piece_rows=self.piece_rows,
            ),
            disk=disk,
            build=build_hashing_worker,
            mask_id=lambda: start,
            piece_rows=self.sent_rows,
        )

    @property
    def piece_rows(self) -> int:
        """Rows of a piece on the way: in two of five runs so few that every set has several."""
        return 2 + self.settings.training.seed % 3 if self.settings.training.seed % 5 > 2 else PIECE_ROWS

    @property
    def sent_rows(self) -> int | None:
        """The same of labels and held-out predictions, of which there are few."""
        return 1 if self.piece_rows < PIECE_ROWS else None

    def _led(self, party: str) -> dict[str, bool]:
        """Whom rows of a party point to, and whether by [keys]."""
        others = [other for other in self.settings.parties if other != party]
        return {other: other in self.settings.keys for other in others if self.settings.pointing_party == party}

    def _guard(self, party: str) -> GuardSettings:
        if party not in self.allowed:
            return GuardSettings()
        budget = epsilon_of(Mechanism("gaussian", _CLIP, _SIGMA), self.allowed[party], _DELTA)
        return GuardSettings(
            clip=_CLIP, noise="gaussian", sigma=_SIGMA, epsilon=budget, delta=_DELTA, evaluation="exact"
        )

    def _secrets(self, party: str) -> Secrets:
        """Drawn from the scenario, so that a seed goes the same way every time."""
        private = self._secret(party, "private")
        offer = make_offer(private, self.settings, party, None)
        return Secrets(private, offer, self._secret(party, "group key"), self._secret(party, "scalar"))

    def _secret(self, party: str, purpose: str) -> bytes:
        seed = self.settings.training.seed
        return hashlib.blake2b(f"{seed} {party} {purpose}".encode(), digest_size=32).digest()


def _draw_evaluation(random: Random, holdout: float, seed: int) -> EvaluationSettings:
    """Every second run that is evaluated after every epoch may end early; `seed` decides, so that others stay."""
    every: Literal["epoch", "end"] = random.choice(("epoch", "end"))
    stop_after = (None, 1, None, 2)[seed % 4] if every == "epoch" else None
    return EvaluationSettings(holdout=holdout, every=every, stop_after=stop_after)


def _with_few_bits(settings: RunSettings) -> RunSettings:
    """Where the run can have them and its seed is odd: without a draw of their own, so seeds stay what they are."""
    training = settings.training
    in_step = training.staleness == 0 and settings.privacy.labels == "shared"
    if training.seed % 2 == 0 or not (in_step or settings.privacy.server == "plain"):
        return settings
    few = training.model_copy(update={"value_bits": _FEW[training.seed // 2 % len(_FEW)]})
    return settings.model_copy(update={"training": few})


def _keys(settings: RunSettings, noisy: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """In a third of the runs rows point to those of the parties that may be in [keys]; drawn by the run's seed."""
    if settings.training.seed % 3:
        return {}
    others = [party for party in settings.parties if party not in (settings.label_party, *noisy)]
    return dict.fromkeys(others, ("id",))


def _draw_features(random: Random, rows: int) -> DenseRows:
    values = [random.random() for _ in range(rows * _FEATURES)]
    return DenseRows(np.array(values, np.float32).reshape(-1, _FEATURES))
