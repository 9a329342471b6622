"""The loop, with a channel that only writes down what passes."""

import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fdml.errors import MessageRefused, Refusal
from fdml.events import EpochDone, StepDone
from fdml.models.build import build_model
from fdml.models.kernels import BlockUpdate
from fdml.models.learning_rate import LearningRate
from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.party.loop import Outbox, PendingPush, TrainingTask, Worker, train
from fdml.privacy.guard import NO_NOISE, Guard, no_protection
from fdml.privacy.ledger import GradientMechanism, Ledger, Mechanism, epsilon_of
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.privacy.perturb import Perturbation
from fdml.privacy.releases import ReleaseStore
from fdml.protocol.fixed_point import decode, encode
from fdml.protocol.messages import Gradient, Push, Release, Stop, Stopped, Total
from fdml.protocol.schedule import schedule_for, schedule_of
from fdml.server.coordinator import Coordinator
from fdml.settings import ModelSettings, TrainingSettings
from tests.models.block_updates import stored
from tests.storage.memory_disk import MemoryDisk

ROWS = 11
NOISY = Mechanism("gaussian", 100.0, 1000.0)
DELTA = 1e-5


class Recorder:
    """Model, channel and listener in one: writes down who is called when. Its prediction is its number of updates."""

    def __init__(self, others=0.0, dtype=np.float64, stop=None):
        self.calls, self.updates, self.pushed, self.others = [], [], {}, others
        self.kept, self.saved, self.dtype, self.stop = [], [], np.dtype(dtype), stop
        self.pushed_at = lambda step: (step,)

    def predict(self, rows, start=0, stop=None):
        return np.full((stop - start, 1), 0.1 + len(self.updates), self.dtype)

    def learn(self, rows, update):
        self.calls.append("learn")
        self.updates.append(update)

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

    def keep(self, step):
        self.kept.append(step)

    def hear(self, event):
        self.calls.append(event)

    def save(self, worker):
        """Keeps every second state."""
        self.saved.append(worker.step)
        return worker.step // 2 * 2 - 1


