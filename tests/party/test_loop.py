"""The loop, with a channel that only writes down what passes."""

import numpy as np
import pytest

from fdml.data.schedule import schedule_for
from fdml.exchange.fixed_point import decode, encode
from fdml.exchange.messages import Release, Total
from fdml.party.kernels import Lesson
from fdml.party.loop import Homework, Outbox, train
from fdml.party.losses import LOSSES
from fdml.party.rates import Rate
from fdml.privacy.guard import OpenGuard
from fdml.watch.events import EpochDone, StepDone
from tests.party.lessons import stored

ROWS = 11


class Recorder:
    """Model, channel and listener in one: writes down who is called when. Its prediction is its number of lessons."""

    dtype = np.dtype(np.float64)

    def __init__(self, others=0.0):
        self.calls, self.lessons, self.pushed, self.others = [], [], {}, others

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

    def hear(self, event):
        self.calls.append(event)


def run(*, lookahead=1, passes=1, epochs=1, recorder=None, guard=None):
    recorder = recorder or Recorder()
    schedule = schedule_for(ROWS, 2, 2, passes, epochs, 7)
    homework = Homework(
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
    train(recorder, homework, recorder, guard or OpenGuard(), recorder.hear)
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
