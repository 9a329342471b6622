import math

import pytest

from benchmarks.network import DEFAULT, SWEEP, TOLERANCE, Comparison, NetworkRun, recommended, run
from benchmarks.network_profiles import FAR, LOOPBACK, NEAR
from benchmarks.process_runs import RunTrace, Variant
from fdml.errors import SettingsError
from fdml.settings.federation import read_run


def test_the_time_counts_to_the_first_epoch_that_is_good_enough():
    trace = RunTrace({1: 0.7, 2: 0.8, 3: 0.81}, {1: 1.0, 2: 2.5, 3: 4.0}, 4.5)
    assert NetworkRun.of(FAR, DEFAULT, trace, 0.79) == NetworkRun(FAR, DEFAULT, 2.5, 4.5, 0.81)
    assert NetworkRun.of(FAR, DEFAULT, trace, 0.9).seconds is None


class Told:
    """A bench on which every run goes as told; it keeps what was asked of it."""

    def __init__(self):
        self.asked = []

    def train(self, setting, line=LOOPBACK, *, goal=math.inf, known=None):
        self.asked.append((setting, line, goal, known))
        return RunTrace({1: 0.7, 2: 0.8}, {1: 1.0, 2: 2.5}, 4.5)


def test_a_setting_is_evaluated_in_its_first_run_only():
    bench, other, said = Told(), Variant("other"), []
    comparison = Comparison(bench, said.append)
    goal = 0.8 - TOLERANCE
    assert comparison.goal == goal
    assert comparison.first == NetworkRun(LOOPBACK, DEFAULT, 2.5, 4.5, 0.8)
    for line, setting in ((FAR, DEFAULT), (FAR, other), (LOOPBACK, other)):
        assert comparison.train(line, setting) == NetworkRun(line, setting, 2.5, 4.5, 0.8)
    evaluated = {1: 0.7, 2: 0.8}
    assert bench.asked[1:] == [
        (DEFAULT, FAR, goal, evaluated),
        (other, FAR, goal, None),
        (other, LOOPBACK, goal, evaluated),
    ]
    assert said == [f"100 ms, {DEFAULT.name}", "100 ms, other", "loopback, other"]


def test_the_fastest_setting_that_reaches_the_goal_is_recommended():
    slow, fast, wrong = (Variant(name) for name in ("slow", "fast", "wrong"))
    runs = [
        NetworkRun(FAR, slow, 9.0, 12.0, 0.8),
        NetworkRun(FAR, fast, 3.0, 5.0, 0.8),
        NetworkRun(FAR, wrong, None, 2.0, 0.7),
        NetworkRun(LOOPBACK, wrong, 1.0, 2.0, 0.8),
    ]
    assert recommended(runs, FAR) == fast
    assert recommended(runs, LOOPBACK) == wrong
    assert recommended(runs, NEAR) is None


@pytest.mark.parametrize("setting", {each.name: each for kinds in SWEEP.values() for each in kinds}.values())
def test_every_setting_is_one_that_run_toml_takes(setting, tmp_path):
    path = tmp_path / "run.toml"
    (tmp_path / "federation.toml").write_text('parties = ["p0", "p1"]\n')
    path.write_text(f'label_party = "p0"\n{setting.text}')
    assert read_run(path).training.staleness == 0


def test_too_few_rows_are_refused_before_anything_is_made():
    with pytest.raises(SettingsError, match="1000 rows are too few"):
        run(lambda _: None, rows=1000)
