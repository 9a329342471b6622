"""The golden runs: small trainings that together touch every kind of model, loss, exchange and guard.

Settings have today's names; `layout.FileLayout.named` translates them for other versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from tests.golden.datasets import PartyData, by_position, mixed_columns, numbers, one_table, sparse, unscaled, with_ids
from tests.golden.layout import Settings

ANN, BOB, CAT, DAN, EVE = PARTIES = ("ann", "bob", "cat", "dan", "eve")
"""The label party is always the first."""
RUN_NAME = "golden"
"""The order of the rows and the certificates depend on it."""
_TRAINING = {
    "epochs": 3,
    "batch_size": 20,
    "batches_per_block": 4,
    "learning_rate": 0.2,
    "lookahead": 1,
    "value_bits": 64,
    "peer_timeout_seconds": 90.0,
}
_LINEAR = {"kind": "linear"}


def _alike(parties: Iterable[str], settings: Settings) -> dict[str, Settings]:
    """The same settings for each of these parties."""
    return dict.fromkeys(parties, settings)


@dataclass(frozen=True)
class ProcessRun:
    """`fdml simulate`: the server and every party as processes over TLS. The models and the last figures count."""

    name: str
    models: Mapping[str, Settings]
    """`[model]` of every party."""
    data: Callable[[list[str]], Mapping[str, PartyData]] = with_ids
    run: Settings = field(default_factory=dict)
    """run.toml, but for what all runs have alike."""
    training: Settings = field(default_factory=dict)
    """`[training]`, beside what all runs have alike."""
    guards: Mapping[str, Settings] = field(default_factory=dict)
    """`[guard]` of the parties that have one."""
    within: float = 0.0
    """How far its figures may lie from the golden ones, where the order of the rows is new in every run; its models
    are not compared then. 0 compares all to the bit."""

    @property
    def run_settings(self) -> dict[str, Any]:
        """run.toml."""
        left_out = ("batches_per_block", "lookahead") if "exchanges" in self.training else ()
        usual = {key: value for key, value in _TRAINING.items() if key not in left_out}
        return {
            "name": RUN_NAME,
            "label_party": next(iter(self.models)),
            **self.run,
            "training": {**usual, **self.training},
        }


@dataclass(frozen=True)
class CompareRun:
    """`fdml compare` on a data file or on the run.toml of another run, all in one process. Its figures count."""

    name: str
    words: tuple[str, ...] = ()
    file: str = ""
    """Text of a CSV file."""
    of: ProcessRun | None = None


@dataclass(frozen=True)
class EstimatorRun:
    """An estimator's fit, in one process. What it predicts counts."""

    name: str
    kind: str
    """A public class of fdml."""
    X: Any
    y: NDArray[np.generic]
    parameters: Settings
    weights: NDArray[np.float64] | None = None
    fits: int = 1
    """More than one goes on from the fit before (`warm_start`)."""
    torch_at: tuple[int, ...] = ()
    """Positions in a list of models where the torch module of the golden runs takes a party's place."""


@dataclass(frozen=True)
class DemoRun:
    """`fdml demo --seeds 1`. Its joint figures differ from run to run in the fifth digit, as its group key is new."""

    name: str = "demo"
    within: float = 1e-3
    """How far the joint figures may lie from the golden ones; the others are compared to the bit."""


Run = ProcessRun | CompareRun | EstimatorRun | DemoRun

NOISE = ProcessRun(
    "gaussian-noise-of-two-parties",
    {ANN: _LINEAR, BOB: {"kind": "mlp", "hidden": [5]}, CAT: _LINEAR},
    guards={
        ANN: {"clip": 3.0, "noise": "gaussian", "sigma": 1.0, "evaluation": "exact"},
        BOB: {"clip": 2.0, "noise": "gaussian", "sigma": "auto", "epsilon": 8.0},
    },
)

