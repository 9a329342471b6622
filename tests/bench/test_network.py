import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from fdml.bench.network import (
    DEFAULT,
    FAR,
    LINES,
    LOOPBACK,
    MEGABIT,
    PARTIES,
    SWEEP,
    Course,
    Ground,
    Line,
    Pauses,
    Setting,
    Trial,
    proxies,
    recommended,
    run,
)
from fdml.errors import SettingsError
from fdml.settings import RunSettings, read_run

pytestmark = pytest.mark.slow

TRIES = 4
"""A busy machine delays what it likes; the best of a few tries shows what the proxy does."""


@contextmanager
def listener():
    """A server that says one byte back for every four that say how many bytes follow them."""
    made = socket.create_server(("127.0.0.1", 0))

    def answer(line):
        with line, suppress(OSError):
            while head := line.recv(4, socket.MSG_WAITALL):
                read(line, int.from_bytes(head))
                line.sendall(b"!")

    def serve():
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(made.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield made.getsockname()[1]
    made.shutdown(socket.SHUT_RDWR)
    made.close()


def read(line, count):
    while count:
        count -= len(line.recv(min(count, 2**20)))


def seconds_for(line, count):
    """From the first byte's leaving to the answer's coming."""
    data = count.to_bytes(4) + bytes(count)
    began = time.monotonic()
    line.sendall(data)
    assert line.recv(1) == b"!"
    return time.monotonic() - began


@contextmanager
def lines(kind):
    with listener() as target, proxies(target, kind) as ports:
        made = [socket.create_connection(("127.0.0.1", port), timeout=10) for port in ports]
        yield made
        for line in made:
            line.close()


@pytest.mark.parametrize("kind", LINES[1:], ids=lambda line: line.name)
def test_a_round_trip_takes_as_long_as_asked(kind):
    with lines(kind) as (line, *_):
        seconds = [seconds_for(line, 1) for _ in range(5 * TRIES)]
    assert min(seconds) >= kind.round_trip
    assert min(seconds) < 1.15 * kind.round_trip + 0.001, "a millisecond for the two ends"


def test_three_lines_carry_a_hundred_megabits_at_once_over_a_hundred_milliseconds():
    """More than is under way at a time, so that no queue of the proxy may be too short."""
    size = 5 * 10**6
    asked = FAR.round_trip + size / (100 * MEGABIT)
    with lines(FAR) as made, ThreadPoolExecutor(len(made)) as pool:
        slowest = [max(pool.map(lambda line: seconds_for(line, size), made)) for _ in range(TRIES)]
    assert min(slowest) >= 0.99 * asked
    assert min(slowest) < 1.15 * asked


def test_a_direct_line_has_no_proxy():
    with proxies(1234, LOOPBACK) as ports:
        assert ports == [1234] * len(PARTIES)


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


def test_the_time_counts_to_the_first_epoch_that_is_good_enough():
    course = Course({1: 0.7, 2: 0.8, 3: 0.81}, {1: 1.0, 2: 2.5, 3: 4.0}, 4.5)
    assert course.epoch_of(0.79) == 2
    assert Trial.of(FAR, DEFAULT, course, 0.79) == Trial(FAR, DEFAULT, 2.5, 4.5, 0.81)
    assert course.epoch_of(0.9) is None
    assert Trial.of(FAR, DEFAULT, course, 0.9).seconds is None
    assert course.per_epoch == pytest.approx(4.0 / 3)
    assert Course({}, {}, 1.0).last_auc == 0.0


def test_the_fastest_setting_that_reaches_the_goal_is_recommended():
    slow, fast, wrong = (Setting(name) for name in ("slow", "fast", "wrong"))
    trials = [
        Trial(FAR, slow, 9.0, 12.0, 0.8),
        Trial(FAR, fast, 3.0, 5.0, 0.8),
        Trial(FAR, wrong, None, 2.0, 0.7),
        Trial(LOOPBACK, wrong, 1.0, 2.0, 0.8),
    ]
    assert recommended(trials, FAR) == fast
    assert recommended(trials, LOOPBACK) == wrong
    assert recommended(trials, LINES[1]) is None


@pytest.mark.parametrize("setting", {each.name: each for kinds in SWEEP.values() for each in kinds}.values())
def test_every_setting_is_one_that_run_toml_takes(setting, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(f'parties = ["p0", "p1"]\nlabel_party = "p0"\n{setting.text}')
    assert isinstance(read_run(path), RunSettings)


def test_too_few_rows_are_refused_before_anything_is_made():
    with pytest.raises(SettingsError, match="1000 rows are too few"):
        run(lambda _: None, rows=1000)


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return Ground.make(tmp_path_factory.mktemp("network") / "run", 4000)


@pytest.mark.slow
def test_a_line_takes_time_but_changes_nothing_else(ground):
    """At staleness 0 the result is the same whatever the line and whoever pauses."""
    setting = Setting("short", epochs=2)
    near = ground.train(setting)
    far = ground.train(setting, Line("20 ms", 0.02, 100 * MEGABIT), pauses=Pauses(1))
    assert near.aucs == far.aucs
    assert set(near.aucs) == {1, 2}
    assert 0.0 < near.seconds[1] < near.seconds[2]
    assert far.seconds[2] > 0.02


@pytest.mark.slow
def test_a_run_ends_when_its_goal_is_reached(ground):
    course = ground.train(Setting(DEFAULT.name, epochs=2000), goal=0.6)
    assert course.epoch_of(0.6) is not None
    assert max(course.aucs) < 2000
