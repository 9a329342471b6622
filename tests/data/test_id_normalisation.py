import datetime
import decimal
import unicodedata

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fdml.data.id_normalisation import normalise
from fdml.errors import DataError
from fdml.settings.data import IdSettings

UTC = datetime.UTC
id_settings = st.builds(
    IdSettings,
    trim=st.booleans(),
    case=st.sampled_from(["keep", "lower"]),
    unicode=st.sampled_from(["keep", "NFC", "NFKC"]),
    numbers=st.sampled_from(["typed", "all"]),
)


def spell(values, kind=None, **settings):
    return normalise("user", pa.array(values, kind), IdSettings(**settings)).to_pylist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([7, 12, None]),
        pa.array([7, 12, None], pa.uint8()),
        pa.array([7.0, 12.0, None]),
        pa.array([7.0, 12.0, float("nan")], pa.float32()),
        pa.array([7.0, 12.0, None], pa.float16()),
        pa.array([decimal.Decimal("7.00"), decimal.Decimal("12.00"), None]),
        pa.array([decimal.Decimal("7.00"), decimal.Decimal("12.00"), None], pa.decimal256(50, 2)),
        pa.array(["7", "12", ""]),
        pa.array([" 7", "12\t", "  "], pa.large_string()),
        pa.array(["7", "12", None], pa.string_view()),
        pa.array(["7", "12", None]).dictionary_encode(),
        pa.chunked_array([[7], [12, None]]),
    ],
    ids=lambda column: str(column.type).split("<")[0],
)
def test_an_id_is_spelled_the_same_however_it_is_stored(column):
    spelling = normalise("user", column, IdSettings())
    assert spelling.type == pa.large_string()
    assert spelling.to_pylist() == ["7", "12", None]


def test_a_column_that_is_empty_in_every_row_has_no_ids():
    assert normalise("user", pa.nulls(2), IdSettings()).to_pylist() == [None, None]


def test_zero_has_no_sign():
    assert spell([-0.0, 0.0]) == ["0", "0"]
    assert spell(["-0", "+0", "-0.00", "000"], numbers="all") == ["0"] * 4


def test_whole_numbers_keep_all_their_digits():
    assert spell([2**63 - 1, -(2**63)]) == [str(2**63 - 1), str(-(2**63))]
    assert spell([2**64 - 1], pa.uint64()) == [str(2**64 - 1)]
    assert spell([decimal.Decimal(10**30)]) == [str(10**30)]
    assert spell([2.0**53]) == [str(2**53)]


def test_white_space_is_taken_off_unless_it_is_to_stay():
    assert spell([" a b\u00a0", "\t"]) == ["a b", None]
    assert spell([" a", " "], trim=False) == [" a", " "]


def test_case_is_kept_unless_asked_otherwise():
    assert spell(["Ab", "ÄB"]) == ["Ab", "ÄB"]
    assert spell(["Ab", "ÄB"], case="lower") == ["ab", "äb"]


def test_two_ways_to_write_an_umlaut_are_one():
    assert spell(["a\u0308", "\u00e4"]) == ["\u00e4", "\u00e4"]
    assert spell(["a\u0308"], unicode="keep") == ["a\u0308"]
    assert spell(["\uff17\ufb01"]) == ["\uff17\ufb01"]
    assert spell(["\uff17\ufb01"], unicode="NFKC") == ["7fi"]


@given(st.sampled_from(["NFC", "NFKC"]), st.lists(st.none() | st.text(min_size=1)))
@example("NFC", ["a\u0308", None, "plain", "\u00e4"])
@example("NFC", ["\u1100\u1161\u11a8", "\u0958", "\u212b"])
def test_texts_are_in_the_normal_form_that_unicode_defines_whatever_version_of_pyarrow(form, texts):
    """pyarrow before 26 leaves what should be composed decomposed (Arrow issue 51225)."""
    expected = [None if text is None else unicodedata.normalize(form, text) for text in texts]
    assert spell(texts, pa.string(), unicode=form, trim=False) == expected


def test_lower_case_is_in_normal_form_too():
    """The capital of U+1E96 has no character of its own."""
    assert spell(["H\u0331"], case="lower") == ["\u1e96"]


@pytest.mark.parametrize("text", ["7", "007", "+7", "7.0", "7.000", "+007.0", " 7 "])
def test_text_that_is_a_whole_number_is_written_plainly_where_asked(text):
    assert spell([text], numbers="all") == ["7"]
    assert spell([text]) == [text.strip()]


