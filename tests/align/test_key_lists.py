import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fdml.align.key_lists import FoundRows, KeyList


def keys(*numbers):
    return np.array([[number] * 16 for number in numbers], np.uint8).reshape(-1, 16)


def places(*numbers):
    return np.array(numbers, np.int64)


def test_a_place_never_changes_and_a_key_that_comes_back_has_a_new_one():
    first = KeyList.of(keys(5, 3, 9))
    second = first.after(places(1), keys(7))
    third = second.after(places(), keys(3))
    assert third.find(keys(5, 3, 9, 7)).tolist() == [0, 4, 2, 3]
    assert second.find(keys(3)).tolist() == [-1], "it has gone"
    assert (first.present, second.present, third.present) == (3, 3, 4)


def test_only_keys_that_are_there_may_go():
    known = KeyList.of(keys(5, 3, 9)).after(places(1), keys())
    assert known.may_go(places(0, 2))
    assert known.may_go(places())
    assert not known.may_go(places(1))
    assert not known.may_go(places(3))


def test_nothing_is_found_in_an_empty_list_and_no_key_anywhere():
    assert KeyList.of(keys()).find(keys(1)).tolist() == [-1]
    assert KeyList.of(keys(1)).find(keys()).tolist() == []


@given(st.data())
def test_places_are_found_as_a_dictionary_finds_them(data):
    known = data.draw(st.lists(st.integers(0, 40), unique=True))
    asked = data.draw(st.lists(st.integers(0, 40), unique=True))
    gone = data.draw(st.lists(st.sampled_from(range(len(known))), unique=True)) if known else []
    listed = KeyList.of(keys(*known)).after(places(*sorted(gone)), keys())
    expected = {key: at for at, key in enumerate(known) if at not in gone}
    assert listed.find(keys(*asked)).tolist() == [expected.get(key, -1) for key in asked]


def test_rows_that_leave_keep_their_number():
    found = FoundRows.of(4).after(places(1, 2), 3)
    assert found.sizes == (4, 3)
    assert found.left.tolist() == [False, True, True, False, False, False, False]
    assert found.present == 5
    assert found.may_leave(places(0, 6))
    assert not found.may_leave(places(1))
    assert not found.may_leave(places(7))
    assert not found.may_leave(places(0, 0))
