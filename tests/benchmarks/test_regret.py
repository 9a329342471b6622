import numpy as np
import pytest

from benchmarks.regret import (
    PARTIES,
    STALENESS,
    Sizes,
    all_traces,
    average,
    draw_sample,
    follow,
    least_losses,
    run,
    slope,
)
from benchmarks.regret_plot import RegretCurve, draw_regret
from fdml.errors import SettingsError
from fdml.models.losses import LOSSES
from fdml.settings import TrainingSettings

SMALL = Sizes(batches=16, batch_size=10, epochs=4, seeds=1)


def training(staleness, epochs=4):
    return TrainingSettings(
        epochs=epochs,
        batch_size=10,
        batches_per_block=1,
        lookahead=0,
        staleness=staleness,
        learning_rate=1.0,
        lr_decay="sqrt",
        seed=3,
    )


@pytest.fixture(scope="module")
def sample():
    return draw_sample(160, seed=1)


@pytest.fixture(scope="module")
def least(sample):
    return least_losses(sample)


def test_no_parameters_near_the_best_have_less_loss(sample, least):
    X = np.hstack([*(part.values for part in sample.parts.values()), np.ones((len(sample), 1))]).astype(np.float64)
    score = np.log(np.expm1(least) ** (1 - 2 * sample.labels))  # the loss of a row tells its score
    best, *_ = np.linalg.lstsq(X, score, rcond=None)
    chance = np.random.default_rng(0)
    for _ in range(50):
        other = (X @ (best + 0.01 * chance.normal(size=len(best))))[:, None]
        assert LOSSES["logistic"].value(other, sample.labels).mean() > least.mean()


@pytest.mark.parametrize("staleness", [0, 1, 4, 16])
def test_the_fast_party_is_as_far_ahead_as_it_may(sample, least, staleness):
    trace = follow(training(staleness), sample, least)
    assert len(trace.joint) == len(trace.fast) == 16 * 4
    assert trace.lead == staleness + 1
    assert (trace.lag > 0) == (staleness > 0)


def test_both_parties_see_the_same_without_staleness(sample, least):
    trace = follow(training(0), sample, least)
    np.testing.assert_array_equal(trace.joint, trace.fast)


def test_the_first_step_has_the_regret_of_parameters_that_are_all_zero(sample, least):
    """Its rows are those of the first block of the seed's order; every loss of a zero score is log 2."""
    trace = follow(training(4), sample, least)
    blocks = least.reshape(-1, 10).mean(axis=1)
    assert np.min(np.abs(trace.joint[0] - (np.log(2) - blocks))) < 1e-12


def test_a_run_is_the_same_every_time(sample, least):
    one, other = (follow(training(4), sample, least) for _ in range(2))
    np.testing.assert_array_equal(one.joint, other.joint)


def test_a_known_slope_is_found():
    steps = np.arange(1, 5001)
    regrets = np.diff(3.0 * np.concatenate([[0], steps]) ** 0.5)
    assert slope(average(regrets)) == pytest.approx(-0.5)


def test_a_regret_below_zero_has_no_slope():
    with pytest.raises(SettingsError, match="not above 0"):
        slope(-np.ones(1000))


def test_every_staleness_is_tried_with_every_seed():
    found = all_traces(SMALL, lambda _: None)
    assert list(found) == list(STALENESS)
    assert all(len(traces) == 1 for traces in found.values())


def test_the_plot_is_a_picture(tmp_path):
    averages = [np.geomspace(1, 0.01, 1000), np.geomspace(1.2, 0.02, 1000)]
    draw_regret([RegretCurve(staleness, averages, -0.5) for staleness in STALENESS], 100, tmp_path / "regret.png")
    assert (tmp_path / "regret.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_the_average_regret_falls_as_promised(sample):
    """A shorter run than the benchmark's, on the same data."""
    sizes = Sizes(epochs=16, seeds=1)
    rows = draw_sample(sizes.batches * sizes.batch_size, seed=1)
    trace = follow(training(16, sizes.epochs), rows, least_losses(rows))
    assert slope(average(trace.joint)) < -0.45


@pytest.mark.slow
def test_the_report_has_a_row_for_every_staleness(tmp_path):
    report = run(lambda _: None, seeds=1, plot=tmp_path / "regret.png", epochs=4)
    assert [row["staleness"] for row in report.results] == list(STALENESS)
    assert all(row["min"] <= row["median"] <= row["max"] for row in report.results)
    assert report.ratios == {}
    assert "-0.5" in report.question
    assert (tmp_path / "regret.png").exists()


def test_the_parties_hold_the_same_rows(sample):
    assert list(sample.parts) == list(PARTIES)
    assert {len(part.values) for part in sample.parts.values()} == {160}
