"""Learners in column groups for tests, over a few hundred random rows of the features of `learners`."""

import numpy as np

from fdml.cluster.column_groups import grouped_learner
from fdml.cluster.column_job import HELD_OUT, TRAIN, ColumnSetup
from fdml.cluster.column_learner import GroupedLearner
from fdml.cluster.lines import LinedWorkers
from fdml.models.column_groups import group_rows, grouped_model
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings, resolved_model
from tests.cluster.learners import ONE_THREAD, ROWS, SHAPE, FramedLine
from tests.models.random_updates import CLASSES_OF, WIDTH_OF

GROUPS = {"web": ("clicks", "visits"), "card": ("spent",)}
RUNS = ((0, 2), (1, SHAPE.width - 4), (0, 1), (2, 1))
"""Of the features: two of the web, then those of the card, another of the web, and one of the rest."""
SPEC = ModelSpec(inputs=SHAPE.width, width=1, bias=True, key=(1, "test"))


def settings_of(kind="mlp", **settings):
    found = {"column_groups": GROUPS, "group_features": RUNS, **settings}
    return resolved_model(model_settings(kind, **found), SHAPE.rows)


def setup_of(kind="mlp", loss="logistic", **settings):
    return ColumnSetup(settings_of(kind, **settings), SPEC._replace(width=WIDTH_OF[loss]), loss, CLASSES_OF[loss])


def learner(workers=ONE_THREAD, setup=None, rows=ROWS, held_out=None):
    setup = setup or setup_of()
    model = build_model(setup.settings, setup.spec)
    found = grouped_learner(setup, model, rows, workers, party="shop", held_out=held_out)
    found.warm_up(objective_for(setup.loss, setup.classes))
    return found


def framed(setup, folder, rows=ROWS, held_out=None):
    """A learner whose workers know nothing but frames and files."""
    model = build_model(setup.settings, setup.spec)
    parts = {TRAIN: rows} if held_out is None else {TRAIN: rows, HELD_OUT: held_out}
    cut = {part: [group_rows(each, group) for group in grouped_model(model).features] for part, each in parts.items()}
    frame = setup.frame(cut, folder)
    workers = LinedWorkers(lambda _: FramedLine(frame), 2, 60.0)
    return GroupedLearner(model, rows, workers, party="shop", held_out=held_out)


def rows_of(count, width=SHAPE.width, seed=5):
    return np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
