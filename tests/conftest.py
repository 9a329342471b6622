"""What several test folders share."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from hypothesis import settings
from threadpoolctl import threadpool_limits

from fdml.data.partition import partition
from fdml.data.samples.adult import a9a
from fdml.data.table import PartyData
from fdml.experiments.dataset import JointDataset, build_dataset
from fdml.experiments.in_process import TrainingResult, train_in_process
from fdml.party.plan import Plan
from fdml.settings import ModelSettings, TrainingSettings

settings.register_profile("fdml", deadline=None, max_examples=50)  # a busy machine is no failure
settings.register_profile("quick", settings.get_profile("fdml"), max_examples=10, database=None)  # of `make quick`
settings.load_profile("fdml")

_ = scipy.linalg  # it brings a BLAS of its own
threadpool_limits(1, "blas")  # every worker has one core: threads of small sums would only wait for each other

_MEMORY, _ROOM = Path("/dev/shm"), 4 * 2**30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))  # where syncing a file costs nothing

_TOGETHER = (
    "tests/end_to_end/",
    "tests/packaging/",
    "tests/audit/test_load_recording.py",
    "tests/benchmarks/test_app_store.py",
    "tests/benchmarks/test_noise.py",
    "tests/benchmarks/test_process_runs.py",
    "tests/benchmarks/test_regret.py",
    "tests/experiments/test_search.py",
    "tests/federation/test_predicting.py",
    "tests/federation/test_processes.py",
)
"""Files whose tests share processes, an environment or runs: in two workers each would make them anew."""

Dealer = Callable[[Sequence[Sequence[int]]], JointDataset]


@pytest.fixture(scope="session")
def deal_a9a() -> Dealer:
    """a9a with its columns dealt to parties p0, p1, ...; p0 holds the labels."""
    data = a9a()

    def deal(groups: Sequence[Sequence[int]]) -> JointDataset:
        train, test = partition(data.train, groups), partition(data.test, groups)
        parties = {f"p{at}": PartyData(train[at], test[at]) for at in range(len(groups))}
        return build_dataset(parties, "p0", "binary", None, 0.2, 7).shuffled(7)

    return deal


@pytest.fixture(scope="session")
def a9a_of(deal_a9a: Dealer) -> Callable[[int], JointDataset]:
    """a9a among so many parties; with two, cut as in the paper."""

    def among(parties: int) -> JointDataset:
        cut = [range(67), range(67, 123)] if parties == 2 else np.array_split(np.arange(123), parties)
        return deal_a9a(cut)

    return among


def train_on(problem: JointDataset, model: ModelSettings, **training: object) -> TrainingResult:
    """Train the same kind of model at every party."""
    models = dict.fromkeys(problem.train.parts, model)
    chosen = TrainingSettings(**training)
    return train_in_process(
        Plan(chosen, models, problem.label_party, problem.loss, problem.encoding.class_count), problem.train
    )


@pytest.fixture(scope="module")
def warm_starts() -> Iterator[None]:
    """From here to the end of the file, `fdml` commands are forked from a process that has everything imported."""
    from tests.end_to_end.cluster import forks  # noqa: PLC0415 - it imports all commands
    from tests.end_to_end.warm_starts import warm_popen  # noqa: PLC0415 - as above

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess, "Popen", warm_popen(forks()))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out one by one, but keep a file together whose tests share processes or an environment."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only there where xdist runs the tests

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            path = nodeid.partition("::")[0]
            return path if path.startswith(_TOGETHER) else nodeid

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Forget what is done: else every report makes it count all tests so far."""
            super().mark_test_complete(node, item_index, duration)
            assigned = self.assigned_work[node]
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(assigned[scope].values()):
                del assigned[scope]

    return ByFile(config, log)
