"""The work of a column group as a worker's job: to predict and learn with its rows, by the state that is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fdml.cluster.block_frames import block_arrays, block_facts, block_of
from fdml.cluster.frames import Frame
from fdml.cluster.row_files import describe_rows, open_rows
from fdml.data.rows import Rows
from fdml.models.column_groups import grouped_model, learn_group, predict_group
from fdml.models.kind import ModelSpec
from fdml.models.losses import Floats
from fdml.models.model import State
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings
from fdml.models.signals import BlockUpdate, Scores
from fdml.settings import ModelSettings
from fdml.settings.choices import LossName

TRAIN, HELD_OUT = "train", "held-out"
_SPEC = ("inputs", "width", "bias", "key", "rows", "passes")
GroupRows = Mapping[str, list[Rows]]
"""The rows of each group, to train on and held out."""


class ColumnJob:
    """Predicts and learns with any group; rows are opened when a task first needs them."""

    def __init__(self, setup: ColumnSetup, rows: Callable[[str, int], Rows]) -> None:
        self._models = grouped_model(build_model(setup.settings, setup.spec)).models
        self._objective = objective_for(setup.loss, setup.classes)
        self._open = rows
        self._rows: dict[tuple[str, int], Rows] = {}

    def run(self, task: Frame) -> Frame:
        """A group's predictions, or its state after a pass over a block."""
        facts, group = task.facts, int(task.facts["group"])
        model, rows = self._models[group], self._rows_of(str(facts["part"]), group)
        if facts["learn"]:
            block, scores = block_of(task, self._objective)
            return Frame({}, dict(learn_group(model, rows, task.under("state"), block, scores)))
        found = predict_group(model, rows, task.under("state"), int(facts["start"]), int(facts["stop"]))
        return Frame({}, {"predictions": found})

    def _rows_of(self, part: str, group: int) -> Rows:
        if (part, group) not in self._rows:
            self._rows[part, group] = self._open(part, group)
        return self._rows[part, group]


@dataclass(frozen=True)
class ColumnSetup:
    """All that a worker must know of a party's training but its rows."""

    settings: ModelSettings
    """Resolved."""
    spec: ModelSpec
    loss: LossName
    classes: int

    def job(self, rows: GroupRows) -> ColumnJob:
        """The job over rows of this process."""
        return ColumnJob(self, lambda part, group: rows[part][group])

    def frame(self, rows: GroupRows, folder: Path) -> Frame:
        """The same for another process; the rows of a group that are in memory are written to a folder of their own."""
        places = {
            part: [describe_rows(each, folder / f"{part}-{group}") for group, each in enumerate(parts)]
            for part, parts in rows.items()
        }
        return Frame(
            {
                "job": "columns",
                "model": self.settings.model_dump(mode="json"),
                "spec": {name: getattr(self.spec, name) for name in _SPEC},
                "loss": self.loss,
                "classes": self.classes,
                "rows": places,
            }
        )


def column_job(setup: Frame) -> ColumnJob:
    """The job that `ColumnSetup.frame` has described."""
    facts: Mapping[str, Any] = setup.facts
    spec = ModelSpec(**{**facts["spec"], "key": tuple(facts["spec"]["key"])})
    found = ColumnSetup(model_settings(**facts["model"]), spec, facts["loss"], int(facts["classes"]))
    return ColumnJob(found, lambda part, group: open_rows(facts["rows"][part][group], setup.arrays))


def predicting(group: int, state: State, part: str, start: int, stop: int) -> Frame:
    """A task: a group's predictions of some rows."""
    facts = {"group": group, "learn": False, "part": part, "start": start, "stop": stop}
    return Frame(facts, {f"state/{name}": array for name, array in state.items()})


def learning(group: int, state: State, block: BlockUpdate, scores: Scores) -> Frame:
    """A task: a pass of one group over a block of training rows."""
    facts = {"group": group, "learn": True, "part": TRAIN, **block_facts(block, scores)}
    return Frame(facts, block_arrays(state, block, scores))


def predictions_of(result: Frame) -> Floats:
    """What `predicting` was answered with."""
    return result.arrays["predictions"]
