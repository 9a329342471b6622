"""What several test folders share."""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import cache
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
settings.register_profile("quick", settings.get_profile("fdml"), max_examples=5, database=None)  # of `make quick`
settings.load_profile("fdml")

_ = scipy.linalg  # it brings a BLAS of its own
threadpool_limits(1, "blas")  # every worker has one core: threads of small sums would only wait for each other

_MEMORY, _ROOM = Path("/dev/shm"), 4 * 2**30
if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > _ROOM:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))  # where syncing a file costs nothing

_ROOT = Path(__file__).parents[1]
_TOGETHER = (
    "tests/end_to_end/",
    "tests/packaging/",
    "tests/audit/test_lattice.py",
    "tests/privacy/test_discrete_noise.py",
)
"""Tests that share processes, an environment or compiled functions of their own, file by file."""
_COMPILES = re.compile(
    r"tests/(models/|contracts/test_models\.py).*?(?<![a-z])(linear under fm|linear|fm|mlp|torch|vectors)(?![a-z])"
)
"""Tests of a kind of model; the first with each form of rows waits seconds until its kernels are compiled. torch has
none, but brings half of itself with the first step of an optimizer."""
_KERNELS_OF = {"linear under fm": "vectors"}
"""Kinds that are computed by the kernels of another name."""

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
        patch.setattr(subprocess, "Popen", warm_popen(forks))
        yield


def pytest_configure() -> None:
    """Look for no garbage while tests are collected: there is none."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Where workers collect all tests, import a share first: each takes from the others what they have compiled.

    In a new clone each would else rewrite the asserts of all files, which takes some six seconds of a core.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or [Path(each).resolve() for each in session.config.args] != [_ROOT / "tests"]:
        return
    for module in share_of(worker, int(os.environ["PYTEST_XDIST_WORKER_COUNT"])):
        with contextlib.suppress(ImportError, SyntaxError, pytest.skip.Exception):  # the collection tells of it
            importlib.import_module(module)


def share_of(worker: str, workers: int) -> list[str]:
    """Of so many workers, the modules of tests that this one imports first: gw0 the first of all, gw1 the second."""
    paths = sorted(_ROOT.glob("tests/**/test_*.py"))[int(worker.removeprefix("gw")) % workers :: workers]
    return [".".join(path.relative_to(_ROOT).with_suffix("").parts) for path in paths]


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Look for garbage only in what tests make: modules and tests themselves are a million objects."""
    gc.collect()
    gc.freeze()
    gc.enable()


def same_worker(test: str) -> str:
    """A name that is the same for all tests that one worker is to run; the largest of these groups come first.

    In two workers each would make anew what a file's tests share, compile the kernels of a kind of model, or import
    what draws.
    """
    path = test.partition("::")[0]
    if path.startswith(_TOGETHER) or _makes_something_for_all(path):
        return path
    if "plot" in path:
        return "plots"
    found = _COMPILES.match(test)
    return _KERNELS_OF.get(found[2], found[2]) if found else test


@cache
def _makes_something_for_all(path: str) -> bool:
    """A fixture, or a function that is compiled in every process anew."""
    text = (_ROOT / path).read_text(encoding="utf-8")
    return 'scope="module"' in text or "@numba.njit" in text


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out one by one, but keep those together that share what is dear."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415 - only there where xdist runs the tests

    class Numbered(list[str]):
        """Tests whose places are known: else each is looked for among all before it is sent to a worker."""

        def __init__(self, tests: Sequence[str]) -> None:
            super().__init__(tests)
            self._places = {test: place for place, test in enumerate(tests)}

        def index(self, test: str, *_: Any) -> int:
            return self._places[test]

    class ByFile(LoadScopeScheduling):
        def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
            super().add_node_collection(node, collection)
            if node in self.registered_collections:  # it is not where it found other tests than the rest
                self.registered_collections[node] = Numbered(collection)

        def _split_scope(self, nodeid: str) -> str:
            return same_worker(nodeid)

        def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
            """Forget what is done: else every report makes it count all tests so far."""
            super().mark_test_complete(node, item_index, duration)
            assigned = self.assigned_work[node]
            scope = self._split_scope(self.registered_collections[node][item_index])
            if all(assigned[scope].values()):
                del assigned[scope]

    return ByFile(config, log)
