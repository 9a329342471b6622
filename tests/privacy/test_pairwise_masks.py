"""Pairwise masks: they cancel in the sum, and a coalition that lacks one of a pair's two keys learns sums only."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fdml.errors import AlignmentError, MessageRefused, Refusal
from fdml.privacy.masks import Masks
from fdml.privacy.pairwise_masks import PAIRWISE_ID, PairwiseMasks
from fdml.protocol.fixed_point import encode

PARTIES = ("store", "browser", "guard")
TOTAL_KEY = b"t" * 32
GROUP_SECRET = b"g" * 32
DTYPES = (np.int64, np.int32, np.int16)


def key_of(one, other):
    """What two parties share."""
    return ("".join(sorted((one, other))).encode() * 3)[:32].ljust(32, b".")


def masks(party="store", parties=PARTIES, total_key=TOTAL_KEY):
    pair_keys = {other: key_of(party, other) for other in parties if other != party}
    return PairwiseMasks(parties, party, pair_keys=pair_keys, total_key=total_key)


def zeros(size=4, dtype=np.int64):
    return np.zeros((size, 1), dtype)


def masked_sum(values, number=7, purpose="push"):
    parties = tuple(values)
    return sum(masks(party, parties).add(purpose, number, codes) for party, codes in values.items())


@given(st.integers(2, 5), st.sampled_from(DTYPES), st.integers(0, 2**63 - 1), st.integers(0, 2**32), st.data())
def test_a_sum_of_all_parts_is_exact_in_every_ring_and_any_party_opens_it(count, dtype, number, seed, data):
    whole, chance = np.iinfo(dtype), np.random.default_rng(seed)
    parties = tuple("abcde"[:count])
    values = {party: chance.integers(whole.min, whole.max, (3, 2), dtype, endpoint=True) for party in parties}
    total = masked_sum(values, number)
    opener = masks(data.draw(st.sampled_from(parties)), parties)
    found = opener.remove("push", [number] * count, [PAIRWISE_ID] * count, total)
    np.testing.assert_array_equal(found, sum(values.values()))
    assert found.dtype == dtype


def test_the_server_alone_does_not_learn_the_sum_either():
    values = {party: zeros(2000) for party in PARTIES}
    raw = np.frombuffer(masked_sum(values).tobytes(), np.uint8)
    assert stats.chisquare(np.bincount(raw, minlength=256)).pvalue > 1e-4


@pytest.mark.parametrize("purpose", ["push", "held-out"])
@pytest.mark.parametrize("party", PARTIES)
def test_a_party_takes_off_its_own_masks(party, purpose):
    values = encode(np.linspace(-3, 3, 6).reshape(3, 2))
    covered = masks(party).add(purpose, 5, values)
    assert not (covered == values).any()
    np.testing.assert_array_equal(masks(party).remove_own(purpose, 5, PAIRWISE_ID, covered), values)


def test_every_party_purpose_and_number_has_masks_of_its_own():
    seen = {
        masks(party).add(purpose, number, zeros()).tobytes()
        for party in PARTIES
        for purpose in ("push", "held-out")
        for number in range(20)
    }
    assert len(seen) == 3 * 2 * 20


@pytest.mark.parametrize(
    ("numbers", "mask_ids"),
    [
        ((4, 4, 3), (PAIRWISE_ID,) * 3),
        ((4, 4), (PAIRWISE_ID,) * 2),
        ((4, 4, 4), (PAIRWISE_ID, PAIRWISE_ID, 7)),
        ((4, 4, 4), (PAIRWISE_ID,) * 2),
    ],
)
def test_a_sum_in_which_masks_do_not_cancel_is_refused(numbers, mask_ids):
    with pytest.raises(MessageRefused, match="masks of pairs cancel only in a sum of all 3") as refused:
        masks().remove("push", numbers, mask_ids, zeros())
    assert refused.value.refusal is Refusal.INVALID


def test_a_release_under_a_mask_of_another_kind_is_not_taken_for_an_own_one():
    with pytest.raises(MessageRefused, match="another kind of mask; give the run a new name"):
        masks().remove_own("push", 3, 1, zeros())


def test_a_missing_key_names_the_party():
    with pytest.raises(AlignmentError, match=r"no key that it shares with 'guard' alone.*a new name"):
        PairwiseMasks(PARTIES, "store", pair_keys={"browser": b"k" * 32}, total_key=TOTAL_KEY)


# The server together with parties


def known_masks(target, coalition, parties, like, number=7):
    """All of a target's masks that a coalition can compute: of pairs with its members, and of the total."""
    known = like * 0
    if parties.index(target) == 0:
        alone = PairwiseMasks(parties[:1], target, pair_keys={}, total_key=TOTAL_KEY)
        known = known + alone.add("push", number, like * 0)
    for member in coalition:
        pair = tuple(name for name in parties if name in (target, member))
        both = PairwiseMasks(pair, target, pair_keys={member: key_of(target, member)}, total_key=b"x" * 32)
        mask = both.add("push", number, like * 0)
        if pair[0] == target:  # of the two the target is first, so it added the mask of a total
            alone = PairwiseMasks((target,), target, pair_keys={}, total_key=b"x" * 32)
            mask = mask - alone.add("push", number, like * 0)
        known = known + mask
    return known


