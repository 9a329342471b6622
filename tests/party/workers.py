"""Workers for tests, with a learner and a server that only write down what passes, or with real ones."""

import io
from dataclasses import replace
from functools import partial

import numpy as np

from fdml.models.learner import LocalLearner
from fdml.models.learning_rate import LearningRate
from fdml.models.objective import objective_for
from fdml.models.registry import model_settings
from fdml.party.denoising import denoise
from fdml.party.loop import Worker
from fdml.party.task import TrainingTask
from fdml.privacy.guard import NO_NOISE, Guard
from fdml.privacy.ledger import Ledger, Mechanism, epsilon_of
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.protocol.fixed_point import encode
from fdml.protocol.messages import Push, Release, Stop, Stopped, Total
from fdml.protocol.schedule import schedule_for
from fdml.server.coordinator import Coordinator
from tests.models.random_updates import FORM_OF, build, stored
from tests.privacy.guards import no_protection

ROWS = 11
NOISY = Mechanism("gaussian", 100.0, 1000.0)
DELTA = 1e-5
EMPTY_ROWS = stored(np.zeros((ROWS, 1), np.float32), "dense")


class Recorder:
    """Learner and server in one: writes down who is called when. Its prediction is its number of updates."""

    def __init__(self, others=0.0, dtype=np.float64, stop=None):
        self.calls, self.updates, self.pushed, self.others = [], [], {}, others
        self.dtype, self.stop = np.dtype(dtype), stop
        self.pushed_at = lambda step: (step,)

    def predict(self, start, stop):
        return np.full((stop - start, 1), 0.1 + len(self.updates), self.dtype)

    def update(self, block, signal):
        self.calls.append("learn")
        self.updates.append((block, signal))

    def state(self):
        return {}

    def restore(self, state):
        """There is nothing to restore."""

    def send(self, message):
        self.calls.append(f"{'send' if isinstance(message, Push) else 'stop'} {message.step}")
        if isinstance(message, Push):
            self.pushed[message.step] = message.release

    def receive(self, step):
        self.calls.append(f"receive {step}")
        if self.stop is not None and step >= self.stop:
            return Stopped("browser", self.stop)
        release = self.pushed[step]
        mask_ids = (release.mask_id,) if release.mask_id else ()
        return Total(step, release.values + encode(np.array([[self.others]])), self.pushed_at(step), mask_ids)


def train(worker, recorder):
    """Answer all that a worker sends, to its end."""
    for message in worker.first_messages():
        recorder.send(message)
    while not worker.finished:
        answer = recorder.receive(worker.step)
        if isinstance(answer, Stopped):
            worker.stop_at(answer.step)
        else:
            for message in worker.learn(answer):
                recorder.send(message)


def task_of(schedule, lookahead, staleness=0):
    return TrainingTask(
        party="store",
        labels=np.arange(ROWS, dtype=np.float64),
        weights=np.arange(ROWS, dtype=np.float64) + 100,
        schedule=schedule,
        objective=objective_for("squared", 0),
        rate=LearningRate(1.0, "linear", schedule.updates),
        echo=3.0,
        lookahead=lookahead,
        staleness=staleness,
        denoise=partial(denoise, rows=EMPTY_ROWS) if schedule.passes_per_exchange else None,
    )


def noisy(*, allowed=None, store=None, key=b"k", gradients=None):
    """A guard whose budget allows so many releases of each row."""
    budget = None if allowed is None else epsilon_of(NOISY, allowed, DELTA)
    return Guard(Perturbation(NOISY, NoiseKey(key * 32)), Ledger(NOISY, gradients, DELTA, budget), store=store)


def masked(parties=("store",), party="store", mask_id=5, *, blind=True):
    """A guard that only masks."""
    masks = Masks(bytes(range(32)), parties, party, mask_id)
    return Guard(Perturbation(NO_NOISE), Ledger(NO_NOISE, None, DELTA, None), masks=masks, blind=blind)


def run(*, lookahead=1, passes=1, epochs=1, staleness=0, recorder=None, guard=None):
    recorder = recorder or Recorder()
    schedule = schedule_for(ROWS, 2, 2, passes, epochs, 7)
    worker = Worker(recorder, task_of(schedule, lookahead, staleness), guard or no_protection())
    train(worker, recorder)
    return recorder, schedule


GUARDS = {"open": no_protection, "noisy": noisy, "masked": masked}


