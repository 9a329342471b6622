"""What the benchmark of the defaults' quality compares, on the smallest data."""

import numpy as np
import pytest

from benchmarks import defaults
from benchmarks.default_sets import all_sets, split
from benchmarks.defaults import scikit_learn, trained


@pytest.fixture(scope="module")
def wine():
    return all_sets(1000)["wine"](0).shuffled(0)


@pytest.mark.slow
def test_joint_lr_is_as_good_as_scikit_learns_on_wine(wine):
    assert trained(wine, "LR", 0) >= scikit_learn(wine, "LR", 0) - 0.03


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # its own defaults are the bar
def test_one_set_is_trained_where_only_its_name_is_given():
    heard: list[str] = []
    report = defaults.run(heard.append, seeds=1, rows=1000, only="wine, 8")
    assert heard == ["wine, 8 parties, LR", "wine, 8 parties, NN"]
    assert [row["contender"].rsplit(", ", 1)[1] for row in report.results if "NN" in row["contender"]] == [
        "joint", "pooled NN", "pooled", "scikit-learn"
    ]  # fmt: skip
    gaps = report.ratios["wine, 8 parties, LR: joint less scikit-learn"]
    assert gaps["mean"] == gaps["median"]
    assert gaps["at_least"] == -0.003


@pytest.mark.slow
def test_every_set_of_the_issue_is_there():
    names = list(all_sets(1000))
    for wanted in ("breast cancer", "digits", "wine", "diabetes", "a9a", "raw Adult", "app store's twin, 1,000 rows"):
        assert wanted in names
    assert sum("parties" in name for name in names) == 4


def test_scores_of_scikit_learn_are_finite_where_it_is_certain():
    chance = np.random.default_rng(0)
    X = chance.normal(size=(200, 4))
    problem = split(1000.0 * X, (X[:, 0] > 0).astype(np.int64), "binary", 0)
    with np.errstate(all="raise"):
        assert scikit_learn(problem, "LR", 0) > 0.95
