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

_ADAM_STEP, _ROUND_BATCHES = 0.8, 128
"""Of a net in shards that are added up: Adam's steps do not become smaller as others do their part. Both were chosen on
validation rows (docs/decisions/0047-shards.md)."""


def check_shards(settings: ModelSettings, joint: str, loss: LossName, *, noisy: bool) -> None:
    """Raise unless a party can train with these settings; `noisy` where [guard.training] adds noise."""
    if settings.shards == 1:
        return
    what = f"model.shards is {settings.shards}"
    check_divisible(what, "set model.shards = 1", settings.kind, joint, loss, noisy=noisy)


def sharding_of(settings: ModelSettings) -> Sharding:
    """How the shards of a model are put together; its settings are resolved."""
    kind = kind_named(settings.kind)
    if settings.update_rule not in ("adam", "factored"):
        return Sharding(settings.shards, kind.added_shards)
    if 1 in (settings.shards, kind.added_with_adam):
        return Sharding(settings.shards, kind.added_with_adam)
    return Sharding(settings.shards, kind.added_with_adam, step=_ADAM_STEP, round_batches=_ROUND_BATCHES)


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
