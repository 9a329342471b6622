"""How long does joint training on a9a take, beside pooled training and torch with everything in one place?

The demo's LR and NN, joint and pooled, have no setting of their own but the paper's: batches of 100 rows, a step
size, epochs. Pooled is one party in one process through the same sessions; both score the test rows after every epoch.

LR set for speed runs against torch.

Joint is a server and two parties as processes over mutual TLS, every push logged
before it is answered; its seconds are the label party's own and include scoring
the test rows after every epoch. Torch is a dense linear layer on one thread with
the same batch size, its batches cut out beforehand, its test rows evaluated while the
clock stands; it is given the step size with which it is quickest. They take turns.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from benchmarks.cluster import history_of, running
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.sparse_run import forget
from benchmarks.torch_baselines import one_thread
from fdml.data.row_set import RowSet
from fdml.data.rows import DenseRows, plain_rows, to_scipy
from fdml.experiments.compare import Contender
from fdml.experiments.dataset import JointDataset
from fdml.experiments.in_process import train_in_process
from fdml.experiments.paper import PARTIES, a9a_dataset, contenders, write_a9a_run
from fdml.models.metrics import auc
from fdml.party.plan import Plan
from fdml.protocol.shuffle import permutation
from fdml.settings import TrainingSettings

GOAL = 0.900
_HALF = 0.5
"""An epoch of joint training may take so much of torch's."""
DEMO_AT_MOST = {"LR": 2.0, "NN": 1.5}
"""Times the seconds of pooled training that the demo's joint training may take."""
_EPOCHS = 8
_BATCH = 100
_RATES = (0.03, 0.1, 0.3, 1.0)
JOINT = TrainingSettings(epochs=_EPOCHS, batch_size=100, batches_per_block=64, value_bits=16, learning_rate=0.5)


class EpochTrace(NamedTuple):
    """One training: seconds and test AUC at the end of every epoch."""

    seconds: Sequence[float]
    aucs: Sequence[float]

    @property
    def epoch(self) -> float:
        """Seconds of an epoch after the first."""
        return (self.seconds[-1] - self.seconds[0]) / (len(self.seconds) - 1)

    @property
    def to_goal(self) -> float:
        """Seconds to the AUC; infinite if it was not reached."""
        return next((at for at, each in zip(self.seconds, self.aucs, strict=True) if each >= GOAL), float("inf"))


def run(progress: Progress, rounds: int = 5) -> Report:
    """Let the two take turns."""
    found, problem = machine(), a9a_dataset()
    demo = _demo_times(problem, rounds, progress)
    with tempfile.TemporaryDirectory(prefix="fdml-a9a-") as folder, one_thread():
        home = Path(folder) / "run"
        write_a9a_run(home, problem, joint_contender(), 0, "127.0.0.1:0")
        pooled = problem.pooled()
        train, test = (_dense(sample) for sample in (pooled.train, pooled.test))
        rate = min(_RATES, key=lambda each: train_torch(problem, train, test, each).to_goal)
        joint, baseline = [], []
        for turn in range(rounds + 1):
            progress(f"round {turn} of {rounds}" if turn else "warm-up")
            joint.append(train_joint(home))
            baseline.append(train_torch(problem, train, test, rate))
    joint, baseline = joint[1:], baseline[1:]
    results = [
        row("joint LR as processes: an epoch", [1e3 * each.epoch for each in joint], "ms"),
        row("torch LR pooled: an epoch", [1e3 * each.epoch for each in baseline], "ms"),
        row(f"joint LR: to a test AUC of {GOAL:g}", [1e3 * each.to_goal for each in joint], "ms"),
        row(f"torch LR: to a test AUC of {GOAL:g}", [1e3 * each.to_goal for each in baseline], "ms"),
        row("joint LR: last test AUC", [each.aucs[-1] for each in joint], ""),
        row("torch LR: last test AUC", [each.aucs[-1] for each in baseline], ""),
    ]
    results += [row(f"demo, {model}, {scheme}: training", spent, "s") for (model, scheme), spent in demo.items()]
    pairs = list(zip(joint, baseline, strict=True))
    ratios = demo_ratios(demo) | {
        "joint/torch time of an epoch": spread([a.epoch / b.epoch for a, b in pairs]) | {"at_most": _HALF},
        f"joint/torch time to {GOAL:g}": spread([a.to_goal / b.to_goal for a, b in pairs]) | {"at_most": 1.0},
    }
    question = (
        f"Is joint LR on a9a, two parties and a server as processes over TLS, {JOINT.batches_per_block} batches of "
        f"{_BATCH} rows per block, faster than torch's LR with all features in one place (dense, one thread, step "
        f"size {rate:g}, the quickest of {', '.join(f'{each:g}' for each in _RATES)})?"
    )
    return Report("a9a", question, results, ratios, found, commit())


