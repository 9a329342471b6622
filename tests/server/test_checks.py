import numpy as np
import pytest

from fdml.errors import MessageRefused, Refusal
from fdml.protocol.fixed_point import FIXED_POINTS, encode
from fdml.protocol.messages import Release
from fdml.server.checks import check_masked, check_range, check_same, digest_of_values

VALUES = np.arange(6, dtype=np.int64)


def known(release):
    return release.mask_id, digest_of_values(release.values)


def test_a_digest_is_of_the_values_and_their_order():
    assert digest_of_values(VALUES) == digest_of_values(VALUES.copy())
    assert digest_of_values(VALUES) != digest_of_values(VALUES[::-1])
    assert digest_of_values(VALUES.reshape(3, 2).T.copy().T) == digest_of_values(VALUES)


def test_a_resend_may_be_the_same():
    check_same("party 'ann' pushed step 3", Release(VALUES), known(Release(VALUES)))
    check_same("party 'ann' pushed step 3", Release(VALUES, 7), known(Release(VALUES, 7)))


def test_a_resend_under_another_mask_cannot_be_compared():
    check_same("party 'ann' pushed step 3", Release(VALUES + 1, 8), known(Release(VALUES, 7)))


@pytest.mark.parametrize("before", [None, known(Release(VALUES + 1)), known(Release(VALUES + 1, 7))])
def test_other_values_are_refused_with_the_sentence_of_the_caller(before):
    release = Release(VALUES, 0 if before is None else before[0])
    with pytest.raises(MessageRefused, match=r"^party 'ann' pushed step 3 again with other values") as refused:
        check_same("party 'ann' pushed step 3", release, before)
    assert refused.value.refusal is Refusal.CONFLICT


@pytest.mark.parametrize("blind", [False, True])
def test_masks_are_on_exactly_where_the_server_is_blind(blind):
    right, wrong = Release(VALUES, 5 if blind else 0), Release(VALUES, 0 if blind else 5)
    check_masked("party 'ann' pushed", right, blind=blind)
    with pytest.raises(
        MessageRefused, match=r"^party 'ann' pushed (plain|masked) values; the run's server is"
    ) as refused:
        check_masked("party 'ann' pushed", wrong, blind=blind)
    assert refused.value.refusal is Refusal.MISMATCH


@pytest.mark.parametrize("bits", FIXED_POINTS)
@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_code_may_travel_and_no_larger_one(bits, sign):
    grid = FIXED_POINTS[bits]
    most = grid.largest_code(2)
    values = np.array([0, sign * most], grid.dtype)
    check_range("party 'ann' pushed", values, most)
    with pytest.raises(
        MessageRefused, match=r"^party 'ann' pushed a prediction of size .*, lower learning_rate"
    ) as refused:
        check_range("party 'ann' pushed", values, most - 1)
    assert refused.value.refusal is Refusal.INVALID


def test_no_values_are_within_any_range():
    check_range("party 'ann' pushed", np.zeros(0, np.int64), 0)
    check_range("party 'ann' pushed", encode(np.zeros(3)), 0)
