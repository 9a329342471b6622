"""Shares of parties: exact, additive, and none that is certain for noise."""

import itertools

import numpy as np
import pytest

from fdml.data.row_set import RowSet
from fdml.errors import DataError, SettingsError
from fdml.models.metrics import auc
from fdml.models.shapley import party_shares

ROWS = 1500


def problem(seed=0, rows=ROWS):
    """A strong party, a weak one, and one of pure noise."""
    random = np.random.default_rng(seed)
    strong, weak, noise = (random.normal(size=(rows, 1)) for _ in range(3))
    chance = 1 / (1 + np.exp(-(2.0 * strong + 0.7 * weak)[:, 0]))
    sample = RowSet({}, (random.random(rows) < chance).astype(float), np.ones(rows))
    return {"strong": 2.0 * strong, "weak": 0.7 * weak, "noise": 0.3 * noise}, sample


def found_of(parts, sample, task="binary", loss="logistic"):
    zero = np.zeros_like(next(iter(parts.values())))
    return party_shares(
        task, loss, tuple(parts), lambda some: sum((parts[each] for each in some), zero), sample, seed=3
    )


def test_shares_are_mean_gains_over_all_orders_of_joining():
    parts, sample = problem()

    def worth(some):
        return 0.5 if not some else auc(sample.labels, sum(parts[each] for each in some)[:, 0], sample.weights)

    by_hand = dict.fromkeys(parts, 0.0)
    orders = list(itertools.permutations(parts))
    for order in orders:
        for place, name in enumerate(order):
            by_hand[name] += (worth(order[: place + 1]) - worth(order[:place])) / len(orders)
    found = found_of(parts, sample)
    assert {name: each.value for name, each in found.shares.items()} == pytest.approx(by_hand, abs=1e-12)
    assert found.nothing == 0.5
    without = {name: worth(tuple(parts)) - worth([each for each in parts if each != name]) for name in parts}
    assert {name: each.value for name, each in found.without.items()} == pytest.approx(without, abs=1e-12)


def test_shares_add_up_to_the_whole_gain():
    found = found_of(*problem())
    assert sum(each.value for each in found.shares.values()) == pytest.approx(found.worth.value - found.nothing)


@pytest.mark.parametrize("loss", ["poisson", "quantile(0.9)"])
def test_shares_of_other_losses_are_of_d2_where_nobody_explains_nothing(loss):
    random = np.random.default_rng(5)
    parts = {name: scale * random.normal(size=(ROWS, 1)) for name, scale in (("strong", 0.8), ("weak", 0.3))}
    mean = sum(parts.values())[:, 0]
    labels = random.poisson(np.exp(mean)).astype(float) if loss == "poisson" else mean + random.normal(size=ROWS)
    found = found_of(parts, RowSet({}, labels, np.ones(ROWS)), "regression", loss)
    assert found.nothing == pytest.approx(0.0, abs=1e-12)
    assert found.shares["strong"].value > found.shares["weak"].value > 0.0
    assert sum(each.value for each in found.shares.values()) == pytest.approx(found.worth.value)


@pytest.mark.parametrize("seed", range(3))
def test_pure_noise_has_an_interval_that_covers_zero_and_the_others_have_none(seed):
    found = found_of(*problem(seed))
    noise, strong = found.shares["noise"], found.shares["strong"]
    assert noise.low <= 0.0 <= noise.high
    assert found.shares["weak"].low > 0.0
    assert strong.low < strong.value < strong.high
    assert strong.value > found.shares["weak"].value > noise.value


def test_the_same_seed_gives_the_same_intervals():
    assert found_of(*problem()) == found_of(*problem())


def test_parties_that_know_the_same_share_it():
    parts, sample = problem()
    found = found_of({"one": parts["strong"] / 2, "other": parts["strong"] / 2}, sample)
    assert found.shares["one"].value == pytest.approx(found.shares["other"].value)
    assert found.without["one"].value == pytest.approx(0.0)


def test_a_regression_and_several_classes_begin_at_the_best_constant():
    parts, sample = problem()
    target = (parts["strong"] + parts["weak"])[:, 0] + 5.0
    found = found_of(parts, RowSet({}, target, sample.weights), "regression", "squared")
    assert found.nothing == pytest.approx(0.0, abs=1e-9)
    assert found.worth.value > 0.9
    classes = np.digitize(parts["strong"][:, 0], [-1.0, 3.0]).astype(float)
    scores = {name: np.hstack([-each, 0 * each, each]) for name, each in parts.items()}
    several = found_of(scores, RowSet({}, classes, sample.weights), "multiclass", "softmax")
    assert several.nothing == pytest.approx(np.bincount(classes.astype(int)).max() / ROWS)
    assert several.shares["strong"].low > 0.0


def test_many_rows_are_resampled_in_parts():
    parts, sample = problem(rows=12_000)
    found = found_of({**parts, "little": 0.02 * parts["noise"]}, sample)
    assert found.shares["little"].low <= 0.0 <= found.shares["little"].high
    assert found.shares["weak"].low > 0.0
    assert found.shares["noise"].high < 0.0, "so much noise does harm, and with many rows that is certain"


def test_rows_of_one_class_and_too_many_parties_are_refused():
    parts, sample = problem(rows=20)
    with pytest.raises(DataError, match="not defined"):
        found_of(parts, RowSet({}, np.ones(20), np.ones(20)))
    with pytest.raises(SettingsError, match="at most 12"):
        found_of({str(number): parts["weak"] for number in range(13)}, sample)
