"""Small runs of a toy model, drawn from a seed, for trying out the protocol."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fdml.data.rows import DenseRows, Rows, row_count, span
from fdml.models.learner import LocalLearner
from fdml.models.learning_rate import LearningRate
from fdml.models.losses import Floats
from fdml.models.model import State
from fdml.models.objective import Objective, objective_for
from fdml.models.signals import BlockUpdate, Scores
from fdml.party.loop import TrainingTask, Worker
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger, Mechanism, epsilon_of
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.fixed_point import FIXED_POINTS
from fdml.protocol.messages import Gradient, Labels, Push, Stop, Stopped, Total
from fdml.protocol.schedule import Schedule, schedule_of
from fdml.settings import PrivacySettings, RunSettings, TrainingSettings, run_hash
from fdml.storage.disk import Disk

_FEATURES = 2
_MOST_STEPS = 12
_NEVER = 1e9
_SECRET = bytes(range(32))
_DELTA = 1e-5
_NOISY = Mechanism("gaussian", 1.0, 0.5)


class HashingModel:
    """A model whose every prediction depends on every bit it ever learned from."""

    concurrent: ClassVar[bool] = False

    def __init__(self) -> None:
        self._weights = np.zeros(_FEATURES)
        self._digest = 0

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type it computes and predicts in."""
        return np.dtype(np.float64)

    def predict(self, rows: Rows, start: int = 0, stop: int | None = None) -> Floats:
        """Local predictions of the rows from `start` to `stop`, `(rows, 1)`."""
        values = rows.values[start:stop] @ self._weights + self._digest / 2.0**32
        return values.reshape(-1, 1)

    def learn(self, rows: Rows, block: BlockUpdate, scores: Scores) -> None:
        """One pass over one block."""
        for part in (block.order, block.rates, scores.total, scores.own_at_push, scores.labels):
            self._digest = zlib.crc32(part.tobytes(), self._digest)
        values = rows.values[block.start : block.start + len(block.order)]
        self._weights = 0.5 * self._weights + np.tanh(scores.total[:, 0] @ values)

    def penalty(self) -> float:
        """Nothing."""
        return 0.0

    def state(self) -> State:
        """Everything needed to go on from here, as arrays that share no memory with the model."""
        return {"weights": self._weights.copy(), "digest": np.array(self._digest)}

    def restore(self, state: State) -> None:
        """Become the model that gave this state."""
        self._weights = state["weights"].copy()
        self._digest = int(state["digest"])