def _demo_times(problem: JointDataset, rounds: int, progress: Progress) -> dict[tuple[str, str], list[float]]:
    """Seconds of every training of the demo's joint and pooled models, by model and scheme; they take turns."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for contender in contenders():
        with tempfile.TemporaryDirectory(prefix="fdml-a9a-") as folder:
            home = Path(folder) / "run"
            write_a9a_run(home, problem, contender, 0, "127.0.0.1:0")
            for turn in range(rounds + 1):
                progress(f"demo, {contender.name}, " + (f"round {turn} of {rounds}" if turn else "warm-up"))
                spent = {"joint": train_joint(home).seconds[-1], "pooled": train_pooled(problem, contender)}
                for scheme, each in spent.items():
                    seconds.setdefault((contender.name, scheme), []).extend([each] if turn else [])
    return seconds


def train_pooled(problem: JointDataset, contender: Contender) -> float:
    """Seconds of the demo's pooled training."""
    pooled, model = problem.pooled(), contender.models[problem.label_party]
    plan = Plan(contender.training, {pooled.label_party: model}, pooled.label_party, pooled.loss, 2)
    result = train_in_process(plan, pooled.train, held_out=pooled.test, keep_epochs=True)
    return result.snapshots[-1].seconds


def demo_ratios(seconds: Mapping[tuple[str, str], Sequence[float]]) -> dict[str, dict[str, Any]]:
    """How many times as long as pooled training joint training takes."""
    return {
        f"demo, {model}: joint/pooled time": spread(
            [a / b for a, b in zip(seconds[model, "joint"], seconds[model, "pooled"], strict=True)]
        )
        | {"at_most": at_most}
        for model, at_most in DEMO_AT_MOST.items()
    }


def joint_contender() -> Contender:
    """The demo's LR, set for speed."""
    return replace(contenders()[0], training=JOINT)


def train_joint(home: Path) -> EpochTrace:
    """One run of processes; aligned once, trained anew each time."""
    forget(home, PARTIES)
    with running(home, PARTIES) as cluster:
        cluster.finish()
    history = history_of(home)
    metrics = [history[epoch] for epoch in sorted(history)]
    return EpochTrace([each.seconds or 0.0 for each in metrics], [each.test_metric or 0.0 for each in metrics])


def _dense(sample: RowSet) -> torch.Tensor:
    rows = plain_rows(sample.parts["pooled"])
    if isinstance(rows, DenseRows):
        raise AssertionError("a9a is sparse")
    return torch.as_tensor(to_scipy(rows).toarray())


def train_torch(problem: JointDataset, train: torch.Tensor, test: torch.Tensor, rate: float) -> EpochTrace:
    """Plain SGD in torch."""
    layer = torch.nn.Linear(train.shape[1], 1)
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=rate)
    labels = torch.as_tensor(problem.train.labels, dtype=torch.float32)
    seconds, aucs, spent = [], [], 0.0
    for epoch in range(_EPOCHS):
        order = torch.as_tensor(permutation(len(labels), epoch, "torch"))
        X, y = train[order], labels[order]
        batches = [(X[at : at + _BATCH], y[at : at + _BATCH]) for at in range(0, len(y), _BATCH)]
        began = time.perf_counter()
        for rows, wanted in batches:
            optimizer.zero_grad()
            loss = functional.binary_cross_entropy_with_logits(layer(rows)[:, 0], wanted)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        spent += time.perf_counter() - began
        with torch.no_grad():
            score = layer(test)[:, 0].numpy().astype(np.float64)
        seconds.append(spent)
        aucs.append(auc(problem.test.labels, score, problem.test.weights))
    return EpochTrace(seconds, aucs)