def homework_of(schedule, lookahead, staleness=0):
    return TrainingTask(
        "store",
        stored(np.zeros((ROWS, 1), np.float32), "dense"),
        np.arange(ROWS, dtype=np.float64),
        np.arange(ROWS, dtype=np.float64) + 100,
        schedule,
        objective_for("squared", 0),
        LearningRate(1.0, "linear", schedule.updates),
        3.0,
        lookahead,
        staleness,
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
    worker = Worker(recorder, homework_of(schedule, lookahead, staleness), guard or no_protection())
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
        np.testing.assert_allclose(decode(recorder.pushed[step].values), 0.1 + lessons_before, atol=1e-9)
        np.testing.assert_array_equal(recorder.updates[step].own_at_push, 0.1 + lessons_before)


def test_a_lesson_holds_the_block_its_order_and_its_rates():
    recorder, schedule = run(passes=2, epochs=2)
    assert len(recorder.updates) == 2 * schedule.steps
    rates = []
    for number, update in enumerate(recorder.updates):
        visit = schedule.visit(number // 2)
        assert isinstance(update, BlockUpdate)
        assert update.start == visit.start
        np.testing.assert_array_equal(update.order, schedule.order(visit, number % 2))
        np.testing.assert_array_equal(update.batch_bounds, schedule.batch_bounds(visit))
        np.testing.assert_array_equal(update.labels, np.arange(visit.start, visit.stop))
        np.testing.assert_array_equal(update.weights, np.arange(visit.start, visit.stop) + 100)
        assert (update.echo, update.loss) == (3.0, LOSSES["squared"].code)
        rates.extend(update.rates)
    np.testing.assert_allclose(rates, 1.0 - np.arange(schedule.updates) / schedule.updates)


GUARDS = {"open": no_protection, "noisy": noisy, "masked": masked}


@pytest.mark.parametrize("guard", GUARDS)
def test_the_score_holds_the_partys_own_part_as_it_is_not_as_the_guard_let_it_out(guard):
    recorder, _ = run(lookahead=0, recorder=Recorder(others=0.25), guard=GUARDS[guard]())
    as_they_are = [np.abs(decode(release.values) - 0.1 - at).max() < 1e-9 for at, release in recorder.pushed.items()]
    assert all(as_they_are) if guard == "open" else not any(as_they_are)
    for number, update in enumerate(recorder.updates):
        np.testing.assert_array_equal(update.scores, 0.25 + (0.1 + number))
        np.testing.assert_array_equal(update.own_at_push, 0.1 + number)


def test_listeners_hear_of_every_step_with_its_lag_and_of_every_epoch():
    recorder, schedule = Recorder(), schedule_for(ROWS, 2, 2, 1, 2, 7)

    def before(step):
        return schedule.last_visit(schedule.visit(step).block, step - 1)

    recorder.pushed_at = lambda step: (step, before(step))
    run(epochs=2, staleness=schedule.steps, recorder=recorder)
    events = [call for call in recorder.calls if not isinstance(call, str)]
    assert [event for event in events if isinstance(event, StepDone)] == [
        StepDone("store", step, step - before(step)) for step in range(schedule.steps)
    ]
    assert events[3] == EpochDone("store", 1)
    assert events[-1] == EpochDone("store", 2)
    assert len(events) == schedule.steps + 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("guard", GUARDS)
def test_scores_are_in_the_models_precision(dtype, guard):
    recorder, _ = run(recorder=Recorder(others=1.0, dtype=dtype), guard=GUARDS[guard]())
    for update in recorder.updates:
        assert update.scores.dtype == update.own_at_push.dtype == dtype
        np.testing.assert_array_equal(update.scores, (1.0 + update.own_at_push.astype(np.float64)).astype(dtype))


def test_the_outbox_gives_back_what_was_pushed_and_forgets_what_was_answered():
    outbox = Outbox()
    own = np.array([[0.1], [0.2]], np.float32)
    sent = PendingPush(own, encode(own), Release(encode(own) + 99, 7, 0.5))
    outbox.put(4, sent)
    (again,) = outbox.pushes()
    assert (again.step, again.release) == (4, sent.release)
    assert outbox.take(4) is sent
    assert outbox.pushes() == []
    with pytest.raises(KeyError):
        outbox.take(4)


@pytest.mark.parametrize("mask_id", [0, 7, 2**63 + 7])
def test_an_outbox_is_restored_with_masks_and_all(mask_id):
    outbox, other = Outbox(), Outbox()
    own = np.array([[0.1], [0.2]], np.float32)
    masked = encode(own) + (99 if mask_id else 0)
    for step in (10, 9):
        outbox.put(step, PendingPush(own + step, encode(own + step), Release(masked, mask_id, 0.5)))
    other.restore(through_a_file(outbox.state()))
    assert [push.step for push in other.pushes()] == [9, 10]
    for step in (9, 10):
        one, two = outbox.take(step), other.take(step)
        np.testing.assert_array_equal(one.own, two.own)
        np.testing.assert_array_equal(one.codes, two.codes)
        np.testing.assert_array_equal(two.release.values, masked if mask_id else two.codes)
        assert (two.own.dtype, two.release.mask_id, two.release.variance) == (np.float32, mask_id, 0.5)


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
    "momentum": ModelSettings(optimizer="momentum"),
    "fm": ModelSettings(kind="fm", factors=2, optimizer="adagrad"),
    "mlp": ModelSettings(kind="mlp", hidden=(3,), optimizer="adam"),
}


def new_worker(kind="linear", *, lookahead=1, passes=1, guard=None, staleness=0, epochs=2):
    schedule = schedule_for(ROWS, 2, 2, passes, epochs, 7)
    task = replace(
        homework_of(schedule, lookahead, staleness),
        rows=stored(X, "dense"),
        labels=Y,
        weights=np.ones(ROWS),
        objective=objective_for("logistic", 2),
        watch_loss=True,
    )
    model = build_model(KINDS[kind], 4, 1, bias=True, key=(7, "model", "store"))
    return Worker(model, task, guard or no_protection()), schedule


def total_of(step, release):
    """What the others add is fixed, and different for every step."""
    others = np.random.default_rng([9, step]).integers(-(2**32), 2**32, release.values.shape)
    mask_ids = (release.mask_id,) if release.mask_id else ()
    return Total(step, release.values + others, (step,), mask_ids)


class Post:
    """All that was ever sent, as a server has it: the same step again must be the same bytes."""

    def __init__(self):
        self.releases = {}
        self.mask_ids = {}
        self.stops = []

    def take(self, said):
        """Says which steps came."""
        steps = []
        for message in said:
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
@pytest.mark.parametrize("guard", GUARDS)
def test_a_worker_restored_at_any_step_goes_on_bit_by_bit(kind, lookahead, guard):
    worker, schedule = new_worker(kind, lookahead=lookahead, passes=2, guard=GUARDS[guard]())
    post = Post()
    post.take(worker.first_messages())
    states = [through_a_file(worker.state())]
    while not worker.finished:
        post.take(worker.learn(post.total(worker.step)))
        states.append(through_a_file(worker.state()))
    for step, state in enumerate(states):
        again, _ = new_worker(kind, lookahead=lookahead, passes=2, guard=GUARDS[guard]())
        again.restore(state)
        assert again.step == step
        resent = post.take(again.first_messages())
        assert resent == list(range(step, min(step + lookahead + 1, schedule.steps)))
        assert bits(finish(again, post)) == bits(worker)


def test_a_saved_state_does_not_move_with_the_worker():
    worker, _ = new_worker("momentum")
    post = Post()
    post.take(worker.first_messages())
    post.take(worker.learn(post.total(0)))
    state = worker.state()
    before = {name: array.tobytes() for name, array in state.items()}
    finish(worker, post)
    assert {name: array.tobytes() for name, array in state.items()} == before


@settings(max_examples=40)
@given(st.integers(0, 3), st.data())
def test_any_number_of_crashes_changes_nothing(lookahead, data):
    """A crash takes the worker back to its last saved state; the server has what was sent since."""
    fault_free_run, schedule = new_worker(lookahead=lookahead)
    clean = Post()
    clean.take(fault_free_run.first_messages())
    finish(fault_free_run, clean)
    post, saved = Post(), None
    for _ in range(data.draw(st.integers(1, 5))):
        worker, _ = new_worker(lookahead=lookahead)
        if saved is not None:
            worker.restore(saved)
        post.take(worker.first_messages())
        for _ in range(data.draw(st.integers(0, schedule.steps - worker.step))):
            post.take(worker.learn(post.total(worker.step)))
            if data.draw(st.booleans()):
                saved = through_a_file(worker.state())
    assert bits(finish(worker, post)) == bits(fault_free_run)
    assert post.releases == clean.releases


def test_a_release_is_stored_and_never_drawn_again():
    """The second start has another noise key: were anything drawn again, it would show."""
    disk = MemoryDisk()
    worker, _ = new_worker(lookahead=2, guard=noisy(store=ReleaseStore(disk)))
    post = Post()
    post.take(worker.first_messages())
    state = through_a_file(worker.state())
    post.take(worker.learn(post.total(0)))
    guard = noisy(store=ReleaseStore(disk), key=b"o")
    again, _ = new_worker(lookahead=2, guard=guard)
    again.restore(state)
    assert post.take(again.first_messages()) == [0, 1, 2]
    assert post.take(again.learn(post.total(0))) == [3]
    assert sum(guard.ledger.state()["releases"].values()) == 4
    assert bits(again) == bits(worker)


def test_a_total_off_the_wire_is_flat_and_means_the_same():
    outcomes = []
    for flatten in (False, True):
        worker, _ = new_worker()
        pushed = {push.step: push.release for push in worker.first_messages()}
        while not worker.finished:
            total = total_of(worker.step, pushed[worker.step])
            if flatten:
                total = replace(total, values=total.values.reshape(-1))
            pushed |= {push.step: push.release for push in worker.learn(total)}
        outcomes.append(bits(worker))
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("at_once", [8192, 3])
def test_the_loss_of_an_epoch_is_that_of_its_totals(at_once, monkeypatch):
    monkeypatch.setattr("fdml.party.loop._AT_ONCE", at_once)
    worker, schedule = new_worker(lookahead=0)
    post = Post()
    post.take(worker.first_messages())
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


# A budget that is spent, at this party or another.


def said_by(worker):
    """All that a worker says to its end, as kinds and steps, and which steps it learned from."""
    post, order = Post(), []

    def note(said):
        for message in said:
            order.append((type(message).__name__, message.step))
            post.take([message])

    note(worker.first_messages())
    while not worker.finished:
        note(worker.learn(post.total(worker.step)))
    return order


@pytest.mark.parametrize("lookahead", [0, 1, 2, 9])
@pytest.mark.parametrize("allowed", [1, 2])
def test_a_spent_budget_is_told_once_and_what_was_pushed_is_finished(lookahead, allowed):
    worker, schedule = new_worker(lookahead=lookahead, guard=noisy(allowed=allowed), epochs=3)
    end = allowed * schedule.blocks
    order = said_by(worker)
    assert order == [*(("Push", step) for step in range(end)), ("Stop", end)]
    assert (worker.step, worker.end, worker.ended_early, worker.finished) == (end, end, True, True)
    assert "one more release of block" in worker.spent
    assert worker.last_epoch == schedule.epochs


def test_a_budget_that_lasts_is_not_told_of():
    worker, schedule = new_worker(guard=noisy(allowed=3), epochs=3)
    assert said_by(worker) == [("Push", step) for step in range(schedule.steps)]
    assert (worker.ended_early, worker.spent) == (False, "")


def test_a_budget_for_nothing_ends_before_the_first_step():
    guard = noisy()
    guard.ledger.budget = 1e-9
    worker, _ = new_worker(guard=guard)
    before = {name: array.copy() for name, array in worker.model.state().items()}
    assert said_by(worker) == [("Stop", 0)]
    assert worker.finished
    np.testing.assert_equal(worker.model.state(), before)


@pytest.mark.parametrize("lookahead", [0, 1, 2])
def test_the_model_at_an_early_end_is_that_of_the_steps_before_it(lookahead):
    """A budget ends training; it does not change it."""
    early, schedule = new_worker(lookahead=lookahead, guard=noisy(allowed=1))
    said_by(early)
    long, _ = new_worker(lookahead=lookahead, guard=noisy())
    post = Post()
    post.take(long.first_messages())
    while long.step < schedule.blocks:
        post.take(long.learn(post.total(long.step)))
    np.testing.assert_equal(early.model.state(), long.model.state())


def test_a_spent_budget_is_told_again_after_a_restart_and_only_once_in_each():
    """The server may have died before it had heard; the same step again is no news to it."""
    worker, schedule = new_worker(lookahead=1, guard=noisy(allowed=1))
    post = Post()
    post.take(worker.first_messages())
    states = []
    while not worker.finished:
        post.take(worker.learn(post.total(worker.step)))
        if worker.spent:
            states.append(through_a_file(worker.state()))
    assert post.stops == [schedule.blocks]
    assert len(states) == 2
    for state in states:
        again, _ = new_worker(lookahead=1, guard=noisy(allowed=1))
        again.restore(state)
        post.take(again.first_messages())
        assert bits(finish(again, post)) == bits(worker)
        assert (again.spent, again.end) == (worker.spent, worker.end)
    assert post.stops == [schedule.blocks] * 3


@pytest.mark.parametrize("stop", [0, 1, 2, 4])
def test_a_run_that_another_party_ended_ends_here_too(stop):
    recorder, schedule = run(epochs=2, recorder=Recorder(stop=stop))
    assert [call for call in recorder.calls if call == "learn"] == ["learn"] * stop
    assert f"receive {stop}" in recorder.calls
    assert f"receive {stop + 1}" not in recorder.calls
    assert recorder.saved[-1] == stop, "the state is safe before the end is acted on"
    assert len(recorder.kept) == stop + 1
    assert not [call for call in recorder.calls if isinstance(call, str) and call.startswith("stop")]
    assert max(recorder.pushed) <= min(stop + 1, schedule.steps - 1)


def test_an_end_that_another_party_set_is_kept_over_a_restart():
    worker, schedule = new_worker(lookahead=1)
    post = Post()
    post.take(worker.first_messages())
    post.take(worker.learn(post.total(0)))
    worker.stop_at(2)
    again, _ = new_worker(lookahead=1)
    again.restore(through_a_file(worker.state()))
    assert (again.end, again.ended_early, again.finished, again.spent) == (2, True, False, "")
    again.stop_at(schedule.steps)
    assert again.end == 2, "an end does not move back"
    post.take(again.first_messages())
    post.take(again.learn(post.total(1)))
    assert again.finished
    assert sorted(post.releases) == [0, 1, 2], "what was pushed ahead has left; nothing more follows"


# Few exchanges: alone first, then passes_per_exchange.


def few(epochs=7, exchanges=2):
    return schedule_of(ROWS, TrainingSettings(epochs=epochs, exchanges=exchanges, batch_size=2))


def run_few(recorder, guard=None, schedule=None):
    schedule = schedule or few()
    worker = Worker(recorder, homework_of(schedule, 0), guard or no_protection())
    train(worker, recorder, recorder.hear, recorder.save)
    return worker


def test_a_party_trains_alone_up_to_the_first_exchange_and_in_stretches_after_it():
    recorder = Recorder(others=0.25)
    run_few(recorder)
    assert [call for call in recorder.calls if isinstance(call, str)] == [
        "learn", "learn", "send 0", "receive 0", "learn", "learn", "send 1", "receive 1", "learn", "learn", "learn"
    ]  # fmt: skip


def test_alone_the_score_is_the_partys_own_and_nobody_else_moves():
    recorder = Recorder(others=0.25)
    run_few(recorder)
    for number, update in enumerate(recorder.updates):
        alone = number < 2
        exchanged = number if alone else 2 if number < 4 else 4
        assert update.start == 0
        assert update.echo == (1.0 if alone else 3.0)
        np.testing.assert_array_equal(update.own_at_push, np.full((ROWS, 1), 0.1 + exchanged))
        np.testing.assert_array_equal(update.scores, update.own_at_push + (0.0 if alone else 0.25))
        np.testing.assert_array_equal(update.labels, np.arange(ROWS))


def test_the_rates_and_orders_of_few_exchanges_run_on_through_all_passes():
    recorder = Recorder()
    run_few(recorder)
    rates = np.concatenate([update.rates for update in recorder.updates])
    np.testing.assert_allclose(rates, 1.0 - np.arange(len(rates)) / len(rates))
    assert len(rates) == few().updates == 7 * 6
    assert len({tuple(update.order) for update in recorder.updates}) == 7
    for update in recorder.updates:
        assert sorted(update.order) == list(range(ROWS))


def test_training_alone_is_not_repeated_after_a_restart():
    first, again = Recorder(), Recorder()
    worker = Worker(first, homework_of(few(), 0), no_protection())
    (push,) = worker.first_messages()
    first.state = lambda: {}
    other = Worker(again, homework_of(few(), 0), no_protection())
    again.restore = lambda state: None
    other.restore(through_a_file(worker.state()))
    (repeated,) = other.first_messages()
    np.testing.assert_array_equal(repeated.release.values, push.release.values)
    assert (len(first.updates), len(again.updates)) == (2, 0)


def test_every_use_of_a_row_in_noisy_training_is_counted():
    guard = noisy(gradients=GradientMechanism(1.0, 50.0))
    run_few(Recorder(), guard)
    assert (guard.ledger.uses("block 0"), guard.ledger.releases("block 0")) == (7, 2)
    blockwise = noisy(gradients=GradientMechanism(1.0, 50.0))
    _, schedule = run(passes=2, epochs=3, guard=blockwise)
    counted = [(blockwise.ledger.uses(f"block {at}"), blockwise.ledger.releases(f"block {at}")) for at in range(3)]
    assert counted == [(6, 3)] * schedule.blocks


@pytest.mark.parametrize(
    ("uses", "calls"),
    [
        (0, ["stop 0"]),
        (1, ["learn", "stop 0"]),
        (3, ["learn", "learn", "send 0", "receive 0", "stop 1"]),
        (4, ["learn", "learn", "send 0", "receive 0", "learn", "learn", "send 1", "receive 1"]),
    ],
)
def test_learning_ends_where_noisy_training_would_overspend(uses, calls):
    """A stretch is learned whole or not at all; what was pushed is still answered, so that nobody waits."""
    gradients = GradientMechanism(1.0, 5.0)
    guard = noisy(gradients=gradients)
    guard.ledger.budget = epsilon_of(NOISY, 2, DELTA, uses * gradients.squared_mu) if uses else 1e-9
    if uses == 1:
        guard.ledger.budget = epsilon_of(NOISY, 0, DELTA, gradients.squared_mu)
    recorder = Recorder()
    worker = run_few(recorder, guard)
    assert [call for call in recorder.calls if isinstance(call, str)] == calls
    assert worker.spent


# Private labels.

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
            rows = stored(random.normal(size=(ROWS, 3)).astype(np.float32), "dense")
            task = replace(
                homework_of(schedule, lookahead),
                party=name,
                rows=rows,
                labels=labels if gradient_party in (None, name) else np.zeros(ROWS),
                weights=np.ones(ROWS),
                objective=objective,
                rate=LearningRate(0.3, "linear", schedule.updates),
                gradient_party=gradient_party,
            )
            model = build_model(kind, 3, objective.width, bias=not number, key=(7, "model", name))
            guard = masked(self.names, name, 10 + number, blind=blind)
            self.workers[name] = Worker(model, task, guard)

    def train(self):
        """To the end; gives every party's model."""
        todo = [(name, message) for name, worker in self.workers.items() for message in worker.first_messages()]
        while todo:
            name, message = todo.pop(0)
            for reply in self.coordinator.handle(name, message):
                self.seen.append((reply.to, type(reply.message)))
                todo += [(reply.to, said) for said in self.workers[reply.to].learn(reply.message)]
        assert all(worker.finished for worker in self.workers.values())
        return {name: worker.model.state() for name, worker in self.workers.items()}


PRECISE = {
    "linear": ModelSettings(precision="double"),
    "mlp": ModelSettings(kind="mlp", hidden=(3,), precision="double"),
}


@pytest.mark.parametrize("loss", CLASSES)
@pytest.mark.parametrize("kind", PRECISE)
@pytest.mark.parametrize(("gradient_party", "blind"), [("store", False), ("browser", True)])
@pytest.mark.parametrize(("lookahead", "passes"), [(0, 1), (1, 2)])
def test_a_party_taught_by_gradients_learns_what_it_would_from_shared_labels(
    loss, kind, gradient_party, blind, lookahead, passes
):
    chosen = {"blind": blind, "lookahead": lookahead, "passes": passes}
    shared = Group(loss, PRECISE[kind], **chosen)
    private = Group(loss, PRECISE[kind], gradient_party=gradient_party, **chosen)
    begin = {name: worker.model.state() for name, worker in private.workers.items()}
    expected, found = shared.train(), private.train()
    for name in shared.names:
        for part, array in expected[name].items():
            np.testing.assert_allclose(found[name][part], array, rtol=0, atol=1e-6, err_msg=f"{name} {part}")
        moved = [np.abs(found[name][part] - begin[name][part]).max() for part in found[name] if found[name][part].size]
        assert max(moved) > 0.01, "it learned something at all"
    assert {kind for to, kind in private.seen if to == gradient_party} == {Total}
    assert {kind for to, kind in private.seen if to != gradient_party} == {Gradient}


def test_only_the_label_party_sends_gradients_one_for_each_step_before_it_learns():
    group = Group("logistic", PRECISE["linear"], gradient_party="store", lookahead=0)
    for worker in group.workers.values():
        for push in worker.first_messages():
            replies = group.coordinator.handle(worker.party, push)
    (reply,) = replies
    gradient_party = group.workers["store"]
    before = gradient_party.model.state()
    said = gradient_party.learn(reply.message)
    first = next(said)
    assert isinstance(first, Gradient)
    np.testing.assert_equal(gradient_party.model.state(), before)
    assert [type(message) for message in said] == [Push]


def test_a_taught_party_puts_its_own_part_back_as_it_is():
    """Under noise the label party saw another value of it."""
    recorder = Recorder()
    schedule = schedule_for(ROWS, 2, 2, 1, 1, 7)
    task = replace(homework_of(schedule, 0), objective=objective_for("logistic", 2), gradient_party="browser")
    parties = ("store", "browser")
    masks = Masks(bytes(range(32)), parties, "store", 3)
    blur = Mechanism("gaussian", 100.0, 0.5)
    guard = Guard(Perturbation(blur, NoiseKey(b"k" * 32)), Ledger(blur, None, DELTA, None), masks=masks)
    worker = Worker(recorder, task, guard)
    (push,) = worker.first_messages()
    labels = np.array([1.0, 0.0, 1.0, 0.0])[: schedule.visit(0).size]
    others = np.linspace(-1, 1, len(labels)).reshape(-1, 1)
    seen = others + decode(push.release.values)
    gradient = masked(parties, "browser", 8, blind=False).gradient(0, LOSSES["logistic"].gradient(seen, labels))
    list(worker.learn(gradient))
    (update,) = recorder.updates
    assert np.abs(seen - others - 0.1).max() > 0.1
    np.testing.assert_allclose(update.scores, others + 0.1, atol=1e-7)
    np.testing.assert_array_equal(update.labels, labels)


# Totals that are older than they may be.


@pytest.mark.parametrize("staleness", [0, 1, 2, 4])
def test_a_total_is_learned_from_only_if_each_part_is_of_its_block_and_no_older_than_the_run_allows(staleness):
    schedule = schedule_for(ROWS, 2, 2, 1, 3, 7)
    steps = range(schedule.steps)
    for step in steps:
        visits = [-1] + [at for at in steps if at <= step and schedule.visit(at).block == schedule.visit(step).block]
        oldest = max(at for at in visits if at <= step - staleness or at == -1)
        for made in range(-1, schedule.steps):
            worker, _ = new_worker(lookahead=0, staleness=staleness, epochs=3)
            post = Post()
            post.take(worker.first_messages())
            for at in range(step):
                post.take(worker.learn(post.total(at)))
            total = replace(post.total(step), pushed_at=(step, made))
            if made in visits and made >= oldest:
                list(worker.learn(total))
                assert worker.step == step + 1
                continue
            before = worker.model.state()
            with pytest.raises(MessageRefused, match=f"total of step {step} has a part of step {made}; ") as refused:
                list(worker.learn(total))
            assert refused.value.refusal is Refusal.INVALID
            assert worker.step == step
            np.testing.assert_equal(worker.model.state(), before)


@pytest.mark.parametrize("made", [(3, 3), (5, 5), (2, 5)])
def test_at_staleness_0_every_part_is_of_that_very_step(made):
    """One block: each step visits it, so an old part is of the right rows and yet refused."""
    schedule = schedule_for(ROWS, 2, "all", 1, 9, 7)
    recorder = Recorder()
    worker = Worker(recorder, homework_of(schedule, 0), no_protection())
    recorder.pushed_at = lambda step: made if step == 4 else (step, step)
    with pytest.raises(
        MessageRefused, match=r"the total of step 4 has a part of step \d; the run allows none before 4"
    ):
        train(worker, recorder, recorder.hear, recorder.save)
    assert worker.step == 4


def test_a_refused_total_leaves_the_worker_as_it_was():
    worker, _ = new_worker(lookahead=1)
    post = Post()
    post.take(worker.first_messages())
    before = bits(worker)
    with pytest.raises(MessageRefused):
        list(worker.learn(replace(post.total(0), pushed_at=(-1,))))
    assert bits(worker) == before


@pytest.mark.parametrize("taught", [False, True])
def test_an_answer_of_the_wrong_kind_is_refused(taught):
    """Of a gradient where labels are shared, or a total where they are private, only nonsense could be learned."""
    group = Group("logistic", PRECISE["linear"], gradient_party="store" if taught else None, lookahead=0)
    worker = group.workers["browser"]
    (push,) = worker.first_messages()
    values = push.release.values
    wrong = Total(0, values, (0, 0, 0)) if taught else Gradient(0, Release(values, 5))
    with pytest.raises(MessageRefused):
        list(worker.learn(wrong))