X = np.random.default_rng(3).normal(size=(ROWS, 4)).astype(np.float32)
Y = np.random.default_rng(4).integers(0, 2, ROWS).astype(np.float64)
KINDS = {
    "linear": model_settings(),
    "momentum": model_settings(optimizer="momentum"),
    "fm": model_settings("fm", factors=2, optimizer="adagrad"),
    "mlp": model_settings("mlp", hidden=(3,), optimizer="adam"),
}


def new_worker(kind="linear", *, lookahead=1, passes=1, guard=None, staleness=0, epochs=2):
    schedule = schedule_for(ROWS, 2, 2, passes, epochs, 7)
    task = replace(
        task_of(schedule, lookahead, staleness),
        labels=Y,
        weights=np.ones(ROWS),
        objective=objective_for("logistic", 2),
        watch_loss=True,
    )
    learner = LocalLearner(build(KINDS[kind], 4, 1, key=(7, "model", "store")), stored(X, "dense"))
    return Worker(learner, task, guard or no_protection()), schedule


def total_of(step, release):
    """What the others add is fixed, and different for every step."""
    others = np.random.default_rng([9, step]).integers(-(2**32), 2**32, release.values.shape)
    mask_ids = (release.mask_id,) if release.mask_id else ()
    return Total(step, release.values + others, (step,), mask_ids)


class ServerCopy:
    """All that was ever sent, as a server has it: the same step again must be the same bytes."""

    def __init__(self):
        self.releases = {}
        self.mask_ids = {}
        self.stops = []

    def take(self, messages):
        """Returns which steps came."""
        steps = []
        for message in messages:
            if isinstance(message, Stop):
                self.stops.append(message.step)
                continue
            step, release = message.step, message.release
            assert self.releases.setdefault(step, release.values.tobytes()) == release.values.tobytes()
            assert self.mask_ids.setdefault(step, release.mask_id) == release.mask_id
            steps.append(step)
        return steps

    def total(self, step):
        values = np.frombuffer(self.releases[step], np.int64)
        return total_of(step, Release(values, self.mask_ids[step]))


def finish(worker, server):
    while not worker.finished:
        server.take(worker.learn(server.total(worker.step)))
    return worker


def bits(worker):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in worker.state().items()}


def through_a_file(state):
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **state)
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as archive:
        return dict(archive)


CLASSES = {"logistic": 2, "softmax": 3}


class Group:
    """Three parties and a real coordinator, message by message; `gradient_party` where labels are private."""

    def __init__(self, loss, kind, *, gradient_party=None, blind=False, lookahead=1, passes=1):
        self.names, objective = ("store", "browser", "guard"), objective_for(loss, CLASSES[loss])
        schedule = schedule_for(ROWS, 2, 2, passes, 4, 7)
        random = np.random.default_rng(5)
        labels = random.integers(0, objective.classes, ROWS).astype(np.float64)
        self.coordinator = Coordinator(
            self.names, schedule, objective.width, 0, blind=blind, gradient_party=gradient_party
        )
        self.workers, self.seen = {}, []
        for number, name in enumerate(self.names):
            rows = stored(random.normal(size=(ROWS, 3)).astype(np.float32), FORM_OF["double"])
            task = replace(
                task_of(schedule, lookahead),
                party=name,
                labels=labels if gradient_party in (None, name) else np.zeros(ROWS),
                weights=np.ones(ROWS),
                objective=objective,
                rate=LearningRate(0.3, "linear", schedule.updates),
                gradient_party=gradient_party,
            )
            model = build(kind, 3, objective.width, bias=not number, key=(7, "model", name))
            guard = masked(self.names, name, 10 + number, blind=blind)
            self.workers[name] = Worker(LocalLearner(model, rows), task, guard)

    def train(self):
        """To the end; gives every party's model."""
        todo = [(name, message) for name, worker in self.workers.items() for message in worker.first_messages()]
        while todo:
            name, message = todo.pop(0)
            for reply in self.coordinator.handle(name, message):
                self.seen.append((reply.to, type(reply.message)))
                todo += [(reply.to, sent) for sent in self.workers[reply.to].learn(reply.message)]
        assert all(worker.finished for worker in self.workers.values())
        return {name: worker.parameters() for name, worker in self.workers.items()}


PRECISE = {
    "linear": model_settings(optimizer="sgd", l2=1e-4, precision="double"),
    "mlp": model_settings("mlp", hidden=(3,), optimizer="sgd", l2=1e-4, precision="double"),
}
