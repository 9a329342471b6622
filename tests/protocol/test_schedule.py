import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.protocol.agreed_training import agreed_training
from fdml.protocol.schedule import Visit, schedule_for, schedule_of
from fdml.settings import TrainingSettings

schedules = st.builds(
    schedule_for,
    rows=st.integers(1, 70),
    batch_size=st.integers(1, 12),
    batches_per_block=st.integers(1, 5) | st.just("all"),
    passes=st.integers(1, 3),
    epochs=st.integers(1, 3),
    seed=st.integers(0, 2**63 - 1),
)


def rows_of(schedule, visit, pass_number):
    return visit.start + schedule.order(visit, pass_number)


@given(schedules)
def test_every_row_is_visited_once_in_every_epoch_and_pass(schedule):
    assert schedule.steps == schedule.blocks * schedule.epochs
    for epoch in range(schedule.epochs):
        visits = [schedule.visit(epoch * schedule.blocks + position) for position in range(schedule.blocks)]
        assert {visit.epoch for visit in visits} == {epoch}
        for pass_number in range(schedule.passes):
            seen = np.concatenate([rows_of(schedule, visit, pass_number) for visit in visits])
            assert sorted(seen.tolist()) == list(range(schedule.rows))


@given(schedules)
def test_blocks_are_fixed_runs_of_whole_batches(schedule):
    for step in range(schedule.steps):
        visit = schedule.visit(step)
        assert visit.start == visit.block * schedule.batch_size * schedule.batches_per_block
        assert visit.size == visit.stop - visit.start > 0
        last = visit.block == schedule.blocks - 1
        assert visit.stop == schedule.rows if last else visit.size == schedule.batch_size * schedule.batches_per_block


@given(schedules)
def test_batches_are_full_but_for_the_last_of_a_block(schedule):
    for step in range(schedule.steps):
        visit = schedule.visit(step)
        batch_bounds = schedule.batch_bounds(visit)
        sizes = np.diff(batch_bounds).tolist()
        assert batch_bounds[0] == 0
        assert sum(sizes) == visit.size
        assert all(size == schedule.batch_size for size in sizes[:-1])
        assert 0 < sizes[-1] <= schedule.batch_size


@given(schedules)
def test_updates_are_counted_as_they_come(schedule):
    count = 0
    for step in range(schedule.steps):
        assert schedule.first_update(step) == count
        count += schedule.passes * (len(schedule.batch_bounds(schedule.visit(step))) - 1)
    assert schedule.updates == count


@given(schedules)
def test_an_epoch_ends_with_its_last_block(schedule):
    ends = [step for step in range(schedule.steps) if schedule.ends_epoch(step)]
    assert ends == [schedule.blocks * (epoch + 1) - 1 for epoch in range(schedule.epochs)]


def stream_of(seed, epoch=0, pass_number=0, **changes):
    chosen = {"rows": 100, "batch_size": 5, "batches_per_block": 2, "passes": 2, "epochs": 3, **changes}
    schedule = schedule_for(**chosen, seed=seed)
    steps = range(epoch * schedule.blocks, (epoch + 1) * schedule.blocks)
    return np.concatenate([rows_of(schedule, schedule.visit(step), pass_number) for step in steps]).tolist()


def test_the_same_seed_gives_the_same_schedule_and_another_one_another():
    assert stream_of(7) == stream_of(7)
    assert stream_of(7) != stream_of(8)


def test_every_epoch_and_pass_has_its_own_order():
    orders = [tuple(stream_of(7, epoch, pass_number)) for epoch in range(3) for pass_number in range(2)]
    assert len(set(orders)) == 6


def test_the_rows_of_a_single_block_are_reordered_in_every_epoch():
    assert stream_of(7, 0, batches_per_block="all") != stream_of(7, 1, batches_per_block="all")


@pytest.mark.parametrize("rows", [5_000, 12_345, 20_003])
def test_large_blocks_are_reordered_by_short_runs_and_lose_no_row(rows):
    schedule = schedule_for(rows, 100, "all", 1, 2, 7)
    orders = [schedule.order(schedule.visit(step), 0) for step in range(2)]
    assert all(np.array_equal(np.sort(order), np.arange(rows)) for order in orders)
    assert not np.array_equal(*orders)
    followed = [np.mean(np.diff(order) == 1) for order in orders]
    assert all(0.9 < share < 0.95 for share in followed), "15 of 16 rows follow their neighbour"
    first = orders[0][:100]
    assert np.ptp(first) > rows / 2, "a batch has rows from all over the block"


def test_blocks_that_fit_a_cache_are_reordered_row_by_row():
    schedule = schedule_for(20_000, 100, 16, 1, 1, 7)
    order = schedule.order(schedule.visit(0), 0)
    assert np.mean(np.diff(order) == 1) < 0.01


def test_the_order_of_the_blocks_differs_between_epochs():
    schedule = schedule_for(100, 5, 2, 1, 3, 7)
    orders = {tuple(schedule.visit(10 * epoch + at).block for at in range(10)) for epoch in range(3)}
    assert len(orders) == 3


def test_the_schedule_of_a_seed_never_changes():
    """All parties and the server compute it for themselves; these values may not be edited."""
    schedule = schedule_for(20, 3, 2, 2, 2, 7)
    assert [schedule.visit(step).block for step in range(8)] == [2, 1, 3, 0, 2, 0, 3, 1]
    assert schedule.visit(2) == Visit(0, 3, 18, 20)
    assert schedule.batch_bounds(schedule.visit(2)).tolist() == [0, 2]
    assert [schedule.first_update(step) for step in range(8)] == [0, 4, 8, 10, 14, 18, 22, 24]
    assert schedule.order(schedule.visit(0), 0).tolist() == [4, 3, 0, 1, 2, 5]
    assert schedule.order(schedule.visit(0), 1).tolist() == [4, 2, 0, 1, 3, 5]


