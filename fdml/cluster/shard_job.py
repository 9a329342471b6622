"""Learning from shards, as a worker's job: set up once with a model and its rows, then asked with state and signal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fdml.cluster.frames import Frame
from fdml.cluster.row_files import describe_rows, open_rows
from fdml.cluster.shard_frames import result_of, update_of
from fdml.data.rows import Rows
from fdml.models.compiled import CompiledModel
from fdml.models.kind import ModelSpec
from fdml.models.objective import Objective, objective_for
from fdml.models.registry import build_model, model_settings
from fdml.models.shards import learn_shard, trained_model
from fdml.settings import ModelSettings
from fdml.settings.choices import LossName

_SPEC = ("inputs", "width", "bias", "key", "rows", "passes")
"""Of a model; by its key units are drawn that dropout leaves out."""


class ShardJob:
    """Learns from shards with a model of its own."""

    def __init__(self, model: CompiledModel, rows: Rows, objective: Objective) -> None:
        self._model = model
        self._rows = rows
        self._objective = objective

    def run(self, task: Frame) -> Frame:
        """What a shard changes."""
        state, update = update_of(task, self._objective)
        return result_of(learn_shard(self._model, self._rows, state, update))


@dataclass(frozen=True)
class ShardSetup:
    """All that a worker must know of a party's training but its rows."""

    settings: ModelSettings
    """Resolved."""
    spec: ModelSpec
    loss: LossName
    classes: int

    def job(self, rows: Rows) -> ShardJob:
        """The job over rows of this process."""
        model = trained_model(build_model(self.settings, self.spec))
        return ShardJob(model, rows, objective_for(self.loss, self.classes))

    def frame(self, rows: Rows, folder: Path) -> Frame:
        """The same for another process; rows that are in memory alone are written to `folder`."""
        return Frame(
            {
                "job": "shards",
                "model": self.settings.model_dump(mode="json"),
                "spec": {name: getattr(self.spec, name) for name in _SPEC},
                "loss": self.loss,
                "classes": self.classes,
                "rows": describe_rows(rows, folder),
            }
        )


def shard_job(setup: Frame) -> ShardJob:
    """The job that `ShardSetup.frame` has described."""
    facts = setup.facts
    spec = ModelSpec(**{**facts["spec"], "key": tuple(facts["spec"]["key"])})
    found = ShardSetup(model_settings(**facts["model"]), spec, facts["loss"], int(facts["classes"]))
    return found.job(open_rows(facts["rows"], setup.arrays))
