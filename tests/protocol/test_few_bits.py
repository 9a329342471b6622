import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fdml.errors import SettingsError
from fdml.protocol.few_bits import CommonScale, FewBits, added, few_bits_of, own_scale, round_difference
from fdml.settings import PrivacySettings, RunSettings, TrainingSettings

few_bits = st.sampled_from([8, 4, 2])


def run_of(bits, parties=2, staleness=0, **privacy):
    return RunSettings(
        parties=tuple(f"p{number}" for number in range(parties)),
        label_party="p0",
        training=TrainingSettings(value_bits=bits, staleness=staleness),
        privacy=PrivacySettings(**privacy),
    )


@pytest.mark.parametrize("bits", [64, 32, 16])
def test_from_16_bits_on_predictions_travel_whole(bits):
    assert few_bits_of(run_of(bits)) is None


def test_a_run_in_step_has_totals_of_few_bits():
    assert few_bits_of(run_of(4)) == FewBits(4, 2, in_step=True, blind=False)
    assert few_bits_of(run_of(4, server="blind")) == FewBits(4, 2, in_step=True, blind=True)


def test_parties_that_do_not_have_the_same_totals_choose_for_themselves():
    assert not few_bits_of(run_of(4, staleness=1)).in_step
    assert not few_bits_of(run_of(4, labels="private")).in_step


@pytest.mark.parametrize(
    ("bits", "parties", "ring"),
    [(4, 2, 4), (4, 3, 5), (4, 5, 6), (2, 2, 2), (2, 3, 3), (8, 2, 8), (8, 3, 9), (4, 1, 4)],
)
def test_a_sum_has_room_for_the_codes_of_the_others(bits, parties, ring):
    few = FewBits(bits, parties, blind=True)
    assert few.ring_bits == few.push_bits == ring
    assert FewBits(bits, parties).push_bits == bits
    most = (parties - 1) * few.limit
    assert -(2 ** (ring - 1)) <= -most <= most <= 2 ** (ring - 1) - 1


def test_more_parties_than_their_sums_have_room_for_are_refused():
    assert few_bits_of(run_of(8, parties=200)).ring_bits == 16
    with pytest.raises(SettingsError, match=r"value_bits = 8 has no room for the sums of 400 parties.*value_bits = 16"):
        few_bits_of(run_of(8, parties=400))


@given(
    few_bits,
    arrays(np.int16, 20, elements=st.integers(-9000, 9000)),
    arrays(np.int16, 20, elements=st.integers(-9000, 9000)),
    st.data(),
)
def test_a_difference_is_the_nearest_of_its_steps_that_may_travel(bits, wanted, held, data):
    few, most = FewBits(bits, 2), 9000
    scale = data.draw(st.integers(0, few.largest_scale))
    codes = round_difference(wanted, held, scale, few.limit, most)
    after = held.astype(np.int64) + (codes.astype(np.int64) << scale)
    assert np.abs(codes).max() <= few.limit
    assert np.abs(after).max() <= most
    np.testing.assert_array_equal(added(held, codes, scale), after)
    every = held[:, None] + (np.arange(-few.limit, few.limit + 1) << scale)[None, :].astype(np.int64)
    away = np.where(np.abs(every) <= most, np.abs(every - wanted[:, None]), 10**6)
    np.testing.assert_array_equal(np.abs(after - wanted), away.min(axis=1))


@pytest.mark.parametrize("bits", [8, 4, 2])
def test_what_a_rounding_leaves_out_comes_with_the_next(bits):
    """Error feedback: the same prediction pushed again and again arrives in full, whatever the scale was."""
    few, random = FewBits(bits, 2), np.random.default_rng(bits)
    wanted, held = random.integers(-4000, 4000, 500).astype(np.int16), np.zeros(500, np.int16)
    scales = []
    for _ in range(60):
        scales.append(own_scale(few, wanted, held))
        held = added(held, round_difference(wanted, held, scales[-1], few.limit, 16000), scales[-1])
    np.testing.assert_array_equal(held, wanted)
    assert scales[0] > scales[-1] == 0


@given(few_bits, arrays(np.int32, st.integers(1, 30), elements=st.integers(-32000, 32000)), st.integers(1, 4))
def test_a_scale_is_the_smallest_whose_step_is_not_too_fine(bits, moved, parts):
    few = FewBits(bits, 2)
    scale, square = few.scale_for(moved, parts), float((moved.astype(np.float64) ** 2).mean()) / parts
    share = {8: 1 / 64, 4: 1 / 2, 2: 4.0}[bits]
    assert 0 <= scale <= few.largest_scale
    assert scale == few.largest_scale or 4**scale >= share * square * (1 - 1e-12)
    assert scale == 0 or 4 ** (scale - 1) <= share * square * (1 + 1e-12)
    own = own_scale(few, (moved // 2).astype(np.int16), np.zeros(len(moved), np.int16))
    assert own <= few.scale_for(moved // 2)
    assert own == 0 or few.limit << (own - 1) < np.abs(moved // 2).max(), "no coarser than the largest needs"


def test_a_common_scale_grows_at_once_and_falls_slowly():
    common = CommonScale(FewBits(4, 2))
    first = common.scale
    for fallen in range(1, first + 1):
        common.learn(np.zeros((5, 1), np.int32))
        assert common.scale == first - fallen
    common.learn(np.zeros((5, 1), np.int32))
    assert common.scale == 0
    common.learn(np.full((5, 1), 4096, np.int32))
    assert common.scale == 11, "half of what it has moved by, as one of two parts has moved by less"
    common.learn(np.array([[4096]] + [[0]] * 999, np.int32))
    assert common.scale == 10, "one row in many is not what the scale goes by"


@given(arrays(np.int32, (6, 2), elements=st.integers(-30000, 30000)))
def test_a_common_scale_follows_from_the_total_alone(moved):
    one, other = CommonScale(FewBits(4, 3)), CommonScale(FewBits(4, 3, blind=True))
    one.learn(moved)
    other.learn(moved[::-1].copy())
    assert one.scale == other.scale