@pytest.mark.parametrize("text", ["7.5", "7.", ".0", "+-7", "7e0", "0x7", "7 0", "a7", "1,000", "+", "\u0667"])
def test_text_that_is_something_else_stays_as_it_is(text):
    assert spell([text], numbers="all") == [text]


def test_negative_numbers_keep_their_sign():
    assert spell(["-007", "-7.0"], numbers="all") == ["-7", "-7"]
    assert spell([-7]) == spell([-7.0]) == ["-7"]


@given(id_settings, st.lists(st.text() | st.from_regex(r"\A[ +-]?[0-9]{1,4}(\.0{1,2})?\Z")))
@example(IdSettings(case="lower", unicode="NFKC"), ["\u2126", "\u0130", "\u03f4", "\u00a8"])
def test_a_spelled_id_is_spelled_the_same_again(settings, texts):
    once = normalise("user", pa.array(texts, pa.string()), settings)
    assert normalise("user", once, settings).equals(once)


@given(st.lists(st.integers(-(2**53), 2**53)))
def test_numbers_and_their_texts_are_spelled_alike(values):
    expected = [str(value) for value in values]
    assert spell(values, pa.int64()) == expected
    assert spell([float(value) for value in values], pa.float64()) == expected
    assert spell([f"+{value:05d}".replace("+-", "-") for value in values], pa.string(), numbers="all") == expected


def test_dates_and_timestamps_are_written_as_iso():
    day = datetime.date(2026, 11, 15)
    assert spell([day, None]) == ["2026-11-15", None]
    assert spell([day], pa.date64()) == ["2026-11-15"]
    assert spell([datetime.datetime(2026, 11, 15, 10)]) == ["2026-11-15T10:00:00"]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_a_timestamp_is_spelled_the_same_in_every_unit(unit):
    moments = [datetime.datetime(2026, 11, 15, 10, 20, 30), datetime.datetime(2026, 11, 15)]
    assert spell(moments, pa.timestamp(unit)) == ["2026-11-15T10:20:30", "2026-11-15"]


def test_fractions_of_a_second_are_written_only_where_there_are_some():
    moments = [datetime.datetime(2026, 1, 1, 0, 0, 0, 450_000), datetime.datetime(2026, 1, 1, 0, 0, 10)]
    assert spell(moments) == ["2026-01-01T00:00:00.45", "2026-01-01T00:00:10"]


def test_a_timestamp_with_a_zone_is_written_in_utc_and_never_as_a_date():
    paris = pa.timestamp("us", "Europe/Paris")
    moments = [datetime.datetime(2026, 7, 1, 10, tzinfo=UTC), datetime.datetime(2026, 7, 1, tzinfo=UTC), None]
    assert spell(moments, paris) == ["2026-07-01T10:00:00Z", "2026-07-01T00:00:00Z", None]
    assert spell(moments, pa.timestamp("s", "UTC")) == spell(moments, paris)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([True], "bool"), ([[1]], "list"), ([b"x"], "binary"), ([{"a": 1}], "struct"), ([datetime.time(1)], "time64")],
)
def test_what_cannot_be_an_id_names_its_type(values, kind):
    with pytest.raises(DataError, match=f"id column 'user' holds {kind}.*; make it whole numbers, text or dates"):
        spell(values)


@pytest.mark.parametrize(
    ("values", "kind"),
    [([1.0, 2.75, None, 3.75], "double"), ([decimal.Decimal("1.00"), decimal.Decimal("2.75")], "decimal128")],
)
def test_a_fraction_is_refused_by_its_row_and_never_shown(values, kind):
    with pytest.raises(DataError, match=rf"id column 'user' holds {kind}.* with a fraction in \d rows") as caught:
        spell(values)
    assert "among them data rows 2" in str(caught.value)
    assert "75" not in str(caught.value)


@pytest.mark.parametrize(("value", "kind"), [(2.0**53 + 2, "double"), (np.inf, "double"), (2.0**25, "float")])
def test_a_float_too_large_to_tell_whole_numbers_apart_is_refused(value, kind):
    column = pa.array([1.0, value], pa.float64()).cast(pa.float32() if kind == "float" else pa.float64())
    with pytest.raises(DataError, match=rf"holds {kind} beyond \d+ in data rows 2, where .* no longer exact"):
        normalise("user", column, IdSettings())
