"""Who sees what of a party's predictions."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from fdml.audit.views import coalitions, dense, side_by_side, trajectories, views
from fdml.data.rows import as_rows
from fdml.models.losses import LOSSES
from fdml.settings import PrivacySettings
from tests.audit.recorded import NOISE, small

ROWS = 24


@pytest.fixture(scope="module")
def two():
    return small("ab")


@pytest.fixture(scope="module")
def three():
    return small("abc")


def by_target(found, view):
    return {each.target: each for each in found if each.view == view}


def test_the_server_sees_every_partys_own_predictions_unless_it_is_blind(two):
    seen = by_target(views(two), "server")
    assert seen.keys() == {"a", "b"}
    for party, view in seen.items():
        assert (view.kind, view.noisy, view.own.shape) == ("plain", False, (ROWS, 0))
        assert view.pushed is two.plain[party]
        assert view.against == f"server on {party!r}"
        assert "taken to know the labels" in view.remark


def test_a_blind_server_has_values_under_masks_only():
    recording = small("ab", privacy=PrivacySettings(server="blind"))
    for party, view in by_target(views(recording), "server").items():
        assert (view.kind, view.noisy) == ("masked", True)
        for step, values in view.pushed.items():
            assert values.shape == recording.plain[party][step].shape
            assert np.abs(values - recording.plain[party][step]).max() > 0.1


def test_the_other_of_two_parties_has_the_targets_predictions_and_its_own_features(two):
    (view,) = by_target(views(two), "party 'b'").values()
    assert (view.target, view.kind, view.against) == ("a", "plain", "party 'b'")
    assert view.pushed is two.plain["a"]
    np.testing.assert_allclose(view.own, dense(two.truth.features["b"]))


def test_one_of_three_has_the_sum_of_the_two_others(three):
    found = [view for view in views(three) if view.view.startswith("party")]
    assert [(view.view, view.target, view.kind) for view in found] == [
        ("party 'b'", "a", "sums"), ("party 'a'", "b", "sums"), ("party 'a'", "c", "sums")
    ]  # fmt: skip
    np.testing.assert_array_equal(found[1].pushed[3], three.plain["b"][3] + three.plain["c"][3])
    assert found[1].against == "party 'a' on 'b'"


def test_all_others_together_have_the_targets_own_part_and_all_their_features(three):
    together = by_target(coalitions(three), "all parties but 'b'")["b"]
    np.testing.assert_array_equal(together.pushed[0], three.plain["b"][0])
    assert together.own.shape == (ROWS, 4)
    assert {view.target for view in coalitions(three)} == {"a", "b", "c"}


def test_a_party_without_features_is_no_target():
    recording = small("ab", {"a": 0, "b": 2})
    assert {view.target for view in views(recording)} == {"b"}
    assert {view.target for view in coalitions(recording)} == {"b"}


@pytest.mark.parametrize("parties", ["ab", "abc"])
def test_noise_of_those_in_a_view_is_known(parties):
    recording = small(parties, guard=NOISE)
    assert all(view.noisy for view in [*views(recording), *coalitions(recording)])


def test_gradients_that_follow_from_what_was_pushed_tell_nothing_more():
    recording = small("ab", guard=NOISE, privacy=PrivacySettings(labels="private"))
    view = by_target(views(recording), "party 'b'")["a"]
    assert view.noisy
    assert view.pushed is recording.plain["a"]


def test_gradients_made_of_exact_predictions_are_noticed():
    recording = small("ab", guard=NOISE, privacy=PrivacySettings(labels="private"))
    leaky = {
        step: LOSSES["logistic"].gradient(0.25 + recording.plain["b"][step], np.zeros(len(values)))
        for step, values in recording.gradients.items()
    }
    view = by_target(views(replace(recording, gradients=leaky)), "party 'b'")["a"]
    assert not view.noisy
    assert "tell more of its predictions than it pushed" in view.remark
    np.testing.assert_allclose(np.median(view.pushed[0]), 0.25, atol=1e-3)


# Values in the form that attacks take


def test_trajectories_have_every_row_in_every_whole_epoch(two):
    schedule = two.schedule
    found = trajectories(two, two.plain["a"])
    assert found.shape == (ROWS, 2, 1)
    for step in range(schedule.steps):
        visit = schedule.visit(step)
        np.testing.assert_array_equal(found[visit.start : visit.stop, visit.epoch], two.plain["a"][step])


def test_an_epoch_that_was_not_pushed_whole_is_left_out(two):
    some = {step: values for step, values in two.plain["a"].items() if step < two.schedule.steps - 1}
    assert trajectories(two, some).shape == (ROWS, 1, 1)


@pytest.mark.parametrize("sparse", [False, True])
def test_of_very_many_features_those_that_vary_most_are_taken(sparse):
    chance = np.random.default_rng(0)
    matrix = np.zeros((40, 300))
    matrix[:, :20] = chance.normal(size=(40, 20)) * 5
    matrix[:, 20:] = 0.001 * chance.normal(size=(40, 280))
    rows = as_rows(sp.csr_array(matrix.astype(np.float32)) if sparse else matrix)
    found = dense(rows)
    assert found.shape == (40, 256)
    np.testing.assert_allclose(found[:, :20], matrix[:, :20], rtol=1e-6)


def test_few_features_are_all_taken_as_they_are():
    matrix = np.arange(12.0).reshape(4, 3)
    np.testing.assert_array_equal(dense(as_rows(matrix)), matrix)


def test_parts_stand_side_by_side_and_none_has_no_columns():
    assert side_by_side([], 5).shape == (5, 0)
    np.testing.assert_array_equal(side_by_side([np.ones((2, 1)), np.zeros((2, 2))], 2), [[1, 0, 0], [1, 0, 0]])
