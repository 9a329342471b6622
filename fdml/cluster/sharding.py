"""A party that trains in shards: whether it can, and with whom."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

from fdml.cluster.divisible import check_divisible
from fdml.cluster.elsewhere import workers_elsewhere
from fdml.cluster.learner import ShardedLearner
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import ShardSetup
from fdml.cluster.workers import ThreadWorkers, Workers
from fdml.data.rows import Rows
from fdml.models.model import Model
from fdml.models.registry import kind_named
from fdml.models.shards import Sharding
from fdml.settings import ModelSettings
from fdml.settings.choices import LossName


def check_shards(settings: ModelSettings, joint: str, loss: LossName, *, noisy: bool) -> None:
    """Raise unless a party can train with these settings; `noisy` where [guard.training] adds noise."""
    if settings.shards == 1:
        return
    what = f"model.shards is {settings.shards}"
    check_divisible(what, "set model.shards = 1", settings.kind, joint, loss, noisy=noisy)


def sharding_of(settings: ModelSettings) -> Sharding:
    """How the shards of a model are put together; its settings are resolved."""
    kind = kind_named(settings.kind)
    as_adam = settings.update_rule in ("adam", "factored")
    return Sharding(settings.shards, kind.added_with_adam if as_adam else kind.added_shards)


def sharded_learner(
    setup: ShardSetup,
    model: Model,
    rows: Rows,
    workers: WorkersSettings,
    *,
    party: str,
    held_out: Rows | None,
    threads: int,
) -> ShardedLearner:
    """A model with its rows bound, trained in shards by workers of these settings."""
    joint = "sum" if setup.spec.joint.is_identity else "another"
    check_shards(setup.settings, joint, setup.loss, noisy=setup.spec.dp_sgd is not None)
    return ShardedLearner(
        model,
        rows,
        sharding_of(setup.settings),
        start_workers(setup, rows, workers),
        party=party,
        held_out=held_out,
        threads=threads,
    )


def start_workers(setup: ShardSetup, rows: Rows, settings: WorkersSettings) -> Workers:
    """Workers that are set up for these rows; other processes find those in memory in a temporary folder."""
    count = settings.workers(setup.settings.shards)
    if settings.kind == "threads":
        return ThreadWorkers([setup.job(rows) for _ in range(count)])
    folder = Path(tempfile.mkdtemp(prefix="fdml-shards-"))
    found = workers_elsewhere(setup.frame(rows, folder), count, settings)
    weakref.finalize(found, shutil.rmtree, folder, ignore_errors=True)
    return found
