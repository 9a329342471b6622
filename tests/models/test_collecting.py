"""A learner that learns from all blocks of an epoch at once."""

import numpy as np
import pytest

from fdml.data.rows import DenseRows, PointedRows, plain_rows
from fdml.errors import DataError
from fdml.models.collecting import CollectingLearner
from fdml.models.model import PROGRESS
from fdml.models.objective import objective_for
from fdml.models.registry import model_settings
from fdml.models.signals import BlockUpdate, Gradients, Scores
from fdml.party.plan import learner_of
from tests.models.random_updates import build

COUNT, BLOCK, ECHO = 300, 100, 2.0
RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(COUNT, 3)).astype(np.float32)
LABELS = (X[:, 0] + 0.3 * RANDOM.normal(size=COUNT) > 0).astype(np.float64)
TOTAL = RANDOM.normal(size=(COUNT, 1)).astype(np.float32)
OWN = RANDOM.normal(size=(COUNT, 1)).astype(np.float32)
WEIGHTS = RANDOM.uniform(0.5, 1.5, COUNT)
OBJECTIVE = objective_for("logistic", 2)
ROWS = DenseRows(X)


def learner(rows=ROWS):
    settings = model_settings("trees", trees=40, l2=0.01)
    found = learner_of(settings, build(settings, 3, 1), rows, held_out=None, threads=1)
    assert isinstance(found, CollectingLearner)
    return found


def signal(start=0, size=COUNT):
    rows = slice(start, start + size)
    return Scores(TOTAL[rows], OWN[rows], LABELS[rows], WEIGHTS[rows], ECHO, OBJECTIVE)


def block(start=0, size=COUNT, rate=0.2):
    return BlockUpdate(start, RANDOM.permutation(size), np.array([0, size]), np.array([rate]))


def epoch(made, starts=(200, 0, 100)):
    for start in starts:
        made.update(block(start, BLOCK), signal(start, BLOCK))
    return made


def test_blocks_teach_what_all_rows_at_once_do_once_the_last_one_is_there():
    blocks, whole = learner(), learner()
    whole.update(block(), signal())
    epoch(blocks, (200, 0))
    assert not blocks.predict(0, COUNT).any()
    epoch(blocks, (100,))
    np.testing.assert_array_equal(blocks.predict(0, COUNT), whole.predict(0, COUNT))


def test_an_epoch_that_begins_with_the_last_block_of_the_one_before_waits_for_the_others():
    made = epoch(learner())
    before = made.predict(0, COUNT)
    epoch(made, (100, 200))
    np.testing.assert_array_equal(made.predict(0, COUNT), before)
    epoch(made, (0,))
    assert not np.array_equal(made.predict(0, COUNT), before)


@pytest.mark.parametrize("starts", [(0,), (200, 0, 100)])
def test_several_passes_over_a_block_learn_as_often(starts):
    size, made = COUNT // len(starts), learner()
    for start in starts:
        given = signal(start, size)
        for _ in range(3):
            made.update(block(start, size), given)
    assert len(made.state()["ends"]) == 3


def test_what_was_collected_is_saved_and_goes_on_bit_by_bit():
    made, twin = epoch(learner()), learner()
    epoch(made, (0, 200))
    state = made.state()
    assert {name for name in state if name.startswith(PROGRESS)} == {
        f"{PROGRESS}collected/{name}" for name in ("offset", "labels", "weights", "rates")
    }
    twin.restore(state)
    for each in (made, twin):
        epoch(each, (100,))
    np.testing.assert_array_equal(twin.predict(0, COUNT), made.predict(0, COUNT))
    assert not any(name.startswith(PROGRESS) for name in made.state()), "nothing to keep between epochs"


def test_a_state_of_other_rows_is_refused():
    state = epoch(learner(), (0,)).state()
    with pytest.raises(DataError, match="of 300 rows, this party has 7"):
        learner(DenseRows(X[:7])).restore(state)


def test_rows_that_are_not_held_teach_nothing_and_are_predicted_as_zero():
    pointers = np.concatenate([np.arange(COUNT - 50), np.full(50, -1)])
    stored = DenseRows(np.concatenate([X, np.zeros((1, 3), np.float32)]))
    pointed = learner(PointedRows(stored, pointers))
    plain = learner(plain_rows(PointedRows(stored, pointers)))
    pointed.update(block(), signal())
    held = np.arange(COUNT) < COUNT - 50
    plain.update(block(), signal()._replace(weights=np.where(held, WEIGHTS, 0.0)))
    np.testing.assert_array_equal(pointed.predict(0, COUNT)[held], plain.predict(0, COUNT)[held])
    assert not pointed.predict(0, COUNT)[~held].any()


def test_gradients_of_private_labels_teach_as_the_totals_they_were_made_of():
    by_totals, by_gradients = learner(), learner()
    by_totals.update(block(), signal())
    gradient = OBJECTIVE.gradient(TOTAL.astype(np.float64), LABELS)
    by_gradients.update(block(), Gradients(gradient, OWN, OWN, WEIGHTS, ECHO, OBJECTIVE))
    np.testing.assert_allclose(by_gradients.predict(0, COUNT), by_totals.predict(0, COUNT), rtol=1e-3, atol=1e-3)


def pass_by_pass(model, *updates):
    """What a model of trees predicts that learns from all rows at once, update by update."""
    for rate, scores in updates:
        model.learn(ROWS, BlockUpdate(0, np.arange(COUNT), np.array([0, COUNT]), np.array([rate])), scores)
    return model.predict(ROWS)


def test_the_step_of_an_epoch_is_the_mean_over_rows_of_those_of_its_blocks():
    made, settings = learner(), model_settings("trees", trees=40, l2=0.01)
    for start, size, rate in ((0, 200, 0.1), (200, 100, 0.4)):
        made.update(block(start, size, rate), signal(start, size))
    expected = pass_by_pass(build(settings, 3, 1), (0.2, signal()))
    np.testing.assert_allclose(made.predict(0, COUNT), expected, rtol=1e-4, atol=1e-6)


def test_a_later_pass_moves_the_total_by_the_echo_of_what_was_learned_since():
    """The totals are those of the push: what the party learned since then counts echo times."""
    made, settings, given = learner(), model_settings("trees", trees=40, l2=0.01), signal()
    for _ in range(2):
        made.update(block(), given)
    expected = pass_by_pass(build(settings, 3, 1), (0.2, given), (0.2, given))
    np.testing.assert_allclose(made.predict(0, COUNT), expected, rtol=1e-4, atol=1e-6)
    fresh = pass_by_pass(build(settings, 3, 1), (0.2, given), (0.2, given._replace(echo=0.0)))
    assert not np.allclose(made.predict(0, COUNT), fresh, rtol=1e-2)


def test_what_is_saved_is_no_view_of_what_is_collected():
    made = epoch(learner(), (0,))
    state = made.state()
    before = {name: array.copy() for name, array in state.items()}
    twin = learner()
    twin.restore(state)
    epoch(made, (100,))
    epoch(twin, (200,))
    for name, array in before.items():
        np.testing.assert_array_equal(state[name], array, err_msg=name)
