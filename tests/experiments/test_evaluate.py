import numpy as np
import pytest

from fdml.data.rows import as_rows
from fdml.data.table import PartyData, Table
from fdml.experiments.dataset import build_dataset
from fdml.experiments.evaluate import learning_curve, training_objective
from fdml.experiments.in_process import train_in_process
from fdml.models.calibration import IDENTITY, Calibration
from fdml.models.metrics import mean_loss, metric
from fdml.models.registry import model_settings
from fdml.party.plan import Plan
from fdml.settings import GuardSettings, PrivacySettings, TrainingSettings

L2 = 0.01


def dataset(rows=400):
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, 4)).astype(np.float32)
    labels = random.normal(size=rows) < X @ [1, 1, -1, 1]
    return build_dataset(
        {
            "p": PartyData(Table(as_rows(X[:, :2]), ("a", "b"), labels=labels)),
            "q": PartyData(Table(as_rows(X[:, 2:]), ("c", "d"))),
        },
        "p", "binary", None, 0.3, 0,
    )  # fmt: skip


def result_of(problem, guards=None, privacy=None, **training):
    chosen = TrainingSettings(**{"epochs": 3, "batch_size": 10, "learning_rate": 0.1, **training})
    plan = Plan(chosen, dict.fromkeys("pq", model_settings(l2=L2)), "p", "logistic", 2, guards=guards or {})
    return train_in_process(plan, problem.train, held_out=problem.test, keep_epochs=True, privacy=privacy)


@pytest.fixture(scope="module")
def problem():
    return dataset()


def test_there_is_a_record_for_every_epoch_that_was_kept(problem):
    result = result_of(problem)
    records = learning_curve(problem, result)
    assert [record.epoch for record in records] == [1, 2, 3]
    assert [record.seconds for record in records] == [snapshot.seconds for snapshot in result.snapshots]


def test_the_figures_are_those_of_the_models_of_their_epoch(problem):
    result = result_of(problem)
    for record, snapshot in zip(learning_curve(problem, result), result.snapshots, strict=True):
        for name, state in snapshot.states.items():
            result.models[name].restore(state)
        train, test = result.score(problem.train.parts), result.score(problem.test.parts)
        weights = np.concatenate([result.models["p"].parameters[:-1], result.models["q"].parameters])
        penalty = L2 / 2 * np.square(weights).sum()
        assert record.train_objective == pytest.approx(mean_loss("logistic", train, problem.train) + penalty, rel=1e-6)
        assert record.test_loss == pytest.approx(mean_loss("logistic", test, problem.test), abs=1e-6)
        assert record.test_metric == pytest.approx(metric("binary", test, problem.test), abs=1e-6)


def test_the_models_are_left_as_they_were_at_the_end(problem):
    result = result_of(problem)
    before = {name: model.state()["theta"].tobytes() for name, model in result.models.items()}
    learning_curve(problem, result)
    assert {name: model.state()["theta"].tobytes() for name, model in result.models.items()} == before


def test_without_snapshots_there_is_no_curve(problem):
    plan = Plan(TrainingSettings(epochs=1), dict.fromkeys("pq", model_settings()), "p", "logistic", 2)
    assert learning_curve(problem, train_in_process(plan, problem.train, held_out=problem.test)) == []


def test_the_last_record_of_few_exchanges_is_read_through_the_calibration(problem):
    result = result_of(problem, epochs=6, exchanges=2)
    assert result.calibration is not IDENTITY
    *_, last = learning_curve(problem, result)
    assert last.test_loss == pytest.approx(
        mean_loss("logistic", result.score(problem.test.parts), problem.test), abs=1e-6
    )
    assert last.train_objective == pytest.approx(training_objective(problem, result.models, result.calibration))


def test_noise_on_the_held_out_predictions_is_in_the_figures_of_the_held_out_rows_alone(problem):
    """The run's own figures are of what was released; the training objective is of the exact models."""
    guard = GuardSettings(clip=3.0, noise="gaussian", sigma=4.0)
    result = result_of(problem, guards={"q": guard})
    record = learning_curve(problem, result)[-1]
    exact = mean_loss("logistic", result.score(problem.test.parts), problem.test)
    assert abs(record.test_loss - exact) > 0.1
    assert record.train_objective == pytest.approx(training_objective(problem, result.models, IDENTITY))


def test_private_labels_have_a_curve_as_shared_ones_do(problem):
    result = result_of(problem, privacy=PrivacySettings(labels="private", label_epsilon="off"))
    records = learning_curve(problem, result)
    assert [record.epoch for record in records] == [1, 2, 3]
    assert all(np.isfinite([record.test_loss, record.test_metric]).all() for record in records)


def test_the_training_objective_is_loss_and_regularisers(problem):
    result = result_of(problem)
    scaled = Calibration(0.5, np.array([0.1]))
    scores = scaled.apply(result.score(problem.train.parts))
    expected = mean_loss("logistic", scores, problem.train) + sum(model.penalty() for model in result.models.values())
    assert training_objective(problem, result.models, scaled) == pytest.approx(expected, rel=1e-9)
