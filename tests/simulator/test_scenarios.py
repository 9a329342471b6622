from random import Random

import numpy as np
import pytest

from fdml.models.objective import objective_for
from fdml.models.signals import BlockUpdate, Scores
from simulator.scenarios import HashingModel, Scenario

SEEDS = range(40)


def drawn(seed):
    return Scenario.draw(Random(seed))


def test_a_seed_draws_the_same_scenario_every_time():
    for seed in SEEDS:
        one, other = drawn(seed), drawn(seed)
        assert one.settings == other.settings
        assert one.ids == other.ids
        assert (one.rotate_bytes, one.allowed) == (other.rotate_bytes, other.allowed)


def test_all_kinds_of_runs_are_drawn():
    scenarios = [drawn(seed) for seed in range(200)]
    assert {len(each.settings.parties) for each in scenarios} == {2, 3, 4}
    assert {each.settings.privacy.server for each in scenarios} == {"plain", "blind"}
    assert {each.settings.privacy.labels for each in scenarios} == {"shared", "private"}
    assert {each.settings.training.staleness for each in scenarios} == {0, 1, 2, 3}
    assert {each.settings.align for each in scenarios} == {"tokens", "ecdh"}
    assert {each.has_ids for each in scenarios} == {True, False}
    assert {bool(each.allowed) for each in scenarios} == {True, False}
    assert {bool(each.settings.training.absence) for each in scenarios} == {True, False}
    assert all(each.schedule.steps <= 24 for each in scenarios)


def test_all_parties_hold_the_shared_rows_and_may_hold_others():
    for seed in SEEDS:
        scenario = drawn(seed)
        sets = [set(ids) for ids in scenario.ids.values()]
        assert len(set.intersection(*sets)) == scenario.rows + scenario.held_out
        for party, ids in scenario.ids.items():
            assert len(scenario.features[party].values) == len(ids)
            if not scenario.has_ids:
                assert ids == scenario.ids[scenario.settings.parties[0]]


def test_a_budget_ends_the_run_at_the_step_it_does_not_allow():
    limited = next(each for each in map(drawn, range(200)) if each.allowed and not each.settings.training.absence)
    fewest = min(limited.allowed.values())
    assert limited.end == min(limited.schedule.steps, fewest * limited.schedule.blocks)
    free = next(each for each in map(drawn, range(200)) if not each.allowed)
    assert free.end == free.schedule.steps


def test_two_starts_of_a_party_have_different_masks_and_the_same_secrets():
    scenario = next(each for each in map(drawn, range(200)) if each.settings.privacy.server == "blind")
    party = scenario.settings.parties[0]
    members = [scenario.member(party, start) for start in (1, 2)]
    assert [member.mask_id() for member in members] == [1, 2]
    one, other = (member.alignment().secrets for member in members)
    assert one == other


@pytest.fixture
def rows():
    return drawn(0).features["a"]


def learn(model, rows, **changed):
    values = np.linspace(0.0, 1.0, len(rows.values)).reshape(-1, 1)
    given = {
        "order": np.arange(len(values)),
        "rates": np.array([0.5]),
        "total": values,
        "own": values,
        "labels": values,
    }
    given |= changed
    block = BlockUpdate(0, given["order"], np.array([0, len(values)]), given["rates"])
    ones = np.ones(len(values))
    model.learn(
        rows,
        block,
        Scores(given["total"], given["own"], given["labels"][:, 0], ones, 1.0, objective_for("squared", 0)),
    )
    return model.predict(rows)


@pytest.mark.parametrize("what", ["order", "rates", "total", "own", "labels"])
def test_every_bit_of_an_update_shows_in_every_prediction(rows, what):
    plain = learn(HashingModel(1), rows)
    values = {
        "order": np.arange(len(rows.values))[::-1].copy(),
        "rates": np.array([np.nextafter(0.5, 1.0)]),
        **{
            name: np.nextafter(np.linspace(0.0, 1.0, len(rows.values)), 2.0).reshape(-1, 1)
            for name in ("total", "own", "labels")
        },
    }
    changed = learn(HashingModel(1), rows, **{what: values[what]})
    assert (plain != changed).all()


def test_a_restored_model_goes_on_as_the_one_it_was_made_from(rows):
    model, again = HashingModel(2), HashingModel(2)
    learn(model, rows)
    again.restore(model.state())
    assert np.array_equal(again.predict(rows), model.predict(rows))
    assert np.array_equal(learn(again, rows), learn(model, rows))
