import threading

import numpy as np
import pytest

from fdml.data.rows import as_rows
from fdml.errors import DataError, SettingsError
from fdml.models.learner import LocalLearner
from fdml.models.linear.kind import LinearModel
from fdml.models.losses import LOSSES
from fdml.models.objective import objective_for
from fdml.models.registry import model_settings
from fdml.models.signals import Gradients, Scores
from fdml.party.settings import read_party
from tests.models.random_updates import PRECISION_OF, build, random_features, random_update, set_parameters, stored

ROWS, WIDTH = 20_000, 30
CHANCE = np.random.default_rng(3)
DENSE = CHANCE.normal(size=(ROWS, WIDTH)).astype(np.float32) * (CHANCE.random((ROWS, WIDTH)) < 0.3)


@pytest.mark.parametrize("kind", ["linear", "fm", "mlp"])
@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("threads", [2, 3, 16])
def test_what_is_predicted_does_not_depend_on_the_number_of_threads(kind, form, threads):
    rows, model = stored(DENSE, form), build(model_settings(kind, precision=PRECISION_OF[form]), WIDTH, 2)
    set_parameters(model, CHANCE.normal(size=model.parameters.shape))
    learner = LocalLearner(model, rows, threads=threads)
    for start, stop in ((0, ROWS), (11, ROWS - 3), (0, 100), (7, 7)):
        expected = model.predict(rows, start, stop)
        np.testing.assert_array_equal(learner.predict(start, stop), expected)


def test_a_large_block_is_shared_and_a_small_one_is_not():
    model = build(model_settings(), WIDTH, 1)
    seen = []

    class Watched(LinearModel):
        def predict(self, rows, start=0, stop=None):
            seen.append((threading.current_thread().name, start, stop))
            return super().predict(rows, start, stop)

    model.__class__ = Watched
    learner = LocalLearner(model, as_rows(DENSE), threads=2)
    learner.predict(0, ROWS)
    assert sorted((start, stop) for _, start, stop in seen) == [(0, ROWS // 2), (ROWS // 2, ROWS)]
    assert len({name for name, *_ in seen}) == 2
    seen.clear()
    learner.predict(0, 5000)
    assert [(start, stop) for _, start, stop in seen] == [(0, 5000)]


def test_an_error_in_another_thread_is_an_error():
    model = build(model_settings(), WIDTH + 1, 1)
    with pytest.raises(DataError, match="features"):
        LocalLearner(model, as_rows(DENSE), threads=2).predict(0, ROWS)


@pytest.mark.parametrize("threads", ["0", "-2", '"many"', "1.5"])
def test_threads_that_cannot_be_are_refused(tmp_path, threads):
    (tmp_path / "party.toml").write_text(
        f'party = "a"\nfederation = "federation.toml"\nthreads = {threads}\n[data]\npath = "d.csv"\n'
    )
    with pytest.raises(SettingsError, match="threads"):
        read_party(tmp_path / "party.toml")


def test_a_model_that_cannot_predict_beside_itself_is_given_one_thread():
    class Alone(LinearModel):
        concurrent = False

    model = build(model_settings(), WIDTH, 1)
    model.__class__ = Alone
    names = []
    model.predict = lambda rows, start, stop: names.append(threading.current_thread().name) or DENSE[start:stop, :1]
    LocalLearner(model, as_rows(DENSE), threads=8).predict(0, ROWS)
    assert names == [threading.current_thread().name]


def test_a_learner_without_held_out_rows_says_so():
    learner = LocalLearner(build(model_settings(), WIDTH, 1), as_rows(DENSE))
    with pytest.raises(DataError, match=r"no held-out rows; raise evaluation\.holdout"):
        learner.predict_held_out()


def test_a_pass_is_one_batch_after_the_other():
    block, _ = random_update(np.random.default_rng(1), "logistic", "single")
    batches = [block.batch(number) for number in range(len(block.rates))]
    np.testing.assert_array_equal(np.concatenate(batches), block.order)
    for number, batch in enumerate(batches):
        alone = block.only(number)
        assert (alone.start, alone.rates.tolist()) == (block.start, [block.rates[number]])
        np.testing.assert_array_equal(alone.batch(0), batch)


@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_gradients_teach_what_the_scores_behind_them_teach(loss):
    """The gradient was taken at the total as released; the party puts its own exact part back."""
    random = np.random.default_rng(2)
    block, scores = random_update(random, loss, "double")
    objective, released = scores.objective, scores.own_at_push + random.normal(size=scores.total.shape)
    others = scores.total - scores.own_at_push
    gradient = objective.gradient(others + released, scores.labels)
    signal = Gradients(gradient, released, scores.own_at_push, scores.weights, scores.echo, objective)
    np.testing.assert_array_equal(signal.scores.labels, scores.labels)
    rows, learned = stored(random_features(random), "sparse"), []
    for each in (scores, signal):
        learner = LocalLearner(build(model_settings(precision="double"), 7, objective.width), rows)
        learner.update(block, each)
        learned.append(learner.state()["theta"])
    np.testing.assert_allclose(*learned, rtol=1e-6, atol=1e-9)


def test_the_gradient_of_a_signal_is_that_of_the_total_moved_by_the_echo():
    objective = objective_for("logistic", 2)
    total, own, weights = np.array([[1.0], [2.0], [3.0]]), np.array([[0.5], [0.5], [0.5]]), np.array([1.0, 2.0, 3.0])
    scores = Scores(total, own, np.array([0.0, 1.0, 1.0]), weights, 2.0, objective)
    found = scores.gradient(np.array([2, 0]), np.array([[1.0], [0.0]]))
    expected = LOSSES["logistic"].gradient(np.array([[4.0], [0.0]]), np.array([1.0, 0.0])) * [[3.0], [1.0]]
    np.testing.assert_allclose(found, expected)
