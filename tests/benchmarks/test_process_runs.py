import signal

import pytest

from benchmarks.network_profiles import MIDDLE
from benchmarks.process_runs import PARTIES, Pauses, ProcessBench, RunTrace, Variant

pytestmark = pytest.mark.slow


def test_pauses_are_the_same_for_the_same_seed_and_every_stop_is_undone():
    plan = Pauses(1).plan(20.0)
    assert plan == Pauses(1).plan(20.0) != Pauses(2).plan(20.0)
    for party in range(len(PARTIES)):
        own = [(at, what) for at, who, what in plan if who == party]
        assert [what for _, what in own[::2]] == [signal.SIGSTOP] * (len(own) // 2)
        assert [what for _, what in own[1::2]] == [signal.SIGCONT] * (len(own) // 2)
        lengths = [end - begin for (begin, _), (end, _) in zip(own[::2], own[1::2], strict=True)]
        assert all(0.05 <= length <= 0.3 for length in lengths)
        assert len(lengths) > 10


def test_the_first_epoch_that_is_good_enough_counts():
    trace = RunTrace({1: 0.7, 2: 0.8, 3: 0.81}, {1: 1.0, 2: 2.5, 3: 4.0}, 4.5)
    assert trace.epoch_of(0.79) == 2
    assert trace.epoch_of(0.9) is None
    assert trace.last_auc == 0.81
    assert trace.per_epoch == pytest.approx(4.0 / 3)
    assert RunTrace({}, {}, 1.0).last_auc == 0.0
    assert RunTrace({}, {}, 1.0).per_epoch == 1.0


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    return ProcessBench.make(tmp_path_factory.mktemp("network") / "run", 4000)


def test_a_line_takes_time_but_changes_nothing_else(bench):
    """At staleness 0 the result is the same whatever the line and whoever pauses."""
    setting = Variant("short", lines="batches_per_block = 16\nvalue_bits = 64", epochs=2)
    near = bench.train(setting)
    far = bench.train(setting, MIDDLE, pauses=Pauses(1))
    assert near.aucs == far.aucs
    assert set(near.aucs) == {1, 2}
    assert 0.0 < near.seconds[1] < near.seconds[2]
    assert far.seconds[2] > 0.02


def test_a_run_ends_when_its_goal_is_reached(bench):
    trace = bench.train(Variant("long", epochs=2000), goal=0.6)
    assert trace.epoch_of(0.6) is not None
    assert max(trace.aucs) < 2000


def test_a_run_does_not_wait_for_what_is_known(bench):
    trace = bench.train(Variant("long", epochs=2000), goal=0.98, known={2: 0.99})
    assert trace.epoch_of(0.98) == 2
    assert 0.0 < trace.seconds[2] <= trace.spent
    assert max(trace.seconds) < 2000


def test_what_is_known_of_an_epoch_that_has_not_ended_does_not_count(bench):
    trace = bench.train(Variant("short", epochs=2), goal=0.98, known={3: 0.99})
    assert trace.epoch_of(0.98) is None
    assert set(trace.aucs) == {1, 2}
