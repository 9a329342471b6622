import numpy as np
import pyarrow as pa
import pytest

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
