"""Sharded learners for tests, over a few hundred random rows."""

import hashlib
import io

import numpy as np

from fdml.cluster.frames import read_frame, to_bytes
from fdml.cluster.jobs import job_of
from fdml.cluster.learner import ShardedLearner
from fdml.cluster.lines import LinedWorkers
from fdml.cluster.settings import WorkersSettings
from fdml.cluster.shard_job import ShardSetup
from fdml.cluster.sharding import sharded_learner, sharding_of
from fdml.cluster.worker_process import answer
from fdml.models.kind import ModelSpec
from fdml.models.objective import objective_for
from fdml.models.registry import build_model, model_settings, resolved_model
from tests.models.random_updates import CLASSES_OF, WIDTH_OF, Shape, random_features, random_update, stored

SHAPE = Shape(rows=600, start=0, batch=20)
X = random_features(np.random.default_rng(6), SHAPE)
ROWS = stored(X, "sparse")
ONE_THREAD, PROCESSES = WorkersSettings(count=1), WorkersSettings(kind="processes", count=2)


def setup_of(kind="mlp", loss="logistic", shards=4, **settings):
    chosen = resolved_model(model_settings(kind, shards=shards, **settings), SHAPE.rows)
    spec = ModelSpec(inputs=SHAPE.width, width=WIDTH_OF[loss], bias=True, key=(1, "test"))
    return ShardSetup(chosen, spec, loss, CLASSES_OF[loss])


def learner(workers=ONE_THREAD, setup=None, rows=ROWS, held_out=None):
    setup = setup or setup_of()
    model = build_model(setup.settings, setup.spec)
    found = sharded_learner(setup, model, rows, workers, party="shop", held_out=held_out, threads=1)
    found.warm_up(objective_for(setup.loss, setup.classes))
    return found


class FramedLine:
    """A worker of another process as it would be set up and asked, without the process."""

    machine = "here"

    def __init__(self, setup):
        self._job = job_of(passed(setup))

    def ask(self, task, seconds):
        return passed(answer(self._job, passed(task)))

    def end(self):
        """Nothing has to be ended."""


def passed(frame):
    """A frame as the other end of a pipe has it."""
    return read_frame(io.BytesIO(to_bytes(frame)))


def framed(setup, folder, rows=ROWS):
    """A learner whose workers know nothing but frames and files."""
    frame = setup.frame(rows, folder)
    workers = LinedWorkers(lambda _: FramedLine(frame), 2, 60.0)
    model = build_model(setup.settings, setup.spec)
    return ShardedLearner(model, rows, sharding_of(setup.settings), workers, party="shop")


def update(learner, seed, loss="logistic", precision="single"):
    learner.update(*random_update(np.random.default_rng(seed), loss, precision, SHAPE))


def digest(learner):
    state = learner.state()
    return hashlib.sha256(b"".join(state[name].tobytes() for name in sorted(state))).hexdigest()