PROCESS_RUNS = (
    ProcessRun("linear-of-two-parties", _alike([ANN, BOB], _LINEAR), training={"learning_rate": "auto"}),
    ProcessRun(
        "linear-of-five-parties-blind-server-two-passes-32-bits",
        _alike(PARTIES, _LINEAR),
        run={"privacy": {"server": "blind"}},
        training={"passes": 2, "value_bits": 32},
    ),
    ProcessRun(
        "algorithm-1-of-the-paper",
        _alike([ANN, BOB], _LINEAR),
        data=by_position,
        training={"lookahead": 0, "batches_per_block": 1, "lr_decay": "sqrt", "echo": 1.0},
    ),
    ProcessRun(
        "fm-of-three-parties-adagrad-16-bits",
        _alike([ANN, BOB, CAT], {"kind": "fm", "factors": 3, "optimizer": "adagrad"}),
        training={"value_bits": 16, "learning_rate": 0.05},
    ),
    ProcessRun(
        "mlp-of-two-parties-momentum",
        _alike([ANN, BOB], {"kind": "mlp", "hidden": [8, 4], "optimizer": "momentum", "momentum": 0.8}),
        data=by_position,
        training={"learning_rate": 0.05, "lr_decay": "constant", "seed": 11},
    ),
    ProcessRun(
        "multiclass-mlp-adam",
        {ANN: {"kind": "mlp", "hidden": [6], "optimizer": "adam"}, BOB: {**_LINEAR, "optimizer": "adam"}},
        data=partial(with_ids, task="multiclass"),
        run={"task": "multiclass"},
        training={"learning_rate": 0.02},
    ),
    ProcessRun(
        "aligned-by-ecdh",
        _alike([ANN, BOB], _LINEAR),
        data=partial(with_ids, test_rows=100),
        run={"align": "ecdh"},
        training={"batch_size": 1000, "batches_per_block": 1, "epochs": 5},  # all rows in each update
        within=1e-5,
    ),
    ProcessRun(
        "torch-beside-linear",
        {ANN: _LINEAR, BOB: {"kind": "torch", "module": "golden_net:net", "optimizer": "adam", "learning_rate": 0.02}},
    ),
    ProcessRun(
        "private-labels",
        {ANN: _LINEAR, BOB: _LINEAR, CAT: {"kind": "mlp", "hidden": [5]}},
        run={"privacy": {"labels": "private", "label_epsilon": 2.0}},
    ),
    ProcessRun(
        "private-labels-of-three-classes-blind-server",
        _alike([ANN, BOB], _LINEAR),
        data=partial(by_position, task="multiclass"),
        run={"task": "multiclass", "privacy": {"labels": "private", "server": "blind"}},
    ),
    ProcessRun(
        "one-exchange",
        {ANN: _LINEAR, BOB: {"kind": "mlp", "hidden": [6]}},
        training={"exchanges": 1, "epochs": 6},
    ),
    NOISE,
    ProcessRun(
        "laplace-noise-ends-early-when-the-budget-is-spent",
        _alike([ANN, BOB], _LINEAR),
        run={"privacy": {"server": "blind"}, "evaluation": {"every": "end"}},
        guards={BOB: {"clip": 1.0, "noise": "laplace", "sigma": 2.0, "epsilon": 2.5}},
    ),
    ProcessRun(
        "noisy-gradients",
        {ANN: _LINEAR, BOB: {"kind": "mlp", "hidden": [5]}},
        data=unscaled,
        guards=_alike([ANN, BOB], {"training": {"clip": 1.0, "sigma": 0.5}}),
    ),
    ProcessRun(
        "sparse-rows-of-libsvm-files",
        {ANN: _LINEAR, BOB: {"kind": "fm", "factors": 2}},
        data=sparse,
    ),
    ProcessRun(
        "categories-hashed-columns-and-missing-numbers",
        {ANN: _LINEAR, BOB: {"kind": "mlp", "hidden": [6]}},
        data=mixed_columns,
    ),
    ProcessRun(
        "regression-with-weights-and-test-files-in-double-precision",
        _alike([ANN, BOB], {**_LINEAR, "precision": "double", "optimizer": "momentum"}),
        data=partial(with_ids, task="regression", weighted=True, test_rows=100),
        run={"task": "regression", "evaluation": {"every": "epoch"}},
        training={"learning_rate": 0.02},
    ),
    ProcessRun(
        "hinge-loss-held-out-rows-judged-at-the-end",
        _alike([ANN, BOB], {**_LINEAR, "optimizer": "adagrad", "l2": 0.001}),
        run={"loss": "hinge", "evaluation": {"holdout": 0.3, "every": "end"}},
        training={"batches_per_block": "all", "learning_rate": 0.1},
    ),
)

