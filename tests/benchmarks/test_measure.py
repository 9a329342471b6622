import json

import pytest

from benchmarks import measure as module
from benchmarks.measure import Report, Spread, Timing, fastest, measure, ratio
from fdml.errors import SettingsError


class FakeClock:
    """Time that passes only when a contender works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    fake = FakeClock()
    monkeypatch.setattr(module, "perf_counter", fake)
    return fake


def worker(clock: FakeClock, seconds: list[float], units: float = 1.0):
    left = iter(seconds)

    def work() -> float:
        clock.now += next(left)
        return units

    return work


def nobody(_: str) -> None:
    pass


def test_the_contenders_take_turns_in_every_round():
    turns: list[str] = []

    def note(name: str):
        return lambda: turns.append(name) or 1.0

    measure({name: note(name) for name in "abc"}, 2, warm_ups=1, progress=nobody)
    assert turns == ["a", "b", "c"] * 3


def test_a_warm_up_does_not_count(clock: FakeClock):
    found = measure({"a": worker(clock, [100.0, 1.0, 3.0, 2.0])}, 3, warm_ups=1, progress=nobody)
    assert found["a"].rounds == (1.0, 3.0, 2.0)
    assert found["a"].seconds == Spread(median=2.0, min=1.0, max=3.0)


def test_seconds_are_those_of_one_unit(clock: FakeClock):
    found = measure({"a": worker(clock, [8.0], units=4.0)}, 1, warm_ups=0, progress=nobody)
    assert found["a"].rounds == (2.0,)


def test_no_time_of_one_contender_falls_on_another(clock: FakeClock):
    works = {"slow": worker(clock, [50.0, 60.0]), "fast": worker(clock, [1.0, 2.0])}
    assert measure(works, 2, warm_ups=0, progress=nobody)["fast"].rounds == (1.0, 2.0)


def test_progress_names_the_rounds(clock: FakeClock):
    heard: list[str] = []
    measure({"a": worker(clock, [1.0] * 3)}, 2, warm_ups=1, progress=heard.append)
    assert heard == ["warm-up", "round 1 of 2", "round 2 of 2"]


@pytest.mark.parametrize(("contenders", "rounds"), [({}, 3), ({"a": lambda: 1.0}, 0)])
def test_nothing_to_measure_is_refused(contenders, rounds):
    with pytest.raises(SettingsError, match="at least one"):
        measure(contenders, rounds, progress=nobody)


def test_a_ratio_is_formed_inside_each_round():
    # The machine is ten times slower in the last round: the medians' ratio would be 30 / 2, the rounds' own is 10.
    above, below = Timing("a", (10.0, 30.0, 300.0)), Timing("b", (1.0, 2.0, 30.0))
    assert ratio(above, below) == Spread(median=10.0, min=10.0, max=15.0)


def test_a_ratio_needs_the_same_rounds():
    with pytest.raises(ValueError, match="zip"):
        ratio(Timing("a", (1.0, 2.0)), Timing("b", (1.0,)))


def test_the_fastest_has_the_smallest_median():
    lucky, steady = Timing("lucky", (0.1, 9.0, 9.0)), Timing("steady", (5.0, 5.0, 5.0))
    assert fastest(lucky, steady) is steady


def test_a_row_is_in_the_unit_asked_for():
    row = Timing("a", (1e-6, 3e-6, 2e-6)).row("us per batch", 1e6, batch_size=100)
    assert row == {
        "contender": "a",
        "median": pytest.approx(2.0),
        "min": pytest.approx(1.0),
        "max": pytest.approx(3.0),
        "unit": "us per batch",
        "batch_size": 100,
    }


def test_a_report_goes_through_json_unchanged():
    row = Timing("a", (1.0,)).row("s", 1.0)
    report = Report("n", "q?", [row], {"a/b time": {"median": 1.0, "min": 1.0, "max": 1.0}}, {"cores": 2}, "abc")
    read = json.loads(json.dumps(report.as_json()))
    assert list(read) == ["name", "question", "results", "ratios", "machine", "commit"]
    assert Report(**read) == report


def test_a_part_is_added_to_the_others_and_every_line_has_its_commit():
    def report(commit, *names):
        lines = [module.row(name, [1.0], "s") for name in names]
        return Report("x", "Which?", lines, {f"{name}: mean": {"mean": 1.0} for name in names}, {}, commit)

    first = report("aa", "one", "two").as_json()
    both = report("bb", "two", "three").merged(first)
    assert {line["contender"]: line["commit"] for line in both["results"]} == {"one": "aa", "two": "bb", "three": "bb"}
    assert {name: each["commit"] for name, each in both["ratios"].items()} == {
        "one: mean": "aa", "two: mean": "bb", "three: mean": "bb"
    }  # fmt: skip
    again = report("cc", "three").merged(both)
    assert [line["commit"] for line in again["results"]] == ["aa", "bb", "cc"]
