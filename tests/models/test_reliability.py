import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.row_set import RowSet
from fdml.models.losses import LOSSES, Logistic
from fdml.models.reliability import BINS, reliability_of
from fdml.models.task_metrics import task_metrics

OTHER = next(name for name, loss in LOSSES.items() if not isinstance(loss, Logistic))
LABELS = np.array([0.0, 0.0, 1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
SCORE = np.array([-3.0, -2.0, -1.0, 0.0, 0.5, 2.0, 4.0, 4.0]).reshape(-1, 1)


def sample(labels=LABELS, weights=None):
    return RowSet({}, labels, np.ones(len(labels)) if weights is None else weights)


def found(score=SCORE, loss="logistic", **options):
    return reliability_of("ann", 3, loss, score, sample(**options))


def test_every_row_is_in_the_bin_of_its_probability():
    each = found()
    chance = 1.0 / (1.0 + np.exp(-SCORE[:, 0]))
    for number in range(BINS):
        inside = (chance * BINS).astype(int) == number
        assert each.rows[number] == inside.sum()
        if inside.any():
            assert each.predicted[number] == pytest.approx(chance[inside].mean())
            assert each.observed[number] == pytest.approx(LABELS[inside].mean())
        else:
            assert (each.predicted[number], each.observed[number]) == (None, None)


def test_weights_count():
    twice = found(weights=np.full(len(LABELS), 2.0))
    assert twice.rows == tuple(2.0 * count for count in found().rows)
    assert twice.observed == found().observed


def test_lift_is_that_of_the_figures_and_ends_at_one():
    each = found()
    figures = task_metrics("binary", "logistic", SCORE, sample())
    assert each.lift[0] == figures["lift"]
    assert each.lift[-1] == pytest.approx(1.0)


def test_its_bins_are_those_of_the_calibration_error():
    each, figures = found(), task_metrics("binary", "logistic", SCORE, sample())
    gaps = [
        rows * abs(predicted - observed)
        for rows, predicted, observed in zip(each.rows, each.predicted, each.observed, strict=True)
        if rows
    ]
    assert sum(gaps) / len(LABELS) == pytest.approx(figures["calibration_error"])


@pytest.mark.parametrize(
    "options",
    [{"loss": OTHER}, {"labels": np.ones(8)}, {"score": np.full((8, 1), np.nan)}],
    ids=["no probabilities", "one class", "diverged"],
)
def test_where_there_is_nothing_to_say_there_is_nothing(options):
    assert found(**options) is None


@given(rows=st.integers(2, 40), seed=st.integers(0, 2**32 - 1), far=st.sampled_from([0.1, 3.0, 800.0]))
def test_rows_counted_one_by_one_give_the_same(rows, seed, far):
    """Scores far out, too, whose probability is 0 or 1: the last bin has those of 1."""
    random = np.random.default_rng(seed)
    score, weights = random.normal(0.0, far, (rows, 1)), random.uniform(0.0, 2.0, rows)
    labels = np.where(np.arange(rows) < 2, np.arange(rows), random.integers(0, 2, rows)).astype(np.float64)
    each = found(score, labels=labels, weights=weights)
    members = [[] for _ in range(BINS)]
    with np.errstate(over="ignore"):
        chances = 1.0 / (1.0 + np.exp(-score[:, 0]))
    for row, chance in enumerate(chances):
        members[min(int(chance * BINS), BINS - 1)].append(row)
    for number, inside in enumerate(members):
        assert each.rows[number] == pytest.approx(weights[inside].sum())
        if inside:
            assert each.predicted[number] == pytest.approx(np.average(chances[inside], weights=weights[inside]))
            assert each.observed[number] == pytest.approx(np.average(labels[inside], weights=weights[inside]))
        else:
            assert (each.predicted[number], each.observed[number]) == (None, None)
