"""A party's guard as its settings ask for it."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from fdml.errors import PrivacyBudgetSpent, SettingsError
from fdml.privacy.build_guard import (
    budget_remarks,
    dp_sgd_for,
    gradients_of,
    guard_for,
    mechanism_of,
    row_uses,
    seeded_key,
    stored_key,
)
from fdml.privacy.epsilon import gaussian_epsilon
from fdml.privacy.guard import group_of
from fdml.privacy.ledger import DIRECT, HELD_OUT, RECORD_LEVEL, Mechanism, epsilon_of
from fdml.privacy.masks import Masks
from fdml.privacy.noise import NoiseKey
from fdml.protocol.fixed_point import encode
from fdml.protocol.schedule import schedule_for, schedule_of
from fdml.settings import GuardSettings, TrainingSettings
from tests.examples import examples
from tests.storage.memory_disk import MemoryDisk, PowerCut

KEY = NoiseKey(bytes(range(32)))
BLOCKWISE = schedule_for(24, 2, 4, 2, 5, 7)
FEW = schedule_of(24, TrainingSettings(epochs=9, exchanges=3, batch_size=4))
SCHEDULES = {"blockwise": BLOCKWISE, "few exchanges": FEW}
GRADIENTS = {"clip": 1.0, "sigma": 20.0}


def guard_settings(**changes):
    return GuardSettings(**{"clip": 2.0, "noise": "gaussian", "sigma": "auto", "epsilon": 4.0, **changes})


def spend_all(guard, schedule):
    """Release every block as often as the schedule says, with all uses in training between."""
    for step in range(schedule.steps):
        visit = schedule.visit(step)
        guard.push(step, visit.block, np.zeros((visit.size, 1)))
        if guard.ledger.gradients is not None:
            guard.ledger.count_use(group_of(visit.block), schedule.passes_at(step))
    for epoch in range(schedule.epochs):
        guard.held_out(epoch + 1, np.zeros((3, 1)))


# Noise by the budget


@examples(60)
@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.floats(0.3, 30),
    st.floats(0.1, 10),
    st.sampled_from(list(SCHEDULES)),
    st.sampled_from([None, GRADIENTS]),
)
def test_auto_noise_spends_the_budget_over_the_schedule_and_hardly_less(noise, epsilon, clip, which, training):
    schedule = SCHEDULES[which]
    chosen = guard_settings(noise=noise, epsilon=epsilon, clip=clip, training=training)
    if training is not None:
        assume(gaussian_epsilon((row_uses(schedule) * gradients_of(chosen).squared_mu) ** 0.5, 1e-5) < 0.9 * epsilon)
    guard = guard_for(chosen, schedule, KEY)
    if schedule.local_passes and guard.ledger.gradients is not None:
        guard.ledger.count_use("block 0", schedule.local_passes)
    spend_all(guard, schedule)
    _, spent = guard.ledger.worst()
    assert 0.99 * epsilon < spent <= epsilon
    with pytest.raises(PrivacyBudgetSpent):
        guard.push(schedule.steps, 0, np.zeros((8, 1)))


def test_auto_noise_is_more_where_training_spends_too():
    alone = mechanism_of(guard_settings(), BLOCKWISE)
    both = mechanism_of(guard_settings(training=GRADIENTS), BLOCKWISE)
    assert both.sigma > alone.sigma
    assert epsilon_of(alone, BLOCKWISE.epochs, 1e-5) == pytest.approx(4.0, rel=1e-6)


def test_a_training_that_spends_the_budget_alone_is_refused():
    with pytest.raises(
        SettingsError, match=r"the gradients alone spend epsilon .* of 1\.00 at delta 1e-05; set more noise for them"
    ):
        mechanism_of(guard_settings(epsilon=1.0, training={"clip": 5.0, "sigma": 1.0}), BLOCKWISE)


def test_fewer_exchanges_need_less_noise():
    many = schedule_of(24, TrainingSettings(epochs=9, exchanges=8, batch_size=4))
    assert mechanism_of(guard_settings(), FEW).sigma < mechanism_of(guard_settings(), many).sigma


def test_noise_that_is_set_is_taken_as_it_is():
    assert mechanism_of(guard_settings(sigma=0.5), BLOCKWISE) == Mechanism("gaussian", 2.0, 0.5)
    assert mechanism_of(GuardSettings(), BLOCKWISE) == Mechanism("none", np.inf, 0.0)
    assert mechanism_of(GuardSettings(clip=3.0), BLOCKWISE) == Mechanism("none", 3.0, 0.0)


@pytest.mark.parametrize("which", SCHEDULES)
def test_every_pass_over_a_row_is_a_use(which):
    schedule = SCHEDULES[which]
    counted = schedule.local_passes + sum(
        schedule.passes_at(step) for step in range(schedule.steps) if schedule.visit(step).block == 0
    )
    assert row_uses(schedule) == counted == {"blockwise": 10, "few exchanges": 9}[which]


def test_a_budget_that_allows_no_release_is_refused_before_training():
    with pytest.raises(
        SettingsError,
        match=r"guard\.epsilon 0\.5 does not allow a single release with clip 2 and sigma 1; "
        r'set guard\.sigma = "auto", or see `fdml budget plan --epsilon 0\.5`',
    ):
        guard_for(guard_settings(sigma=1.0, epsilon=0.5), BLOCKWISE, KEY)
    guard_for(guard_settings(sigma=1.0, epsilon=None), BLOCKWISE, KEY)


# The guard


def test_without_settings_predictions_leave_as_they_are_and_nothing_is_stored():
    disk = MemoryDisk()
    guard = guard_for(GuardSettings(), BLOCKWISE, KEY, disk=disk)
    predictions = np.linspace(-1, 1, 8).reshape(-1, 1)
    message, codes = guard.push(0, 0, predictions)
    np.testing.assert_array_equal(message.release.values, encode(predictions))
    np.testing.assert_array_equal(codes, encode(predictions))
    assert disk.files == {}


def test_what_leaves_under_noise_is_stored_where_there_is_a_disk():
    disk = MemoryDisk()
    guard = guard_for(guard_settings(), BLOCKWISE, KEY, disk=disk)
    first, _ = guard.push(0, 0, np.zeros((8, 1)))
    again = guard_for(guard_settings(), BLOCKWISE, NoiseKey(b"o" * 32), disk=disk)
    again.restore(None, lambda step: BLOCKWISE.visit(step).block)
    np.testing.assert_array_equal(
        again.push(0, 0, np.ones((8, 1)))[0].release.values.ravel(), first.release.values.ravel()
    )


@pytest.mark.parametrize(("evaluation", "counted"), [("guarded", 1), ("exact", 0)])
def test_held_out_rows_are_guarded_unless_the_party_says_otherwise(evaluation, counted):
    guard = guard_for(guard_settings(evaluation=evaluation), BLOCKWISE, KEY)
    held_out = guard.held_out(1, np.full((3, 1), 5.0))
    assert guard.ledger.releases(HELD_OUT) == counted
    assert (held_out.release.variance > 0) == bool(counted)
    assert (held_out.release.values == encode(np.full((3, 1), 5.0))).all() == (not counted)


def test_masks_are_put_on_where_the_server_is_blind():
    masks = Masks(bytes(range(32)), ("a", "b"), "a", 4)
    for blind in (False, True):
        message, _ = guard_for(GuardSettings(), BLOCKWISE, KEY, masks=masks, blind=blind).push(0, 0, np.zeros((8, 1)))
        assert message.release.mask_id == (4 if blind else 0)
        assert message.release.values.any() == blind


def test_the_ledger_covers_what_the_settings_cover():
    direct = guard_for(guard_settings(), BLOCKWISE, KEY).ledger
    whole = guard_for(guard_settings(training=GRADIENTS), BLOCKWISE, KEY).ledger
    assert (direct.scope, whole.scope) == (DIRECT, RECORD_LEVEL)
    assert (direct.budget, direct.delta) == (4.0, 1e-5)
    assert (whole.gradients.clip, whole.gradients.sigma) == (1.0, 20.0)


def test_noise_in_training_is_there_only_if_it_is_asked_for():
    assert dp_sgd_for(guard_settings(), KEY) is None
    steps = dp_sgd_for(guard_settings(training=GRADIENTS), KEY)
    assert (steps.clip, steps.sigma, steps.key) == (1.0, 20.0, KEY)
    with pytest.raises(SettingsError, match=r"there is no \[guard.training\]"):
        gradients_of(guard_settings())


# What the party is told


def remarks(chosen, schedule=BLOCKWISE):
    return budget_remarks(chosen, schedule)


def test_a_party_without_noise_has_no_remarks():
    assert remarks(GuardSettings()) == remarks(GuardSettings(clip=1.0)) == []


def test_how_predictions_leave_is_remarked():
    assert remarks(guard_settings(sigma=8.0, epsilon=None)) == [
        "predictions leave clipped to 2 with gaussian noise of 8"
    ]
    sigma = mechanism_of(guard_settings(noise="laplace"), BLOCKWISE).sigma
    assert remarks(guard_settings(noise="laplace")) == [
        f"predictions leave clipped to 2 with laplace noise of {sigma:.4g}"
    ]


def test_a_budget_that_will_not_last_is_remarked():
    chosen = guard_settings(sigma=4.0, epsilon=epsilon_of(Mechanism("gaussian", 2.0, 4.0), 3, 1e-5))
    first, second = remarks(chosen)
    assert first == "predictions leave clipped to 2 with gaussian noise of 4"
    assert second == (
        f"the budget epsilon {chosen.epsilon:g} allows 3 of 5 releases of each row: training will end early"
    )


def test_a_budget_that_lasts_to_the_end_is_not_mentioned():
    chosen = guard_settings(sigma=4.0, epsilon=epsilon_of(Mechanism("gaussian", 2.0, 4.0), 5, 1e-5))
    assert len(remarks(chosen)) == len(remarks(guard_settings())) == 1


# The key


def test_the_noise_key_is_drawn_once_and_stored_before_it_is_used():
    disk = MemoryDisk()
    first = stored_key(disk)
    assert stored_key(disk) == stored_key(disk.copy()) == first
    assert len(first.secret) == 32
    assert stored_key(MemoryDisk()) != first
    with pytest.raises(PowerCut):
        stored_key(MemoryDisk(writes_left=0))


def test_the_noise_key_is_not_shown():
    key = stored_key(MemoryDisk())
    assert key.secret.hex() not in repr(key)
    assert str(key.secret) not in repr(key)


def test_a_seeded_key_is_the_same_for_the_same_seed_and_party():
    assert seeded_key(7, "a") == seeded_key(7, "a")
    assert len({seeded_key(7, "a").secret, seeded_key(7, "b").secret, seeded_key(8, "a").secret}) == 3