def test_more_batches_than_there_are_make_one_block():
    schedule = schedule_for(10, 4, 16, 1, 2, 7)
    assert (schedule.blocks, schedule.batches_per_block, schedule.updates) == (1, 3, 6)
    assert schedule == schedule_for(10, 4, "all", 1, 2, 7)


def test_no_rows_are_refused():
    with pytest.raises(SettingsError, match="there are no rows to train on; check the files"):
        schedule_for(0, 4, 16, 1, 2, 7)


# Which step last visited a block.


@given(schedules, st.data())
def test_the_last_visit_of_a_block_is_the_one_that_a_search_finds(schedule, data):
    block = data.draw(st.integers(0, schedule.blocks - 1))
    step = data.draw(st.integers(-5, schedule.steps - 1))
    visits = [at for at in range(step + 1) if schedule.visit(at).block == block]
    assert schedule.last_visit(block, step) == max(visits, default=-1)


@given(schedules)
def test_a_step_is_itself_the_last_visit_of_its_block(schedule):
    for step in range(schedule.steps):
        assert schedule.last_visit(schedule.visit(step).block, step) == step


# Few exchanges.


@st.composite
def few(draw):
    exchanges = draw(st.integers(1, 9))
    training = TrainingSettings(
        epochs=exchanges + draw(st.integers(1, 30)),
        exchanges=exchanges,
        batch_size=draw(st.integers(1, 12)),
        seed=draw(st.integers(0, 2**63 - 1)),
    )
    return schedule_of(draw(st.integers(1, 70)), training), training


@given(few())
def test_the_passes_between_few_exchanges_add_up_to_the_epochs(chosen):
    schedule, training = chosen
    assert (schedule.blocks, schedule.steps) == (1, training.exchanges)
    passes = [schedule.local_passes, *(schedule.passes_at(step) for step in range(schedule.steps))]
    assert sum(passes) == training.epochs
    assert len(passes) == training.exchanges + 1
    assert min(passes) >= 1
    assert max(passes) - min(passes) <= 1, "as even as can be"


@given(few())
def test_updates_of_few_exchanges_are_counted_as_they_come(chosen):
    schedule, training = chosen
    batches = -(-schedule.rows // training.batch_size)
    count = schedule.local_passes * batches
    for step in range(schedule.steps):
        assert schedule.first_update(step) == count
        visit = schedule.visit(step)
        assert (visit.block, visit.start, visit.stop) == (0, 0, schedule.rows)
        assert len(schedule.batch_bounds(visit)) - 1 == batches
        count += schedule.passes_at(step) * batches
    assert schedule.updates == count == training.epochs * batches


@given(few())
def test_every_pass_between_exchanges_has_an_order_of_its_own(chosen):
    schedule, _ = chosen
    alone = Visit(-1, 0, 0, schedule.rows)
    orders = [schedule.order(alone, pass_number) for pass_number in range(schedule.local_passes)]
    for step in range(schedule.steps):
        orders += [schedule.order(schedule.visit(step), pass_number) for pass_number in range(schedule.passes_at(step))]
    for order in orders:
        assert sorted(order.tolist()) == list(range(schedule.rows))
    if schedule.rows >= 25:
        assert len({order.tobytes() for order in orders}) == len(orders)


def test_a_few_exchanges_worked_out_by_hand():
    schedule = schedule_of(10, TrainingSettings(epochs=7, exchanges=2, batch_size=4))
    assert (schedule.local_passes, schedule.passes_per_exchange) == (2, (2, 3))
    assert [schedule.first_update(step) for step in range(2)] == [6, 12]
    assert schedule.updates == 21


@given(st.integers(1, 70), st.integers(1, 12), st.integers(1, 5) | st.just("all"), st.integers(1, 3), st.integers(1, 3))
def test_without_exchanges_the_settings_mean_the_plain_schedule(rows, batch_size, per_block, passes, epochs):
    training = TrainingSettings(
        batch_size=batch_size, batches_per_block=per_block, passes=passes, epochs=epochs, seed=5
    )
    schedule = schedule_of(rows, training)
    assert schedule == schedule_for(rows, batch_size, per_block, passes, epochs, 5)
    assert (schedule.local_passes, {schedule.passes_at(step) for step in range(schedule.steps)}) == (0, {passes})


def test_no_rows_are_refused_with_few_exchanges_too():
    with pytest.raises(SettingsError, match="there are no rows to train on"):
        schedule_of(0, agreed_training(TrainingSettings(exchanges=2), 0, 2))


@given(schedules)
def test_a_step_passes_over_its_block_as_often_as_the_run_says(schedule):
    assert {schedule.passes_at(step) for step in range(schedule.steps)} == {schedule.passes}


def test_an_exchange_passes_over_all_rows_as_often_as_its_share_of_the_epochs():
    schedule = schedule_of(10, TrainingSettings(epochs=11, exchanges=3, batch_size=5))
    passes = [schedule.passes_at(step) for step in range(schedule.steps)]
    assert schedule.local_passes + sum(passes) == 11
    assert max(passes) - min(passes) <= 1
    assert schedule.blocks == 1
