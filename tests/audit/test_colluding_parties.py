"""Parties that put together every masked part they have, with all keys that they know: at a host, or without a server."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fdml.privacy.pairwise_masks import PairwiseMasks
from fdml.protocol.fixed_point import decode, encode

PARTIES = ("ann", "bob", "cat", "dan", "eve")
STEPS, BLOCK = 20, 500
TOTAL_KEY = b"the key of the mask of the total"


def pair_keys(parties):
    """By party: its key with each other one."""
    drawn = {pair: bytes([number + 1]) * 32 for number, pair in enumerate(itertools.combinations(parties, 2))}
    return {
        party: {other: drawn[tuple(sorted((party, other), key=parties.index))] for other in parties if other != party}
        for party in parties
    }


def transcript(parties):
    """Every part of a run as all parties have it without a server, and as it was before its masks."""
    chance, keys, masked, plain = np.random.default_rng(5), pair_keys(parties), {}, {}
    for party in parties:
        masks = PairwiseMasks(parties, party, pair_keys=keys[party], total_key=TOTAL_KEY)
        for step in range(STEPS):
            plain[party, step] = encode(chance.normal(scale=3.0, size=BLOCK))
            masked[party, step] = masks.add("push", step, plain[party, step])
    return masked, plain


def without_known_masks(parties, party, colluding, step, codes):
    """A part without the masks whose keys some of the others have."""
    known = {other: pair_keys(parties)[party][other] for other in colluding}
    unknown = {other: bytes(32) for other in parties if other not in (party, *colluding)}
    zeros = PairwiseMasks(parties, party, pair_keys={**known, **unknown}, total_key=TOTAL_KEY)
    guessed = zeros.remove_own("push", step, zeros.mask_id, codes)
    for other in unknown:  # what was taken off for a key that nobody of them has is put back
        first = parties.index(party) < parties.index(other)
        pair = (party, other) if first else (other, party)
        alone = PairwiseMasks(pair, party, pair_keys={other: bytes(32)}, total_key=TOTAL_KEY)
        mask = alone.add("push", step, codes * 0)
        if first:
            mask = mask - _total_mask(parties, step, codes)
        guessed = guessed + mask
    return guessed


def _total_mask(parties, step, codes):
    """The mask of the total, which every party can take off."""
    alone = PairwiseMasks(("x",), "x", pair_keys={}, total_key=TOTAL_KEY)
    return alone.add("push", step, codes * 0)


@pytest.mark.parametrize("count", [3, 4, 5])
def test_all_but_two_parties_with_every_masked_part_tell_nothing_but_the_sum_of_the_rest(count):
    parties = PARTIES[:count]
    masked, plain = transcript(parties)
    for honest in itertools.combinations(parties, 2):
        colluding = [name for name in parties if name not in honest]
        left = {
            (party, step): without_known_masks(parties, party, colluding, step, masked[party, step])
            for party in honest
            for step in range(STEPS)
        }
        for party in honest:
            seen = np.concatenate([left[party, step] for step in range(STEPS)]).astype(np.float64)
            true = np.concatenate([plain[party, step] for step in range(STEPS)]).astype(np.float64)
            assert abs(np.corrcoef(seen, true)[0, 1]) < 4 / np.sqrt(len(true)), (colluding, party)
            above = np.mean((seen > 0) == (true > 0))
            assert abs(above - 0.5) < 4 * 0.5 / np.sqrt(len(true)), (colluding, party)
        for step in range(STEPS):
            both = sum(left[party, step] for party in honest)
            np.testing.assert_array_equal(both, sum(plain[party, step] for party in honest))


@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_but_one_party_tell_its_part_exactly(count):
    """So the test above looks at what can be told: with one key more it is all there."""
    parties = PARTIES[:count]
    masked, plain = transcript(parties)
    for party in parties:
        colluding = [name for name in parties if name != party]
        found = without_known_masks(parties, party, colluding, 7, masked[party, 7])
        np.testing.assert_array_equal(found, plain[party, 7])
        assert np.abs(decode(found)).max() < 30
