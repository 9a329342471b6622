"""The paper's experiment on a9a, with the settings measured to be best without looking at test rows."""

from __future__ import annotations

from fdml.data.adult import a9a
from fdml.data.partition import partition
from fdml.data.table import PartyData
from fdml.run.compare import Contender
from fdml.run.problem import Problem, pose
from fdml.settings import ModelSettings, TrainingSettings
from fdml.watch.history import EpochRecord, Scheme

PARTIES = ("party 0", "party 1")
GROUPS = (range(67), range(67, 123))

PAPER: dict[tuple[str, Scheme], EpochRecord] = {
    ("LR", "alone"): EpochRecord(40, 41, 0.3625, 0.3509, 0.8850),
    ("LR", "pooled"): EpochRecord(40, 45, 0.3359, 0.3247, 0.9025),
    ("LR", "joint"): EpochRecord(40, 99, 0.3352, 0.3246, 0.9026),
    ("NN", "alone"): EpochRecord(40, 53, 0.3652, 0.3484, 0.8864),
    ("NN", "pooled"): EpochRecord(40, 57, 0.4008, 0.3235, 0.9042),
    ("NN", "joint"): EpochRecord(40, 110, 0.4170, 0.3272, 0.9035),
}
"""Table 2 of Hu et al., KDD 2019; it has no late fusion."""


def a9a_problem() -> Problem:
    """a9a with features 1..67 at the label party and 68..123 at the other."""
    data = a9a()
    if data.test is None:
        raise AssertionError("the bundled a9a has test rows")
    train, test = partition(data.train, GROUPS), partition(data.test, GROUPS)
    parties = {name: PartyData(train[at], test[at]) for at, name in enumerate(PARTIES)}
    return pose(parties, PARTIES[0], "binary", "logistic", holdout=0.5, seed=0)


def contenders() -> list[Contender]:
    """LR and NN as in the paper: batch 100, two layers with 64 hidden units."""
    return [
        _contender("LR", 20, ModelSettings(kind="linear", l2=3e-4)),
        _contender("NN", 40, ModelSettings(kind="mlp", hidden=(64,), l2=1e-3)),
    ]


def _contender(name: str, epochs: int, model: ModelSettings) -> Contender:
    return Contender(name, TrainingSettings(epochs=epochs), dict.fromkeys(PARTIES, model))
