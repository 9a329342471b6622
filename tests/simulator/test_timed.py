"""An epoch in virtual time: what is busy bounds it."""

from dataclasses import replace

import pytest

from simulator.timed import epoch_of
from simulator.timed_setup import Costs, Setup

FREE = Costs(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
SMALL = Setup(parties=2, rows=1000, blocks=4, line=1e12, server_line=1e12)


def test_kernels_alone_take_their_time_and_parties_work_beside_each_other():
    costs = replace(FREE, train_row=2e-3, predict_row=1e-3)
    assert epoch_of(SMALL, costs).seconds == pytest.approx(3.0, rel=0.01)
    assert epoch_of(replace(SMALL, parties=3), costs).seconds == pytest.approx(3.0, rel=0.01)


def test_on_one_core_all_processes_take_turns():
    costs = replace(FREE, train_row=2e-3, predict_row=1e-3)
    assert epoch_of(replace(SMALL, cores=1), costs).seconds == pytest.approx(6.0, rel=0.01)


def test_the_slowest_party_bounds_all():
    costs = replace(FREE, train_row=2e-3)
    found = epoch_of(replace(SMALL, slowest=3.0), costs)
    assert found.seconds == pytest.approx(6.0, rel=0.01)
    assert found.bound_by == "party"


def test_shards_share_the_kernels_and_are_handed_their_parts():
    costs = replace(FREE, train_row=4e-3, hand_over=0.01)
    assert epoch_of(replace(SMALL, shards=4), costs).seconds == pytest.approx(1.0 + 4 * 4 * 0.01, rel=0.01)


def test_a_line_carries_the_bytes_of_all_rows():
    found = epoch_of(replace(SMALL, line=1000.0, row_bytes=2), FREE)
    assert found.seconds == pytest.approx(2.0, rel=0.05)
    assert found.bound_by == "party's line"


def test_the_server_does_the_pushes_of_all_parties():
    costs = replace(FREE, server_row=1e-3, server_push=0.1)
    found = epoch_of(replace(SMALL, parties=3), costs)
    assert found.seconds == pytest.approx(3 * (1.0 + 4 * 0.1), rel=0.02)
    assert found.bound_by == "server"


@pytest.mark.parametrize("lookahead", [0, 1, 3])
def test_round_trips_are_hidden_by_looking_ahead(lookahead):
    found = epoch_of(replace(SMALL, round_trip=1.0, lookahead=lookahead), FREE)
    assert found.seconds == pytest.approx(4.0 / (1 + lookahead), rel=0.01)
    assert found.bound_by == "round trips"


def test_a_setup_takes_the_same_time_whenever_it_is_run():
    costs = Costs(1e-6, 1e-6, 1e-6, 1e-3, 1e-6, 1e-3, 1e-3)
    assert epoch_of(SMALL, costs) == epoch_of(SMALL, costs)


def test_many_parties_have_names_of_their_own():
    assert epoch_of(replace(SMALL, parties=30, blocks=1), FREE).seconds == pytest.approx(0.0, abs=1e-6)
