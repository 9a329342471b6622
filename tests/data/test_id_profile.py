import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.data.id_profile import IdLook, phone_lines
from fdml.errors import DataError
from fdml.settings.data import IdSettings


def profile_of(*columns, settings=None, batch=3):
    names = tuple(f"id{number}" for number in range(len(columns)))
    table = pa.table(dict(zip(names, columns, strict=True)))
    look = IdLook(names, settings or IdSettings())
    for each in table.to_batches(max_chunksize=batch):
        look.add(each)
    return look.profile()


def test_lengths_patterns_and_leading_zeros():
    found = profile_of(["0000102080", "0000102081", "0700102082", "1700102083"])
    assert (found.shortest, found.longest, found.leading_zeros) == (10, 10, 3)
    assert [(each.text, each.rows) for each in found.patterns] == [("10 digits", 4)]
    assert "3 ids begin with a zero" in found.warnings[0]
    assert 'numbers = "all"' in found.warnings[0]


def test_the_most_frequent_pattern_comes_first():
    found = profile_of(["user-03341", "user-03342", "k 7", "x"])
    assert [each.text for each in found.patterns] == [
        "4 letters, 1 sign, 5 digits",
        "1 letter, 1 space, 1 digit",
        "1 letter",
    ]
    assert "3 patterns" in found.warnings[-1]


def test_duplicates_and_missing_ids_are_two_faults_at_once():
    found = profile_of(["a", None, "b", "a", "", "b"])
    assert len(found.faults) == 2
    assert found.faults[0].startswith("2 of 6 rows have no id, among them data rows 2, 5")
    assert "2 rows with a duplicate id (of 6), among them data rows 4, 6" in found.faults[1]


def test_what_settings_drop_is_counted_and_no_fault():
    found = profile_of(["a", None, "a"], settings=IdSettings(duplicates="first", missing="drop"))
    assert found.faults == ()
    assert (found.counts.missing, found.counts.repeated) == (1, 1)


def test_ids_are_counted_as_they_are_after_normalisation():
    found = profile_of([" 7", "7 ", "8"])
    assert (found.trimmed, found.counts.repeated, found.longest) == (2, 1, 1)
    as_numbers = profile_of(["007", "7"], settings=IdSettings(numbers="all"))
    assert (as_numbers.leading_zeros, as_numbers.counts.repeated) == (0, 1)
    untrimmed = profile_of([" 7", "7 "], settings=IdSettings(trim=False))
    assert "set [data.ids] trim = true" in " ".join(untrimmed.warnings)


def test_whole_numbers_say_that_they_have_no_leading_zeros():
    found = profile_of(pa.array([7, 80, 900]))
    assert found.stored_as == "whole numbers"
    assert "stored as numbers, so have no leading zeros" in found.warnings[0]


def test_several_columns_make_one_id():
    found = profile_of(["a", "a", "b"], pa.array([1, 2, 1]))
    assert found.counts.repeated == 0
    assert found.patterns[0].text == "1 letter, 1 sign, 1 digit"


def test_a_column_that_cannot_be_an_id_is_an_error():
    with pytest.raises(DataError, match="with a fraction in 1 rows"):
        profile_of(pa.array([1.5, 2.0]))


def test_the_lines_for_the_phone_hold_no_id():
    ids = [f"0{number:09d}" for number in range(137_000, 137_050)]
    text = "\n".join(phone_lines(profile_of(ids)))
    assert "10 digits (50 rows)" in text
    assert not any(each in text for each in ids)


def test_many_patterns_are_counted_not_listed():
    found = profile_of(["a" * length for length in range(1, 30)])
    assert "and 24 more" in phone_lines(found)[1]


@pytest.mark.parametrize("space", ["\u00a0", "\u2003", "\t", " "])
def test_white_space_of_every_kind_that_is_taken_off_is_counted(space):
    found = profile_of([f"{space}7", f"8{space}", f"{space}9{space}", "1"])
    assert (found.trimmed, found.longest) == (3, 1)
    assert found.warnings[-1] == "3 ids have white space around them, which is taken off"


def test_white_space_inside_an_id_is_none_around_it():
    found = profile_of(["a 1", "b 2"])
    assert found.trimmed == 0
    assert found.patterns[0].text == "1 letter, 1 space, 1 digit"


def test_a_look_without_a_batch_has_nothing_to_tell():
    look = IdLook(("id",), IdSettings())
    assert look.is_empty
    look.add(pa.record_batch({"id": ["a"]}))
    assert not look.is_empty


def test_rows_that_all_lack_an_id_have_no_length_and_no_pattern():
    found = profile_of(pa.array([None, None], pa.string()))
    assert (found.shortest, found.longest, found.patterns) == (0, 0, ())
    assert phone_lines(found)[1] == "patterns: none"
    assert len(found.faults) == 1


def test_an_id_that_lacks_one_of_its_columns_is_missing():
    found = profile_of(["a", "a", None], pa.array([1, None, 1]))
    assert (found.counts.rows, found.counts.missing, found.counts.repeated) == (3, 2, 0)
    assert found.stored_as == "text, whole numbers"


@pytest.mark.parametrize(
    ("column", "stored"),
    [
        (pa.array([1.0, 2.0]), "double"),
        (pa.array(["a", "b"]).dictionary_encode(), "text"),
        (pa.array([1, 2], pa.uint8()), "whole numbers"),
        (pa.array([0, 1], pa.date32()), "date32[day]"),
    ],
)
def test_the_type_that_ids_are_stored_as_is_told(column, stored):
    assert profile_of(column).stored_as == stored


def test_numbers_written_alike_everywhere_are_not_warned_of():
    found = profile_of(pa.array([7, 80, 900]), settings=IdSettings(numbers="all"))
    assert not any("leading zeros" in text for text in found.warnings)
    assert (found.shortest, found.longest) == (1, 3)


def test_a_zero_alone_does_not_begin_with_one():
    assert profile_of(["0", "00", "0a", "10"]).leading_zeros == 1


def test_letters_of_every_script_are_letters():
    found = profile_of(["\u00e9\u00df", "\u4e2d\u6587"])
    assert [(each.text, each.rows) for each in found.patterns] == [("2 letters", 2)]


def test_an_id_of_many_runs_is_told_by_their_number():
    assert profile_of(["a1" * 6]).patterns[0].text == "12 characters in 12 runs"


@given(st.lists(st.none() | st.text("aB0 -", max_size=5), min_size=1, max_size=12), st.integers(1, 5))
def test_a_profile_is_the_same_however_the_rows_are_cut(ids, batch):
    column = pa.array(ids, pa.string())
    cut, whole = profile_of(column, batch=batch), profile_of(column, batch=100)
    assert (cut.counts, cut.shortest, cut.longest, cut.trimmed) == (
        whole.counts,
        whole.shortest,
        whole.longest,
        whole.trimmed,
    )
    assert {each.text: each.rows for each in cut.patterns} == {each.text: each.rows for each in whole.patterns}
    assert sum(each.rows for each in cut.patterns) == cut.counts.rows - cut.counts.missing
