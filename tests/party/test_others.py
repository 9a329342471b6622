"""Finding 26: what the others send is cut to what they may, and told of."""

import numpy as np
from sklearn.metrics import roc_auc_score

from fdml.data.row_set import RowSet
from fdml.data.rows import as_rows
from fdml.events import LargestPart, Remark
from fdml.models.registry import model_settings
from fdml.party.others import OthersPart
from fdml.party.plan import Plan, build_worker
from fdml.privacy.build_guard import guard_for
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import INT64, decode, encode, grid_of
from fdml.protocol.messages import Gradient, Push, Release, Total
from fdml.settings import GuardSettings, TrainingSettings
from tests.party.workers import masked

PARTIES = ("ann", "bob", "eve")
ROWS = 400
MOST = 5.0


def codes(*values):
    return encode(np.array(values, np.float64).reshape(-1, 1))


def watch(most=MOST):
    return OthersPart("ann", PARTIES[1:], None if most is None else int(most * 2**32))


def test_what_is_within_the_limit_stays_the_same_array():
    others, total = watch(), codes(3, -4, 5)
    assert others.take(total, codes(1, 1, 0), 0) is total
    assert others.events() == []


def test_what_is_past_it_is_cut_and_remarked_once_with_the_names():
    others = watch()
    cut = others.take(codes(1e6, -1e6, 2), codes(1, 1, 1), 7)
    assert decode(cut).ravel().tolist() == [6, -4, 2], "the own part stays as it is"
    others.take(codes(1e6), codes(1), 8)
    (remark,) = others.events()
    assert isinstance(remark, Remark)
    assert "of step 7 come to 1e+06" in remark.text
    assert "'bob' or 'eve'" in remark.text


def test_the_largest_of_every_epoch_and_the_one_before_are_events():
    others = watch()
    for epoch, largest in enumerate((2.0, 3.0), 1):
        others.take(codes(0.5, largest), codes(0, 0), epoch)
        others.take(codes(0.25), codes(0), epoch)
        others.end_epoch(epoch)
    assert others.events() == [
        LargestPart("ann", ("bob", "eve"), 1, 2.0, None),
        LargestPart("ann", ("bob", "eve"), 2, 3.0, 2.0),
    ]


def test_a_jump_within_an_epoch_is_remarked_though_it_is_within_the_limit():
    others = watch(most=1000)
    for epoch, largest in enumerate((2.0, 900.0), 1):
        others.take(codes(largest), codes(0), epoch)
        others.end_epoch(epoch)
    (remark,) = [event for event in others.events() if isinstance(event, Remark)]
    assert "grown from 2 to 900 within an epoch; ask 'bob' or 'eve'" in remark.text


def test_without_a_limit_or_others_there_is_nothing_to_tell():
    others, alone = watch(most=None), OthersPart("ann", (), 0)
    total = codes(1e6)
    assert others.take(total, codes(0), 0) is total
    assert alone.take(codes(1), codes(1), 0).tolist() == codes(1).tolist()
    for each in (others, alone):
        each.end_epoch(1)
        assert each.events() == []


def test_an_epoch_without_totals_tells_nothing():
    """Where labels are private only the label party gets totals."""
    others = watch()
    others.end_epoch(1)
    assert others.events() == []


# A whole training


def data():
    chance = np.random.default_rng(3)
    features = {party: chance.normal(size=(ROWS, 4)).astype(np.float32) for party in PARTIES}
    labels = (sum(each.sum(axis=1) for each in features.values()) + chance.normal(size=ROWS) > 0).astype(np.float64)
    return features, labels


def honest_auc(loss, push_of_eve, max_prediction=None):
    """How well the honest parties' models do beside a third one that pushes what it likes; with the largest remark."""
    features, labels = data()
    training = TrainingSettings(
        epochs=5, batch_size=20, batches_per_block=2, learning_rate=0.1, lookahead=0, max_prediction=max_prediction
    )
    grid = grid_of(64, max_prediction)
    workers = {}
    for party in PARTIES[:2]:
        others = tuple(name for name in PARTIES if name != party)
        plan = Plan(training, {party: model_settings()}, "ann", loss, 2 if loss == "logistic" else 0, 3, others)
        guard = guard_for(GuardSettings(), plan.schedule(ROWS), NoiseKey(b"k" * 32), grid=grid, parties=3)
        workers[party] = build_worker(
            plan, RowSet({party: as_rows(features[party])}, labels, np.ones(ROWS)), party, guard
        )
    pushes = {party: list(worker.first_messages()) for party, worker in workers.items()}
    schedule = workers["ann"].schedule
    for step in range(schedule.steps):
        size = schedule.visit(step).size
        total = sum(sent[0].release.values for sent in pushes.values()) + encode(np.full((size, 1), push_of_eve))
        pushes = {party: list(worker.learn(Total(step, total, (step,) * 3))) for party, worker in workers.items()}
    score = sum(worker.learner.predict(0, ROWS).astype(np.float64) for worker in workers.values())
    texts = [event.text for event in workers["bob"].events() if isinstance(event, Remark)]
    return roc_auc_score(labels, score[:, 0]), texts


def test_a_party_that_pushes_a_million_does_little_harm_where_the_largest_prediction_is_agreed():
    """Finding 26: squared loss, one of three parties pushes 1e6; the honest parties' part fell to an AUC of .56."""
    calm, _ = honest_auc("squared", 0.0)
    harmed, _ = honest_auc("squared", 1e6)
    bounded, remarks = honest_auc("squared", 1e6, max_prediction=2.0)
    assert calm > 0.8
    assert harmed < 0.7, "without the setting the limit is what 64 bits hold"
    assert bounded > calm - 0.1
    assert "more than they may send together" in remarks[0], "and the victims do not end as diverged"


def test_an_honest_run_is_not_changed_by_a_limit_that_it_does_not_reach():
    assert honest_auc("logistic", 0.5, max_prediction=50.0) == honest_auc("logistic", 0.5)


def test_a_gradient_past_what_a_loss_over_classes_has_is_cut():
    """A label party that lies moves the others no further than a wrong label would."""
    features, labels = data()
    training = TrainingSettings(epochs=1, batch_size=20, batches_per_block=20, learning_rate=0.1, lookahead=0)
    states = []
    for value in (1.0, 1e6):
        plan = Plan(training, {"bob": model_settings()}, "ann", "logistic", 2, 2, ("ann",))
        guard = masked(("ann", "bob"), "bob", 3, blind=False)
        sample = RowSet({"bob": as_rows(features["bob"])}, labels, np.ones(ROWS))
        worker = build_worker(plan, sample, "bob", guard, gradient_party="ann")
        (push,) = worker.first_messages()
        assert isinstance(push, Push)
        gradient = masked(("ann", "bob"), "ann", 4).gradient(0, np.full((ROWS, 1), value))
        assert isinstance(gradient, Gradient)
        list(worker.learn(gradient))
        states.append(worker.parameters())
    for name, array in states[0].items():
        np.testing.assert_array_equal(array, states[1][name])


def test_codes_are_cut_in_their_own_ring():
    """Under masks any sum can come; it is never more than the limit away from the own part."""
    total = np.array([[np.iinfo(np.int64).min], [np.iinfo(np.int64).max]])
    cut = watch().take(total, codes(1, -1), 0)
    assert np.abs(decode(cut - codes(1, -1))).max() <= MOST
    assert Release(cut).values.dtype == INT64.dtype
