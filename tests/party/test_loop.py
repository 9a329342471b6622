"""The loop, with a channel that only writes down what passes."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.data.schedule import schedule_for
from fdml.exchange.fixed_point import decode, encode
from fdml.exchange.messages import Release, Total
from fdml.party.build import build_model
from fdml.party.kernels import Lesson
from fdml.party.loop import Homework, Outbox, Worker, train
from fdml.party.losses import LOSSES
from fdml.party.rates import Rate
from fdml.privacy.guard import OpenGuard
from fdml.settings import ModelSettings
from fdml.watch.events import EpochDone, StepDone
from tests.party.lessons import stored

ROWS = 11


class Recorder:
    """Model, channel and listener in one: writes down who is called when. Its prediction is its number of lessons."""

    dtype = np.dtype(np.float64)

    def __init__(self, others=0.0):
        self.calls, self.lessons, self.pushed, self.others = [], [], {}, others
        self.kept, self.saved = [], []

    def predict(self, rows, start=0, stop=None):
        return np.full((stop - start, 1), 0.1 + len(self.lessons))

    def learn(self, rows, lesson):
        self.calls.append("learn")
        self.lessons.append(lesson)

    def send(self, step, release):
        self.calls.append(f"send {step}")
        self.pushed[step] = release.values

    def receive(self, step):
        self.calls.append(f"receive {step}")
        return Total(step, self.pushed[step] + encode(np.array([[self.others]])), (step, step - 2))

    def keep(self, step):
        self.kept.append(step)

    def hear(self, event):
        self.calls.append(event)

    def save(self, worker):
        """Keeps every second state."""
        self.saved.append(worker.step)
        return worker.step // 2 * 2 - 1


def homework_of(schedule, lookahead):
    return Homework(
        "store",
        stored(np.zeros((ROWS, 1), np.float32), "dense"),
        np.arange(ROWS, dtype=np.float64),
        np.arange(ROWS, dtype=np.float64) + 100,
        schedule,
        LOSSES["squared"],
        Rate(1.0, "linear", schedule.updates),
        3.0,
        lookahead,
    )


def run(*, lookahead=1, passes=1, epochs=1, recorder=None, guard=None):
    recorder = recorder or Recorder()
    schedule = schedule_for(ROWS, 2, 2, passes, epochs, 7)
    worker = Worker(recorder, homework_of(schedule, lookahead), guard or OpenGuard())
    train(worker, recorder, recorder.hear, recorder.save)
    return recorder, schedule


def test_without_lookahead_every_push_follows_the_lesson_before_it():
    recorder, _ = run(lookahead=0)
    assert [call for call in recorder.calls if isinstance(call, str)] == [
        "send 0", "receive 0", "learn", "send 1", "receive 1", "learn", "send 2", "receive 2", "learn"
    ]  # fmt: skip


def test_with_lookahead_the_pushes_run_ahead():
    recorder, _ = run(lookahead=1)
    assert [call for call in recorder.calls if isinstance(call, str)] == [
        "send 0", "send 1", "receive 0", "learn", "send 2", "receive 1", "learn", "receive 2", "learn"
    ]  # fmt: skip


def test_a_lookahead_past_the_end_pushes_every_step_once():
    recorder, schedule = run(lookahead=9)
    assert sorted(recorder.pushed) == list(range(schedule.steps))


@pytest.mark.parametrize("lookahead", [0, 1, 2])
def test_what_is_pushed_is_predicted_with_the_parameters_of_that_moment(lookahead):
    recorder, schedule = run(lookahead=lookahead, epochs=2)
    for step in range(schedule.steps):
        lessons_before = max(0, step - lookahead)
        np.testing.assert_allclose(decode(recorder.pushed[step]), 0.1 + lessons_before, atol=1e-9)
        np.testing.assert_array_equal(recorder.lessons[step].own_then, 0.1 + lessons_before)


def test_a_lesson_holds_the_block_its_order_and_its_rates():
    recorder, schedule = run(passes=2, epochs=2)
    assert len(recorder.lessons) == 2 * schedule.steps
    rates = []
    for number, lesson in enumerate(recorder.lessons):
        visit = schedule.visit(number // 2)
        assert isinstance(lesson, Lesson)
        assert lesson.start == visit.start
        np.testing.assert_array_equal(lesson.order, schedule.order(visit, number % 2))
        np.testing.assert_array_equal(lesson.edges, schedule.edges(visit))
        np.testing.assert_array_equal(lesson.labels, np.arange(visit.start, visit.stop))
        np.testing.assert_array_equal(lesson.weights, np.arange(visit.start, visit.stop) + 100)
        assert (lesson.echo, lesson.loss) == (3.0, LOSSES["squared"].code)
        rates.extend(lesson.rates)
    np.testing.assert_allclose(rates, 1.0 - np.arange(schedule.updates) / schedule.updates)


class Blurring:
    """A guard that changes what leaves."""

    def pass_on(self, predictions):
        return Release(encode(predictions + 1000.0))


@pytest.mark.parametrize("guard", [OpenGuard(), Blurring()])
def test_the_score_holds_the_partys_own_part_as_it_is_not_as_the_guard_let_it_out(guard):
    recorder, _ = run(lookahead=0, recorder=Recorder(others=0.25), guard=guard)
    for number, lesson in enumerate(recorder.lessons):
        np.testing.assert_array_equal(lesson.scores, 0.25 + (0.1 + number))
        np.testing.assert_array_equal(lesson.own_then, 0.1 + number)


def test_listeners_hear_of_every_step_with_its_lag_and_of_every_epoch():
    recorder, schedule = run(epochs=2)
    events = [call for call in recorder.calls if not isinstance(call, str)]
    assert [event for event in events if isinstance(event, StepDone)] == [
        StepDone("store", step, 2) for step in range(schedule.steps)
    ]
    assert events[3] == EpochDone("store", 1)
    assert events[-1] == EpochDone("store", 2)
    assert len(events) == schedule.steps + 2


def test_the_outbox_gives_scores_in_the_models_precision_and_forgets_what_was_answered():
    outbox = Outbox()
    own = np.array([[0.1], [0.2]], np.float32)
    outbox.put(4, own, encode(own))
    scores, own_then = outbox.settle(Total(4, encode(own) + encode(np.array([[1.0], [2.0]])), (4, 4)))
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores, np.array([[1.1], [2.2]], np.float32))
    assert own_then is own
    with pytest.raises(KeyError):
        outbox.settle(Total(4, encode(own), (4, 4)))


def test_after_every_step_the_channel_hears_how_far_the_state_is_safe():
    recorder, schedule = run(epochs=2)
    assert recorder.saved == [step + 1 for step in range(schedule.steps)]
    assert recorder.kept == [-1, 1, 1, 3, 3, 5]


def test_a_state_is_kept_only_after_its_pushes_were_sent():
    """What is sent after a state was saved must be in that state."""
    recorder = Recorder()
    recorder.save = lambda worker: recorder.calls.append(f"save {worker.step}") or -1
    run(recorder=recorder)
    calls = [call for call in recorder.calls if isinstance(call, str)]
    assert calls[:6] == ["send 0", "send 1", "receive 0", "learn", "send 2", "save 1"]


# Workers that stop and go on.

X = np.random.default_rng(3).normal(size=(ROWS, 4)).astype(np.float32)
Y = np.random.default_rng(4).integers(0, 2, ROWS).astype(np.float64)
KINDS = {
    "linear": ModelSettings(),
    "momentum": ModelSettings(rule="momentum"),
    "fm": ModelSettings(kind="fm", factors=2, rule="adagrad"),
    "mlp": ModelSettings(kind="mlp", hidden=(3,), rule="adam"),
}


def new_worker(kind="linear", *, lookahead=1, passes=1, guard=None):
    schedule = schedule_for(ROWS, 2, 2, passes, 2, 7)
    homework = replace(
        homework_of(schedule, lookahead),
        rows=stored(X, "dense"),
        labels=Y,
        weights=np.ones(ROWS),
        loss=LOSSES["logistic"],
        watch_loss=True,
    )
    model = build_model(KINDS[kind], 4, 1, bias=True, key=(7, "model", "store"))
    return Worker(model, homework, guard or OpenGuard()), schedule


def total_of(step, release):
    """What the others add is fixed, and different for every step."""
    others = np.random.default_rng([9, step]).integers(-(2**32), 2**32, release.values.shape)
    return Total(step, release.values + others, (step, step))


class Post:
    """All that was ever sent, as a server has it: the same step again must be the same bytes."""

    def __init__(self):
        self.releases = {}

    def take(self, sent):
        """Says which steps came."""
        steps = []
        for step, release in sent:
            assert self.releases.setdefault(step, release.values.tobytes()) == release.values.tobytes()
            steps.append(step)
        return steps

    def total(self, step):
        values = np.frombuffer(self.releases[step], np.int64)
        return total_of(step, Release(values))


def finish(worker, post):
    while not worker.finished:
        post.take(worker.learn(post.total(worker.step)))
    return worker


def bits(worker):
    return {name: (array.dtype, array.shape, array.tobytes()) for name, array in worker.state().items()}


def through_a_file(state):
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **state)
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as archive:
        return dict(archive)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(kind, lookahead):
    worker, schedule = new_worker(kind, lookahead=lookahead, passes=2)
    post = Post()
    post.take(worker.opening())
    states = [through_a_file(worker.state())]
    while not worker.finished:
        post.take(worker.learn(post.total(worker.step)))
        states.append(through_a_file(worker.state()))
    for step, state in enumerate(states):
        again, _ = new_worker(kind, lookahead=lookahead, passes=2)
        again.restore(state)
        assert again.step == step
        resent = post.take(again.opening())
        assert resent == list(range(step, min(step + lookahead + 1, schedule.steps)))
        assert bits(finish(again, post)) == bits(worker)


def test_a_saved_state_does_not_move_with_the_worker():
    worker, _ = new_worker("momentum")
    post = Post()
    post.take(worker.opening())
    post.take(worker.learn(post.total(0)))
    state = worker.state()
    before = {name: array.tobytes() for name, array in state.items()}
    finish(worker, post)
    assert {name: array.tobytes() for name, array in state.items()} == before


@settings(max_examples=40)
@given(st.integers(0, 3), st.data())
def test_any_number_of_crashes_changes_nothing(lookahead, data):
    """A crash takes the worker back to its last saved state; the server has what was sent since."""
    undisturbed, schedule = new_worker(lookahead=lookahead)
    clean = Post()
    clean.take(undisturbed.opening())
    finish(undisturbed, clean)
    post, saved = Post(), None
    for _ in range(data.draw(st.integers(1, 5))):
        worker, _ = new_worker(lookahead=lookahead)
        if saved is not None:
            worker.restore(saved)
        post.take(worker.opening())
        for _ in range(data.draw(st.integers(0, schedule.steps - worker.step))):
            post.take(worker.learn(post.total(worker.step)))
            if data.draw(st.booleans()):
                saved = through_a_file(worker.state())
    assert bits(finish(worker, post)) == bits(undisturbed)
    assert post.releases == clean.releases


class Noisy:
    """A guard that never makes the same release twice."""

    def __init__(self):
        self.drawn = 0

    def pass_on(self, predictions):
        self.drawn += 1
        return Release(encode(predictions + 1e-3 * self.drawn))


def test_a_release_is_stored_and_never_drawn_again():
    guard = Noisy()
    worker, _ = new_worker(lookahead=2, guard=guard)
    post = Post()
    post.take(worker.opening())
    post.take(worker.learn(post.total(0)))
    again, _ = new_worker(lookahead=2, guard=guard)
    again.restore(through_a_file(worker.state()))
    assert post.take(again.opening()) == [1, 2, 3]
    assert guard.drawn == 4


def test_a_total_off_the_wire_is_flat_and_means_the_same():
    outcomes = []
    for flatten in (False, True):
        worker, _ = new_worker()
        pushed = dict(worker.opening())
        while not worker.finished:
            total = total_of(worker.step, pushed[worker.step])
            if flatten:
                total = replace(total, values=total.values.reshape(-1))
            pushed.update(worker.learn(total))
        outcomes.append(bits(worker))
    assert outcomes[0] == outcomes[1]


def test_the_loss_of_an_epoch_is_that_of_its_totals():
    worker, schedule = new_worker(lookahead=0)
    post = Post()
    post.take(worker.opening())
    for epoch in (1, 2):
        expected = 0.0
        for _ in range(schedule.blocks):
            visit = schedule.visit(worker.step)
            total = post.total(worker.step)
            scores = decode(total.values).reshape(-1, 1).astype(np.float32)
            expected += LOSSES["logistic"].value(scores, Y[visit.start : visit.stop]).sum()
            assert not worker.ended_epoch or worker.step == schedule.blocks
            post.take(worker.learn(total))
        assert worker.ended_epoch
        assert worker.epoch == epoch
        np.testing.assert_allclose(worker.loss_sum, expected, rtol=1e-5)
