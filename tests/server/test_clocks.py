import pytest

from fdml.server.clocks import Clocks


def clocks_at(pushed, served, staleness):
    clocks = Clocks(len(pushed), staleness)
    clocks.pushed, clocks.served = list(pushed), list(served)
    return clocks


def test_nobody_is_served_before_he_has_pushed():
    assert not Clocks(2, 5).may_serve(0)
    assert Clocks(2, 5).blockers(0) == [0]


@pytest.mark.parametrize(
    ("pushed", "served", "staleness", "may", "blockers"),
    [
        ((3, 3), (2, 2), 0, True, []),
        ((3, 2), (2, 2), 0, False, [1]),
        ((3, 2), (2, 2), 1, True, []),
        ((4, 2), (3, 2), 1, False, [1]),
        ((4, -1), (3, -1), 4, False, [1]),
        ((4, -1), (3, -1), 5, True, []),
        ((3, 9), (3, 2), 5, False, [0]),
        ((4, 1, 2, 3), (3, 0, 0, 0), 1, False, [1, 2]),
    ],
)
def test_the_gate_opens_at_the_staleness_exactly(pushed, served, staleness, may, blockers):
    clocks = clocks_at(pushed, served, staleness)
    assert clocks.may_serve(0) is may
    assert clocks.to_serve() == [party for party in range(len(pushed)) if clocks.may_serve(party)]
    assert clocks.blockers(0) == blockers


def test_what_is_settled_was_served_to_all():
    clocks = clocks_at((5, 7, 6), (4, 2, 3), 4)
    assert clocks.served_to_all == 2


@pytest.mark.parametrize(("pushed", "may", "blockers"), [((3, 2, 3), False, [1]), ((3, 3, 3), True, [])])
def test_the_first_steps_may_have_to_be_complete(pushed, may, blockers):
    clocks = Clocks(3, 5, complete_before=4)
    clocks.pushed, clocks.served = list(pushed), [2, 2, 2]
    assert clocks.may_serve(0) is may
    assert clocks.to_serve() == [party for party in range(len(pushed)) if clocks.may_serve(party)]
    assert clocks.blockers(0) == blockers


def test_after_the_first_steps_the_staleness_counts():
    clocks = Clocks(3, 5, complete_before=3)
    clocks.pushed, clocks.served = [3, 2, 2], [2, 2, 2]
    assert clocks.may_serve(0)
