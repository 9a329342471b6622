"""Finding 26: a plain server names the party whose predictions explode."""

import pytest

from fdml.events import LargestPart, Remark
from fdml.protocol.schedule import schedule_for
from fdml.server.part_sizes import PartSizes

PARTIES = ("ann", "bob", "eve")
SCHEDULE = schedule_for(8, 2, 2, 1, 3, 7)
"""Two blocks of four rows, three epochs."""


def pushed(sizes, *sent):
    return [event for party, step, largest in sent for event in sizes.note(party, step, largest, SCHEDULE)]


def test_the_largest_prediction_of_every_party_and_epoch_is_an_event_with_the_one_before():
    events = pushed(PartSizes(PARTIES), ("ann", 0, 1.0), ("ann", 1, 0.5), ("ann", 2, 2.0), ("ann", 3, 3.0))
    assert events == [LargestPart("server", ("ann",), 1, 1.0, None), LargestPart("server", ("ann",), 2, 3.0, 1.0)]


def test_a_party_whose_predictions_are_far_larger_than_the_others_is_named_once():
    sizes = PartSizes(PARTIES)
    honest = [(party, 0, 0.5) for party in ("ann", "bob")]
    events = pushed(sizes, *honest, ("eve", 0, 1e6), ("ann", 1, 0.6), ("eve", 1, 1e6))
    remarks = [event for event in events if isinstance(event, Remark)]
    assert [remark.party for remark in remarks] == ["server"]
    assert "party 'eve' stands out: its predictions reach 1e+06 at step 0" in remarks[0].text
    assert sizes.outliers == {"eve"}
    assert sizes.largest == {"ann": pytest.approx(0.6), "bob": pytest.approx(0.5), "eve": pytest.approx(1e6)}


def test_a_party_that_explodes_after_an_epoch_is_named_though_nobody_else_has_pushed():
    sizes = PartSizes(PARTIES[:1])
    assert not any(isinstance(each, Remark) for each in pushed(sizes, ("ann", 0, 2.0), ("ann", 1, 3.0)))
    (remark,) = [each for each in pushed(sizes, ("ann", 2, 400.0)) if isinstance(each, Remark)]
    assert "reach 400 at step 2" in remark.text


def test_growth_that_is_usual_in_training_is_not_remarked():
    sizes = PartSizes(PARTIES)
    sent = [(party, step, 0.01 * 3**step) for step in range(6) for party in PARTIES]
    assert not any(isinstance(event, Remark) for event in pushed(sizes, *sent))
    assert sizes.outliers == set()


def test_a_push_that_comes_again_is_not_looked_at():
    sizes = PartSizes(PARTIES)
    pushed(sizes, ("ann", 0, 1.0), ("ann", 1, 1.0))
    assert pushed(sizes, ("ann", 0, 9.0), ("ann", 1, 9.0)) == []
    assert sizes.largest["ann"] == 1.0


def test_under_masks_there_is_nothing_to_see():
    sizes = PartSizes(PARTIES)
    assert pushed(sizes, ("ann", 0, None)) == []
    assert sizes.largest == {}
