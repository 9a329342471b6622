"""What the benchmark of joint models compares, on few rows."""

import numpy as np
import pytest

from benchmarks import models
from benchmarks.cross_party import cross_party_xor, log_odds
from benchmarks.encoded import EncodedProblem
from benchmarks.models import GOALS, SCHEMES, TIMED, Scheme, is_wanted, sets_of
from fdml.data.rows import to_dense
from fdml.models.metrics import auc

FEW = {"epochs": 2}


@pytest.fixture(scope="module")
def problem():
    return EncodedProblem(cross_party_xor(0, 600, 300))


def test_the_labels_follow_the_documented_odds():
    problem = cross_party_xor(1, 4000, 10)
    a, c = (to_dense(problem.train.parts[name]).astype(np.float64) for name in ("a", "c"))
    assert auc(problem.train.labels, log_odds(a, c), problem.train.weights) == pytest.approx(0.963, abs=0.01)


def test_the_same_seed_draws_the_same_rows_and_another_others():
    first, again, other = (cross_party_xor(seed, 20, 5) for seed in (0, 0, 1))
    assert np.array_equal(first.train.labels, again.train.labels)
    assert not np.array_equal(to_dense(first.train.parts["a"]), to_dense(other.train.parts["a"]))


@pytest.mark.parametrize("where", ["alone", "late fusion", "pooled", "joint"])
def test_a_scheme_scores_the_test_rows(problem, where):
    score = Scheme("linear", where, FEW).score(problem, 0)
    assert score.shape == (300, 1)
    assert np.isfinite(score).all()


@pytest.mark.parametrize("joint", ["fm", "head"])
def test_a_scheme_has_settings_of_its_own(problem, joint):
    plain = Scheme("mlp", training=FEW).score(problem, 0)
    assert not np.allclose(Scheme("mlp", training={**FEW, "joint": joint}).score(problem, 0), plain)


def test_settings_are_chosen_on_training_rows_alone(problem):
    chosen = problem.for_choosing(3)
    train, tested = chosen.whole.train, chosen.whole.test
    assert (len(train), len(tested)) == (480, 120)
    known = {row.tobytes() for row in to_dense(problem.whole.train.parts["a"])}
    assert all(row.tobytes() in known for row in to_dense(tested.parts["a"]))
    assert not {row.tobytes() for row in to_dense(train.parts["a"])} & {
        row.tobytes() for row in to_dense(tested.parts["a"])
    }


def test_a_whole_name_asks_for_one_line_and_a_part_of_it_for_all_that_have_it():
    names = ["XOR, NN fm", "XOR, NN fm, 16 numbers", "XOR, NN head"]
    assert [name for name in names if is_wanted("", name, names)] == names
    assert [name for name in names if is_wanted("NN fm", name, names)] == names[:2]
    assert [name for name in names if is_wanted("XOR, NN fm; head", name, names)] == [names[0], names[2]]


@pytest.mark.slow
def test_goals_and_timed_schemes_are_those_of_the_table():
    assert set(TIMED) <= set(SCHEMES)
    for name, goals in GOALS.items():
        assert set(goals) <= set(SCHEMES), name
    assert "cross-party XOR" in sets_of()
    assert "a9a" in sets_of()


@pytest.mark.slow
def test_the_report_has_a_line_for_every_scheme_and_its_goals(monkeypatch):
    few = {name: SCHEMES[name] for name in ("LR alone", "NN fm", "NN head")}
    monkeypatch.setattr(models, "SCHEMES", few)
    monkeypatch.setattr(
        models, "sets_of", lambda: {"cross-party XOR": lambda seed: EncodedProblem(cross_party_xor(seed, 300, 200))}
    )
    heard: list[str] = []
    report = models.run(heard.append, seeds=1, only="XOR")
    assert [row["contender"] for row in report.results] == [f"cross-party XOR, {name}" for name in few]
    assert report.ratios["cross-party XOR: NN head, mean"]["at_least"] == 0.87
    assert len(heard) == 3
    assert report.ratios["cross-party XOR: NN fm, mean"]["mean"] < 1.0


@pytest.mark.slow
def test_the_twin_has_figures_and_times_of_few_rows(monkeypatch):
    monkeypatch.setattr(models, "sets_of", dict)
    monkeypatch.setattr(models, "TIMED", ("NN sum", "NN fm"))
    monkeypatch.setattr(models, "TWIN_SCHEMES", ("NN fm",))
    report = models.run(lambda _: None, rows=2000, only="twin")
    assert [row["contender"] for row in report.results] == ["app-store twin, NN fm", "NN sum", "NN fm"]
    assert report.ratios["epoch of NN fm over NN sum"]["at_most"] == 1.5
