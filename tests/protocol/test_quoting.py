"""Finding 9: text of another side is cut and cannot steer a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.protocol.quoting import MOST_SHOWN, quoted, shown

anything = st.text(st.characters(exclude_categories=["Cs"]))


@given(anything)
def test_a_quoted_name_is_one_short_line_of_letters(text):
    assert quoted(text).isprintable()
    assert len(quoted(text[:80])) <= 10 * 80 + 2


@pytest.mark.parametrize("length", [80, 81, 20 * 2**20])
def test_a_quoted_name_has_at_most_eighty_letters(length):
    assert len(quoted("x" * length)) == 82
    assert quoted("x" * length).endswith("...'" if length > 80 else "xxx'")


def test_a_short_name_is_quoted_as_it_is():
    assert quoted("store") == "'store'"


@given(anything)
def test_what_is_shown_is_one_line_of_letters(text):
    assert shown(text).isprintable()


@given(st.text("abc [/]é", max_size=MOST_SHOWN))
def test_plain_text_is_shown_as_it_is(text):
    assert shown(text) == text


def test_long_text_is_cut_and_control_characters_are_written_out():
    assert shown("\x1b[31mred\r\n") == r"\x1b[31mred\r\n"
    assert shown("\u202egnihtyna") == r"\u202egnihtyna", "text that turns the direction of writing round"
    assert len(shown("x" * 1000)) == MOST_SHOWN
    assert shown("x" * 1000, 10) == "xxxxxxx..."
