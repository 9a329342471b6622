"""What a sharded learner does with every kind of model, rows, loss and signal; processes give the bits of threads."""

import numpy as np
import pytest

from fdml.data.rows import PointedRows
from fdml.models.learner import LocalLearner
from fdml.models.objective import objective_for
from fdml.models.registry import build_model
from fdml.models.signals import BlockUpdate, Gradients, Scores
from tests.cluster.learners import ONE_THREAD, ROWS, SHAPE, X, digest, framed, learner, setup_of, update
from tests.models.random_updates import random_update, stored

LOGISTIC = objective_for("logistic", 2)
POINTERS = np.random.default_rng(4).integers(-1, 50, SHAPE.rows)
POINTED = PointedRows(stored(np.vstack([X[:50], 0 * X[:1]]), "sparse"), POINTERS)
CASES = {
    "linear, sparse": (setup_of("linear"), ROWS),
    "linear, sgd, dense": (setup_of("linear", optimizer="sgd"), stored(X, "dense")),
    "fm, adagrad": (setup_of("fm", optimizer="adagrad"), ROWS),
    "mlp, momentum, double": (setup_of("mlp", optimizer="momentum", precision="double"), ROWS),
    "mlp, averaged": (setup_of("mlp", average=0.9), ROWS),
    "mlp with dropout": (setup_of("mlp", dropout=0.3), ROWS),
    "mlp over rows that point": (setup_of("mlp"), POINTED),
    "softmax": (setup_of("linear", "softmax"), ROWS),
    "squared loss": (setup_of("mlp", "squared"), ROWS),
    "quantile": (setup_of("linear", "quantile(0.9)"), ROWS),
    "more shards than batches": (setup_of("linear", shards=64), ROWS),
}

ALONE = ("fm, adagrad", "mlp with dropout")
"""Those whose kernels no other test of `make quick` needs."""


@pytest.mark.parametrize(
    ("setup", "rows"),
    [pytest.param(*case, id=name, marks=[pytest.mark.slow] if name in ALONE else []) for name, case in CASES.items()],
)
def test_workers_that_know_frames_and_files_alone_give_the_bits_of_threads(setup, rows, tmp_path):
    found = []
    for each in (learner(ONE_THREAD, setup, rows), framed(setup, tmp_path, rows)):
        for seed in range(2):
            update(each, seed, setup.loss, setup.settings.precision)
        each.close()
        found.append(digest(each))
        assert np.isfinite(each.predict(0, SHAPE.rows)).all()
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_shards_learn_what_one_process_learns(kind):
    """Labels that follow from the features: after some passes both predict them about as well."""
    chance = np.random.default_rng(2)
    labels = (X @ chance.normal(size=SHAPE.width) > 0).astype(np.float64)
    setup = setup_of(kind)
    plain = LocalLearner(build_model(setup.settings, setup.spec), ROWS)
    right = {}
    for name, each in {"one": plain, "shards": learner(setup=setup)}.items():
        for _ in range(12):
            own = each.predict(0, SHAPE.rows)
            bounds = np.arange(0, SHAPE.rows + 1, 20)
            block = BlockUpdate(0, chance.permutation(SHAPE.rows), bounds, np.full(len(bounds) - 1, 0.02))
            each.update(block, Scores(own, own, labels, np.ones(SHAPE.rows), 1.0, LOGISTIC))
        right[name] = float(np.mean((each.predict(0, SHAPE.rows)[:, 0] > 0) == labels))
    assert right["one"] > 0.9
    assert right["shards"] > right["one"] - 0.05


def test_gradients_of_private_labels_are_learned_from_as_their_scores_are():
    block, scores = random_update(np.random.default_rng(1), "logistic", "single", SHAPE)
    gradient = LOGISTIC.gradient(scores.total.astype(np.float64), scores.labels)
    own = scores.own_at_push
    signal = Gradients(gradient, own.astype(np.float64), own, scores.weights, scores.echo, LOGISTIC)
    given, private = learner(), learner()
    given.update(block, signal.scores)
    private.update(block, signal)
    assert digest(given) == digest(private)


def test_what_was_moved_since_the_push_counts_with_the_partys_own_echo():
    """A total that has moved with the party is the same as one that was pushed just now."""
    block, scores = random_update(np.random.default_rng(1), "logistic", "double", SHAPE, echo=2.0)
    setup = setup_of("linear", precision="double")
    late, fresh = learner(setup=setup), learner(setup=setup)
    for each in (late, fresh):
        update(each, 3, precision="double")
    own = fresh.predict(0, SHAPE.rows)
    late.update(block, scores)
    moved = scores.total + 2.0 * (own - scores.own_at_push)
    fresh.update(block, scores._replace(total=moved, own_at_push=own))
    for name, array in late.state().items():
        np.testing.assert_allclose(fresh.state()[name], array, rtol=1e-9, atol=1e-12)


def test_the_average_of_weights_is_what_is_kept_of_them():
    each = learner(setup=setup_of("linear", average=0.9), held_out=stored(X[:30], "sparse"))
    for seed in range(3):
        update(each, seed)
    assert not np.array_equal(each.predict_held_out(), each.predict(0, 30))
    assert any(name.startswith("progress/current/") for name in each.state())


def test_a_restored_learner_goes_on_bit_by_bit_with_other_workers(tmp_path):
    first, second = learner(), framed(setup_of(), tmp_path)
    update(first, 1)
    second.restore(first.state())
    for each in (first, second):
        update(each, 2)
    assert digest(first) == digest(second)
    second.close()


def test_a_closed_learner_still_predicts():
    each = learner()
    update(each, 1)
    before = each.predict(0, 10)
    each.close()
    np.testing.assert_array_equal(each.predict(0, 10), before)
