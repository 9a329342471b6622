"""Masks: any party takes off what another put on, nobody else learns anything from what is under one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from fdml.errors import MessageRefused, Refusal
from fdml.privacy.masks import Masks

SECRET = bytes(range(32))
PARTIES = ("store", "browser", "guard")
WHOLE = np.iinfo(np.int64)
PURPOSES = ("push", "held-out", "gradient")
codes = arrays(np.int64, (3, 2), elements=st.integers(WHOLE.min, WHOLE.max) | st.sampled_from([WHOLE.min, WHOLE.max]))
numbers = st.integers(0, 2**63 - 1)
mask_ids = st.integers(1, 2**64 - 1)


def masks(party="store", mask_id=1, *, secret=SECRET):
    return Masks(secret, PARTIES, party, mask_id)


def mask(purpose="push", party="store", number=0, mask_id=1, secret=SECRET, size=4):
    """What is put on."""
    return masks(party, mask_id, secret=secret).add(purpose, number, np.zeros(size, np.int64))


@given(codes, st.sampled_from(PURPOSES), st.sampled_from(PARTIES), st.sampled_from(PARTIES), numbers, mask_ids)
def test_any_party_takes_off_what_another_put_on(values, purpose, giver, taker, number, mask_id):
    covered = masks(giver, mask_id).add(purpose, number, values)
    assert (covered.shape, covered.dtype) == (values.shape, np.int64)
    taken = masks(taker, 77).remove_one(purpose, giver, number, mask_id, covered)
    np.testing.assert_array_equal(taken, values)


@given(codes, st.sampled_from(PURPOSES), numbers, mask_ids, mask_ids)
def test_a_party_takes_off_what_it_put_on_itself_in_an_earlier_start(values, purpose, number, before, now):
    covered = masks("guard", before).add(purpose, number, values)
    np.testing.assert_array_equal(masks("guard", now).remove_own(purpose, number, before, covered), values)


@given(
    st.tuples(codes, codes, codes),
    st.tuples(numbers, numbers, numbers),
    st.tuples(mask_ids, mask_ids, mask_ids),
    st.data(),
)
def test_a_sum_is_exact_in_the_ring_whatever_the_values(values, pushed_at, stamped, data):
    covered = [
        masks(party, mask_id).add("push", number, each)
        for party, mask_id, number, each in zip(PARTIES, stamped, pushed_at, values, strict=True)
    ]
    taker = data.draw(st.sampled_from(PARTIES))
    found = masks(taker, 5).remove("push", pushed_at, stamped, covered[0] + covered[1] + covered[2])
    np.testing.assert_array_equal(found, values[0] + values[1] + values[2])
    whole = sum(each.astype(object) for each in values)
    assert all((int(a) - int(b)) % 2**64 == 0 for a, b in zip(found.ravel(), whole.ravel(), strict=True))


def test_a_part_that_never_came_has_no_mask_to_take_off():
    values = np.arange(4)
    covered = masks("store", 3).add("push", 6, values)
    found = masks("guard", 9).remove("push", (6, -1, -1), (3, 0, 0), covered)
    np.testing.assert_array_equal(found, values)


def test_taking_off_leaves_what_came_as_it_was():
    covered = masks("store", 3).add("push", 6, np.arange(4))
    before = covered.copy()
    masks().remove("push", (6, -1, -1), (3, 0, 0), covered)
    masks().remove_one("push", "store", 6, 3, covered)
    np.testing.assert_array_equal(covered, before)


@pytest.mark.parametrize(
    ("pushed_at", "stamped"),
    [((0, 0), (1, 1)), ((0, 0, 0), ()), ((0, 0, 0), (1, 1, 1, 1)), ((0,), (1, 1, 1)), ((), ())],
)
def test_as_many_masks_as_parties_are_taken_off_or_none(pushed_at, stamped):
    with pytest.raises(MessageRefused, match=r"a sum under \d masks of 3 parties; .* run.toml") as refused:
        masks().remove("push", pushed_at, stamped, np.zeros(4, np.int64))
    assert refused.value.refusal is Refusal.INVALID


OTHERS = {
    "party": {"party": "browser"},
    "number": {"number": 1},
    "number far away": {"number": 2**32},
    "mask_id": {"mask_id": 2},
    "mask_id far away": {"mask_id": 2**63 + 1},
    "purpose": {"purpose": "gradient"},
    "group": {"secret": b"s" * 32},
}


@pytest.mark.parametrize("what", OTHERS)
def test_another_party_step_start_purpose_or_group_has_another_mask(what):
    one, other = mask(size=5000), mask(**OTHERS[what], size=5000)
    assert not (one == other).any()
    assert not np.isin(one, other).any(), "not the same stream from another place either"


@given(
    st.lists(
        st.tuples(st.sampled_from(PURPOSES), st.sampled_from(PARTIES), st.integers(0, 3), st.integers(1, 3)),
        min_size=2,
        max_size=30,
        unique=True,
    )
)
def test_no_two_masks_of_a_run_are_alike(places):
    assert len({tuple(mask(*place, size=2)) for place in places}) == len(places)


def test_names_and_purposes_that_read_alike_in_a_row_have_masks_of_their_own():
    parties = ("a", "b a", "a b")
    drawn = {tuple(Masks(SECRET, parties, party, 1).add("push", 0, np.zeros(4, np.int64))) for party in parties}
    assert len(drawn) == 3


def test_a_mask_is_the_same_whatever_was_asked_for_before():
    """Streams are kept open and set to the step anew; many others push them out of the cache."""
    mine = masks("store", 1)
    first = mine.add("push", 3, np.zeros(9, np.int64))
    for number in range(50):
        mine.remove_one("held-out", PARTIES[number % 3], number, number + 2, np.zeros(7, np.int64))
        mine.add("push", number, np.zeros(number, np.int64))
    np.testing.assert_array_equal(mine.add("push", 3, np.zeros(9, np.int64)), first)
    np.testing.assert_array_equal(mine.add("push", 3, np.zeros(4, np.int64)), first[:4])


def test_what_is_under_a_mask_looks_like_nothing():
    """All bytes are as likely as any other, though every value is the same."""
    covered = masks().add("push", 0, np.full((20_000, 2), 3 << 32))
    counts = np.bincount(np.frombuffer(covered.tobytes(), np.uint8), minlength=256)
    assert stats.chisquare(counts).pvalue > 1e-4
    uniform = covered.ravel().astype(np.float64) / 2.0**64 + 0.5
    assert stats.kstest(uniform, "uniform").pvalue > 1e-4
    assert abs(np.corrcoef(uniform[:-1], uniform[1:])[0, 1]) < 4.5 / np.sqrt(len(uniform))


def test_the_mask_of_a_step_never_changes():
    """All parties compute it for themselves, whatever version they run; these values may not be edited."""
    assert mask("push", "browser", 12, 34, size=3).tolist() == [
        -1620822241664437348,
        6567402083262354195,
        4829467339542507955,
    ]
