from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import PositiveInt

from fdml.data.documents import checked, read_document, write_document
from fdml.errors import DataError


@dataclass(frozen=True)
class Fact:
    name: str
    size: PositiveInt
    share: float | None = None
    parts: tuple[str, ...] = ()


@given(st.floats(allow_nan=False, allow_infinity=False), st.text(st.characters(exclude_categories=["Cs"])))
def test_numbers_keep_all_their_bits_and_texts_all_their_characters(number, text):
    found = read_document(write_document({"layout": 1, "number": number, text: text}), "x", 1)
    assert found[text] == text
    assert math.copysign(1, found["number"]) == math.copysign(1, number) if text != "number" else True
    assert found["number"] == (text if text == "number" else number)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_json_has_no_word_for_is_not_written(number):
    with pytest.raises(ValueError, match="JSON compliant"):
        write_document({"x": number})


@pytest.mark.parametrize(
    "text", ["", "{", b"\xff\x00", '{"layout": 1', '{"x": NaN}', '{"x": -Infinity}', '{"x": 1e999}', "[" * 100_000]
)
def test_a_text_that_is_no_json_is_named(text):
    with pytest.raises(DataError, match=r"the card is no JSON: .*; it is damaged, or no file of fdml"):
        read_document(text, "the card", 1)


@pytest.mark.parametrize("text", ["5", "[]", "{}", '"layout"', "null", '{"other": 1}'])
def test_a_text_without_a_layout_is_no_document(text):
    with pytest.raises(DataError, match="the card has no layout number"):
        read_document(text, "the card", 1)


@pytest.mark.parametrize("layout", ["2", "0", '"1"', "null", "[1]"])
def test_another_layout_is_refused_with_the_one_that_is_read(layout):
    with pytest.raises(
        DataError, match=r"the card has layout .*, this fdml reads layout 1; use the fdml that wrote it"
    ):
        read_document(f'{{"layout": {layout}}}', "the card", 1)


def test_checked_values_become_a_dataclass():
    values = {"name": "a", "size": 3, "parts": ["x", "y"]}
    assert checked(Fact, values, "the fact") == Fact("a", 3, None, ("x", "y"))


@pytest.mark.parametrize(
    ("values", "place"),
    [
        ({"size": 3}, "name"),
        ({"name": "a", "size": 0}, "size"),
        ({"name": "a", "size": "many"}, "size"),
        ({"name": 7, "size": 1}, "name"),
        ({"name": "a", "size": 1, "share": "x"}, "share"),
        ({"name": "a", "size": 1, "parts": ["x", 1]}, "parts.1"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_its_place(values, place):
    with pytest.raises(DataError, match=rf"the fact: {place}: .*; the file is damaged"):
        checked(Fact, values, "the fact")


def test_a_key_too_many_is_named_with_those_that_are_known():
    with pytest.raises(DataError, match="the fact: 'more' is not among name, size, share, parts; the file is damaged"):
        checked(Fact, {"name": "a", "size": 1, "more": 2}, "the fact")