COMPARE_RUNS = (
    CompareRun(
        "compare-a-data-file",
        ("--label", "label", "--models", "linear,fm,mlp", "--epochs", "3", "--batch-size", "20", "--seeds", "2"),
        file=one_table(),
    ),
    CompareRun("compare-a-run-with-noise", of=NOISE),
)

_CLASSIFIER, _REGRESSOR = "FeatureDistributedClassifier", "FeatureDistributedRegressor"
_BINARY = numbers(300, 6, "binary", 6)
_MULTICLASS = numbers(300, 6, "multiclass", 7)
_REGRESSION = numbers(300, 6, "regression", 8)
_FITTING = {
    "epochs": 3,
    "batch_size": 20,
    "batches_per_block": 4,
    "optimizer": "sgd",
    "l2": 1e-4,
    "scale": "none",
    "random_state": 0,
}
_THREE_GROUPS = [[0, 1], [2, 3], [4, 5]]

ESTIMATOR_RUNS = (
    EstimatorRun("estimator-linear-in-double-precision", _CLASSIFIER, *_BINARY, _FITTING),
    EstimatorRun(
        "estimator-fm-of-sparse-rows-three-classes-three-parties",
        _CLASSIFIER,
        sp.csr_matrix(np.where(np.abs(_MULTICLASS[0]) > 0.7, _MULTICLASS[0], 0.0).astype(np.float32)),
        _MULTICLASS[1],
        {
            **_FITTING,
            "model": "fm",
            "factors": 3,
            "groups": _THREE_GROUPS,
            "optimizer": "adagrad",
            "learning_rate": 0.1,
        },
    ),
    EstimatorRun(
        "estimator-mlp-regression-adam-with-weights-fitted-twice",
        _REGRESSOR,
        *_REGRESSION,
        {**_FITTING, "model": "mlp", "hidden": [7], "optimizer": "adam", "learning_rate": 0.01, "warm_start": True},
        weights=np.linspace(0.5, 1.5, 300),
        fits=2,
    ),
    EstimatorRun(
        "estimator-hinge-loss-momentum-two-passes",
        _CLASSIFIER,
        _BINARY[0].astype(np.float32),
        _BINARY[1],
        {**_FITTING, "loss": "hinge", "optimizer": "momentum", "learning_rate": 0.05, "passes": 2},
    ),
    EstimatorRun(
        "estimator-algorithm-1-of-the-paper",
        _CLASSIFIER,
        *_BINARY,
        {**_FITTING, "lookahead": 0, "batches_per_block": 1, "lr_decay": "sqrt", "learning_rate": 0.5},
    ),
    EstimatorRun(
        "estimator-torch-beside-linear",
        _CLASSIFIER,
        *_BINARY,
        {**_FITTING, "model": ["linear", "torch"], "learning_rate": 0.1},
        torch_at=(1,),
    ),
)

RUNS: dict[str, Run] = {run.name: run for run in (*PROCESS_RUNS, *COMPARE_RUNS, *ESTIMATOR_RUNS, DemoRun())}