def view(values, coalition, hidden_pair=None, shift=0):
    """What the server and some parties have of the others' pushes, less all masks that they can compute.

    `shift` is added to what one pair shares: as if its key had given other values.
    """
    parties = tuple(values)
    seen = {}
    for party, codes in values.items():
        if party in coalition:
            continue
        covered = masks(party, parties).add("push", 7, codes)
        if hidden_pair is not None and party in hidden_pair:
            covered = covered + (shift if party == hidden_pair[0] else -shift)
        seen[party] = covered - known_masks(party, coalition, parties, codes)
    return seen


VALUES = {party: encode(np.random.default_rng(place).normal(size=(500, 1))) for place, party in enumerate(PARTIES)}


@pytest.mark.parametrize("member", PARTIES)
def test_server_and_one_of_three_parties_cannot_tell_the_other_two_apart(member):
    """For any two assignments with the same sum there are pair values, equally likely, that give the same view."""
    one, other = (party for party in PARTIES if party != member)
    moved = encode(np.random.default_rng(9).normal(size=(500, 1)))
    swapped = {**VALUES, one: VALUES[one] + moved, other: VALUES[other] - moved}
    seen = view(VALUES, {member})
    consistent = view(swapped, {member}, hidden_pair=(one, other), shift=-moved)
    for party in (one, other):
        np.testing.assert_array_equal(seen[party], consistent[party])
    np.testing.assert_array_equal(seen[one] + seen[other], VALUES[one] + VALUES[other], "they do learn the sum")


@pytest.mark.parametrize("member", PARTIES)
def test_taking_off_all_masks_with_a_partys_keys_works_under_the_group_key_and_fails_under_pairs(member):
    """The attack that privacy.md named: the server together with any one party took off all masks."""
    target = next(party for party in PARTIES if party != member)
    by_group = Masks(GROUP_SECRET, PARTIES, target, 11).add("push", 7, VALUES[target])
    stolen = Masks(GROUP_SECRET, PARTIES, member, 12).remove_one("push", target, 7, 11, by_group)
    np.testing.assert_array_equal(stolen, VALUES[target])
    left = view(VALUES, {member})[target]
    assert not (left == VALUES[target]).any()
    assert abs(np.corrcoef(left[:, 0].astype(float), VALUES[target][:, 0].astype(float))[0, 1]) < 0.2
    raw = np.frombuffer(np.ascontiguousarray(left).tobytes(), np.uint8)
    assert stats.chisquare(np.bincount(raw, minlength=256)).pvalue > 1e-4


def test_any_coalition_of_all_but_two_learns_only_their_sum_and_all_but_one_learns_the_last():
    parties = tuple("abcd")
    values = {party: encode(np.random.default_rng(ord(party)).normal(size=(50, 1))) for party in parties}
    for coalition in combinations(parties, 2):
        left = view(values, set(coalition))
        honest = [party for party in parties if party not in coalition]
        assert all(not (left[party] == values[party]).any() for party in honest)
        np.testing.assert_array_equal(sum(left.values()), sum(values[party] for party in honest))
    left = view(values, set("abc"))
    np.testing.assert_array_equal(left["d"], values["d"])


def test_of_two_parties_each_has_the_others_part_in_any_case_and_the_server_alone_has_nothing():
    values = {party: VALUES[party] for party in PARTIES[:2]}
    total = masked_sum(values)
    opened = masks("browser", PARTIES[:2]).remove("push", [7, 7], [PAIRWISE_ID] * 2, total)
    np.testing.assert_array_equal(opened - values["browser"], values["store"])
    for covered in (total, *(masks(party, PARTIES[:2]).add("push", 7, codes) for party, codes in values.items())):
        raw = np.frombuffer(np.ascontiguousarray(covered).tobytes(), np.uint8)
        assert stats.chisquare(np.bincount(raw, minlength=256)).pvalue > 1e-4