@dataclass(frozen=True)
class Scenario:
    """What one seed tries: a run's settings and data, and how often server and parties save."""

    settings: RunSettings
    rows: int
    held_out: int
    rotate_bytes: int
    features: dict[str, DenseRows]
    """Of every party, the rows to train on and then those held out."""
    allowed: dict[str, int]
    """Parties that put noise on what they release, and how many releases of a row their budget allows."""

    @classmethod
    def draw(cls, random: Random) -> Scenario:
        """Any case may be drawn, but for long ones."""
        parties = tuple("abcd"[: random.randint(2, 4)])
        rows, batch, per_block = random.randint(2, 9), random.randint(1, 3), random.randint(1, 2)
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
            task="binary" if private else "regression",
            training=training,
            privacy=PrivacySettings(
                labels="private" if private else "shared", server="blind" if random.random() < 0.4 else "plain"
            ),
        )
        held_out = random.randint(1, 2)
        every = (rows + held_out) * _FEATURES
        features = {
            party: DenseRows(np.array([random.random() for _ in range(every)], np.float32).reshape(-1, _FEATURES))
            for party in parties
        }
        allowed = {party: random.randint(1, 8) for party in parties if random.random() < 0.3}
        return cls(settings, rows, held_out, random.choice((300, 2000, 20_000, 10**9)), features, allowed)

    @cached_property
    def run_hash(self) -> bytes:
        """What all sides agree on."""
        return run_hash(self.settings)

    @cached_property
    def schedule(self) -> Schedule:
        """The run's schedule."""
        return schedule_of(self.rows, self.settings.training)

    @property
    def gradient_party(self) -> str | None:
        """The label party where labels are private."""
        return self.settings.label_party if self.settings.privacy.labels == "private" else None

    @property
    def end(self) -> int:
        """The step before which a training in step ends: that which some party's budget does not allow."""
        blocks = self.schedule.blocks
        return min([self.schedule.steps, *(allowed * blocks for allowed in self.allowed.values())])

    @cached_property
    def labels(self) -> Labels:
        """The label party's; what would be sealed begins with the numbers themselves."""
        if self.gradient_party is not None:
            return Labels(self._objective.classes)
        size = Labels.sealed_size(self.settings.task, self._objective.classes, self.rows + self.held_out)
        return Labels(self._objective.classes, self._numbers.tobytes().ljust(size))

    @property
    def _objective(self) -> Objective:
        return objective_for("squared", 0) if self.gradient_party is None else objective_for("logistic", 2)

    @property
    def _numbers(self) -> NDArray[np.float64]:
        return np.arange(self.rows, dtype=np.float64) % (2 if self.gradient_party is not None else self.rows + 1)

    def masks(self, party: str, mask_id: int) -> Masks:
        """A party's masks in one of its starts."""
        return Masks(_SECRET, self.settings.parties, party, mask_id)

    def guard(self, party: str, mask_id: int, disk: Disk | None) -> Guard:
        """A party's guard in one of its starts; without a disk nothing is stored."""
        blind = self.settings.privacy.server == "blind"
        masks = self.masks(party, mask_id)
        grid, parties = FIXED_POINTS[self.settings.training.value_bits], len(self.settings.parties)
        if party not in self.allowed:
            return Guard(
                Perturbation(NO_NOISE, None, grid, parties),
                Ledger(NO_NOISE, None, _DELTA, None),
                masks=masks,
                blind=blind,
            )
        budget = epsilon_of(_NOISY, self.allowed[party], _DELTA)
        return Guard(
            Perturbation(_NOISY, NoiseKey(party.encode() * 32), grid, parties),
            Ledger(_NOISY, None, _DELTA, budget),
            masks=masks,
            blind=blind,
            store=None if disk is None else ReleaseStore(disk),
        )

    def worker(self, party: str, labels: Labels, guard: Guard) -> Worker:
        """A party before training."""
        training, rows = self.settings.training, self.features[party]
        numbers = self._numbers if party == self.gradient_party else np.zeros(self.rows)
        if self.gradient_party is None:
            numbers = np.frombuffer(labels.sealed, np.float64, self.rows)
        task = TrainingTask(
            party=party,
            labels=numbers,
            weights=np.ones(self.rows),
            schedule=self.schedule,
            objective=self._objective,
            rate=LearningRate(0.5, "linear", self.schedule.updates),
            echo=float(len(self.settings.parties)),
            lookahead=training.lookahead,
            staleness=training.staleness,
            watch_loss=party == self.settings.label_party,
            gradient_party=self.gradient_party,
        )
        learner = LocalLearner(HashingModel(), rows, held_out=span(rows, self.rows, row_count(rows)))
        return Worker(learner, task, guard)


Said = Push | Gradient | Stop


def replay(worker: Worker, answer_to: Callable[[int], Total | Gradient | Stopped]) -> Iterator[Said]:
    """All that a party sends in a training in which nothing goes wrong."""
    yield from worker.first_messages()
    while not worker.finished:
        answer = answer_to(worker.step)
        if isinstance(answer, Stopped):
            worker.stop_at(answer.step)
        else:
            yield from worker.learn(answer)


def fault_free_run(case: Scenario) -> dict[str, State]:
    """The models at the end of a synchronous training in which nothing goes wrong."""
    parties = case.settings.parties
    in_turn = sorted(parties, key=lambda party: party != case.gradient_party)
    workers = {party: case.worker(party, case.labels, case.guard(party, 1, None)) for party in in_turn}
    sums: dict[int, Any] = {}
    gradients: dict[int, Gradient] = {}

    def hear(said: Iterator[Said]) -> None:
        for message in said:
            if isinstance(message, Push):
                sums[message.step] = sums.get(message.step, 0) + message.release.values
            elif isinstance(message, Gradient):
                gradients[message.step] = message

    for worker in workers.values():
        hear(worker.first_messages())
    blind = case.settings.privacy.server == "blind"
    for step in range(case.end):
        total = Total(step, sums[step], (step,) * len(parties), (1,) * len(parties) if blind else ())
        for party, worker in workers.items():
            hear(worker.learn(total if case.gradient_party in (None, party) else gradients[step]))
    return {party: worker.parameters() for party, worker in workers.items()}
