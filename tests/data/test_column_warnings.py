import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.column_warnings import ColumnLook

ROWS = 1_000
RANDOM = np.random.default_rng(3)


def warned(values, **options):
    """The warnings of a column that comes in three batches."""
    look = ColumnLook()
    column = values if isinstance(values, pa.Array) else pa.array(values)
    third = len(column) // 3
    for start in (0, third, 2 * third):
        look.add(column.slice(start, third if start < 2 * third else None))
    return " | ".join(look.warnings(**options))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (RANDOM.choice(np.arange(101, 999, 9), ROWS), "whole numbers of 3 digits that repeat, taken as a number"),
        (np.arange(ROWS) + 5_000, "another whole number in (almost) every row, like an id"),
        (RANDOM.choice([20250101, 20250228, 20251231], ROWS), "dates written as numbers"),
        ([f"u{number}" for number in range(ROWS)], "another text in (almost) every row"),
        ([f"the {n % 300} quick brown fox" for n in range(ROWS)], "free text of 5 words, 300 different ones"),
        ([f"level{number % 400 + 400 * (number % 7)}" for number in range(9_000)], "2,800 categories, a feature each"),
        (["1,25"] * 950 + ["none"] * 50, "numbers with a decimal comma, as text (5.0% of its values are none)"),
        (["3.4%"] * 950 + ["n/a"] * 50, "numbers with a percent sign, as text"),
        (["12"] * 500 + ["13.5"] * 460 + ["?"] * 40, "numbers, as text (4.0% of its values are none"),
        (["15.11.2026"] * 500 + ["16.11.2026"] * 500, "dates written as text"),
        (["M", "m", "male", "F", "female"] * 200, "5 categories, 4 if case and white space are left out"),
        (["m", "male", "f", "female"] * 250, "4 categories, some the beginning of others"),
        ([7.5] * ROWS, "the same in every row"),
        ([None] * 600 + [1.5, 2.5] * 200, "missing in 60% of the rows"),
        (pa.array([None] * ROWS, pa.float64()), "no row has a value"),
    ],
)
def test_what_is_probably_not_meant_so_is_said(values, words):
    assert words in warned(values)


@pytest.mark.parametrize(
    "values",
    [
        RANDOM.integers(18, 95, ROWS),
        RANDOM.choice([0, 1], ROWS),
        RANDOM.integers(1950, 2020, ROWS),
        RANDOM.normal(size=ROWS),
        RANDOM.integers(0, 40_000, 100 * ROWS),
        RANDOM.choice(["red", "green", "blue"], ROWS),
        [True, False] * 500,
    ],
    ids=["ages", "flags", "years", "reals", "amounts", "colours", "bools"],
)
def test_usual_columns_are_not_warned_of(values):
    assert warned(values) == ""


def test_what_settings_say_is_meant():
    codes = RANDOM.choice(np.arange(101, 999, 9), ROWS)
    assert warned(codes, categorical=True) == ""
    assert warned(["2026-01-01", "2026-01-02"] * 500, categorical=True) == ""


def test_words_of_one_letter_are_words():
    assert "free text of 5 words" in warned([f"a b c d {number % 300}" for number in range(ROWS)])


@pytest.mark.parametrize(
    "values",
    [[1e300, 2.0, 3.0], pa.array([2**64 - 1, 2**64 - 2, 5], pa.uint64()), [float("inf"), 1.0, 2.0], [-20250101] * 3],
    ids=["huge", "unsigned", "infinite", "negative"],
)
def test_numbers_that_no_date_can_be_are_looked_at_without_a_complaint(values):
    assert "dates" not in warned(values)


@pytest.mark.parametrize("number", [17991231, 20251301, 20250132, 20250001, 20250100, 21010101])
def test_one_number_that_is_no_day_makes_the_column_none_of_dates(number):
    assert "dates written as numbers" in warned([20250101, 21001231, 18000101])
    assert "dates" not in warned([20250101, 20250102, number])


def test_a_date_as_a_number_that_is_the_same_everywhere_is_only_the_same():
    assert warned([20250101] * 9) == "the same in every row: nothing can be learned from it"


@pytest.mark.parametrize("rows", [99, 100])
def test_values_that_all_differ_say_something_from_100_rows_on(rows):
    for values in (np.arange(rows) * 7 + 1, [f"u{number}x" for number in range(rows)]):
        assert ("in (almost) every row" in warned(values)) is (rows == 100)


def test_codes_are_told_from_years_prices_and_columns_with_a_zero():
    codes = np.array([1234, 5678, 9012] * 40)
    assert "whole numbers of 4 digits that repeat" in warned(codes)
    for other in (codes - 1234, -codes, np.array([1999, 2005, 2011] * 40), codes + 0.5, np.array([999, 1000, 5] * 40)):
        assert warned(other) == ""


def test_missing_numbers_and_texts_are_counted_in_every_batch():
    look = ColumnLook()
    for batch in ([None, 1.5], [float("nan"), 2.5], [3.5]):
        look.add(pa.array(batch, pa.float64()))
    assert (look.rows, look.missing, look.present) == (5, 2, 3)
    texts = ColumnLook()
    texts.add(pa.array(["", None, "a"]))
    assert (texts.rows, texts.missing) == (3, 2)
    assert "missing in 67% of the rows" in texts.warnings()


def test_half_of_the_rows_without_a_value_is_worth_a_word_and_less_is_not():
    assert "missing in 50% of the rows" in warned([None, 1.5, None, 2.5])
    assert "missing" not in warned([None, 1.5, 3.5, 2.5, None])


def test_a_column_of_lists_is_counted_and_left_to_the_fit():
    look = ColumnLook()
    look.add(pa.array([[1], None, [2]]))
    assert (look.rows, look.missing, look.warnings()) == (3, 1, [])


@pytest.mark.parametrize("share", [0.89, 0.91])
@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("2026-11-15T10:00", "dates written as text"),
        ("1.234,5", "decimal comma"),
        ("+3 %", "percent sign"),
        ("-1.5e3", "numbers, as text"),
    ],
)
def test_a_shape_is_said_from_nine_in_ten_values_on(cell, words, share):
    count = round(share * 100)
    cells = [cell] * count + ["none"] * (100 - count)
    assert (words in warned(cells)) is (share > 0.9)


@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_text_is_looked_at_however_it_is_stored(kind):
    column = pa.array(["Red", "red ", "blue"] * 40)
    stored = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    assert "3 categories, 2 if case and white space are left out" in warned(stored)


def test_categories_are_compared_while_they_are_few():
    few = [f"c{number}" for number in range(49)]
    assert "if case and white space" in warned([*few, "C0"] * 3)
    assert "if case and white space" not in warned([*few, "C0", "c50"] * 3)


@given(st.lists(st.none() | st.text(max_size=12), min_size=1, max_size=30))
def test_no_warning_quotes_a_value(values):
    marked = [value if value is None else f"\u2603{value}" for value in values]
    assert "\u2603" not in warned(pa.array(marked, pa.string()))
