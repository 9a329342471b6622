"""What holds for one pass of every compiled kind, whatever its formula."""

import numpy as np
import pytest

from fdml.models.registry import compiled_kinds
from fdml.models.signals import BlockUpdate
from tests.models.random_updates import (
    FORM_OF,
    WIDTH_OF,
    Shape,
    build,
    random_features,
    random_update,
    set_parameters,
    settings_of,
    stored,
)

SHAPE = Shape()


@pytest.fixture(params=compiled_kinds())
def kind(request):
    return request.param


def model_of(kind, width=1, precision="double", **values):
    """A model at random parameters, so that every part of it has a gradient."""
    wanted = settings_of(kind, hidden=(5,), factors=3, precision=precision, **{"l2": 0.0, **values})
    model = build(wanted, SHAPE.width, width)
    theta = np.random.default_rng(2).normal(0.0, 0.4, len(model.parameters))
    set_parameters(model, theta)
    return model


def case(loss="logistic", precision="double", seed=1):
    random = np.random.default_rng(seed)
    return random_features(random), *random_update(random, loss, precision)


def learned(kind, x, block, scores, form="sparse", **values):
    model = model_of(kind, scores.total.shape[1], **values)
    model.learn(stored(x, form), block, scores)
    return model.parameters


@pytest.mark.slow
@pytest.mark.parametrize("loss", WIDTH_OF)
def test_sparse_and_dense_rows_teach_the_same(kind, loss):
    x, block, scores = case(loss)
    sparse, dense = (learned(kind, x, block, scores, form) for form in ("sparse", "dense"))
    np.testing.assert_allclose(sparse, dense, rtol=1e-9, atol=1e-12)


def test_rows_outside_of_the_block_are_not_looked_at(kind):
    x, block, scores = case()
    other = x.copy()
    other[: block.start] = 1e6
    assert learned(kind, x, block, scores).tobytes() == learned(kind, other, block, scores).tobytes()


def test_a_rate_of_zero_changes_nothing(kind):
    x, block, scores = case()
    still = block._replace(rates=np.zeros(len(block.rates)))
    np.testing.assert_array_equal(learned(kind, x, still, scores, l2=0.1), model_of(kind).parameters)


def test_a_row_of_weight_zero_teaches_nothing(kind):
    x, block, scores = case()
    weights = scores.weights.copy()
    weights[3] = 0.0
    other = x.copy()
    other[block.start + 3] = 7.0
    found = [learned(kind, each, block, scores._replace(weights=weights)) for each in (x, other)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12, atol=1e-15)


def test_the_order_within_a_batch_does_not_matter(kind):
    """But for the last digits, as sums are made in another order."""
    x, block, scores = case()
    turned = np.concatenate([block.batch(number)[::-1] for number in range(len(block.rates))])
    found = [learned(kind, x, each, scores) for each in (block, block._replace(order=turned))]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9, atol=1e-12)


def test_the_order_of_batches_does(kind):
    x, block, scores = case()
    turned = BlockUpdate(block.start, block.order[::-1].copy(), block.batch_bounds, block.rates)
    assert not np.allclose(learned(kind, x, block, scores), learned(kind, x, turned, scores), rtol=1e-6)


def test_a_pass_is_its_batches_one_after_the_other(kind):
    x, block, scores = case()
    model = model_of(kind)
    for number in range(len(block.rates)):
        model.learn(stored(x, "sparse"), block.only(number), scores)
    np.testing.assert_allclose(model.parameters, learned(kind, x, block, scores), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("precision", ["single", "double"])
def test_scores_far_out_leave_finite_parameters(kind, precision):
    x, block, scores = case(precision=precision)
    far = scores._replace(total=(scores.total * 1e6).astype(scores.total.dtype))
    assert np.isfinite(learned(kind, x, block, far, FORM_OF[precision], precision=precision)).all()


def test_without_echo_the_score_stays_as_it_was_received(kind):
    """The gradient is then the same at every batch, however far the party has moved."""
    x, block, scores = case("squared")
    still = scores._replace(echo=0.0)
    moved = still._replace(own_at_push=scores.own_at_push + 100.0)
    found = [learned(kind, x, block, each) for each in (still, moved)]
    np.testing.assert_array_equal(found[0], found[1])


def test_a_prediction_depends_on_its_own_row_alone(kind):
    x, _, _ = case()
    other = x.copy()
    other[5:] = -3.0
    model = model_of(kind)
    first, second = (model.predict(stored(each, "sparse"))[:5] for each in (x, other))
    assert first.tobytes() == second.tobytes()


def test_l2_shrinks_what_no_row_teaches(kind):
    """A feature that no row has is only ever shrunk."""
    x, block, scores = case()
    x[:, 2] = 0.0
    free, shrunk = (learned(kind, x, block, scores, l2=l2) for l2 in (0.0, 0.5))
    per_feature = (len(free) - (1 if kind != "mlp" else 5 + 5 + 1)) // SHAPE.width
    cells = slice(2 * per_feature, 3 * per_feature)
    np.testing.assert_array_equal(free[cells], model_of(kind).parameters[cells])
    assert (np.abs(shrunk[cells]) < np.abs(free[cells])).all()
