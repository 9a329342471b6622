import pyarrow as pa
import pytest

from fdml.data.id_profile import IdLook, phone_lines
from fdml.errors import DataError
from fdml.settings_data import IdSettings


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
