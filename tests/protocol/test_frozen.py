"""In which epochs only parties learn that are new to a version: it follows from the settings alone."""

import pytest

from fdml.protocol.frozen import NEVER_FROZEN, FrozenEpochs

ONE_OF_THREE = FrozenEpochs(2, 3, ("post",))


def test_without_frozen_epochs_all_learn_and_the_echo_is_whole():
    assert all(NEVER_FROZEN.learns(party, epoch) for party in ("shop", "post") for epoch in range(3))
    assert NEVER_FROZEN.echo(3.0, 0) == 3.0


@pytest.mark.parametrize(("party", "learned"), [("shop", [2, 3]), ("bank", [2, 3]), ("post", [0, 1, 2, 3])])
def test_in_the_first_epochs_the_new_party_alone_learns(party, learned):
    assert [epoch for epoch in range(4) if ONE_OF_THREE.learns(party, epoch)] == learned


def test_a_party_that_learns_by_itself_echoes_nobody():
    assert [ONE_OF_THREE.echo(3.0, epoch) for epoch in range(4)] == [1.0, 1.0, 3.0, 3.0]
    assert ONE_OF_THREE.echo(0.0, 0) == 1.0


def test_each_other_new_party_has_its_share_of_the_echo():
    two = FrozenEpochs(1, 3, ("bank", "post"))
    assert [two.echo(3.0, epoch) for epoch in range(2)] == [2.0, 3.0]
    assert FrozenEpochs(1, 1, ()).echo(1.0, 0) == 1.0
