"""A file without a line of names: its first row is in no error and in no output."""

import pytest

from fdml.data.column_roles import roles_of
from fdml.errors import DataError
from fdml.settings.data import DataSettings
from tests.data.test_profile import profiled

NAMES = ["user", "age", "city", "income", "share"]

PEOPLE = "Ann,Meyer,Oslo,nurse,yes\nBea,Ng,Oslo,nurse,no\nCid,Roy,Bonn,baker,yes\n"
"""Rows without a line of names, most of whose cells look like names of columns."""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "3 of 5 names that look like data"),
        ({"id": "customer"}, "3 of 5 names that look like data"),
        ({"id": "customer", "label": "paid"}, "3 of 5 names that look like data"),
    ],
)
def test_a_first_line_of_words_that_stand_in_rows_below_is_not_printed(tmp_path, settings, said):
    found = profiled(tmp_path, PEOPLE, **settings)
    (fault,) = found.all_faults
    assert said in fault
    assert found.columns == ()
    assert not any(word in fault for word in ("Ann", "Meyer", "Oslo", "nurse"))


def test_a_first_line_without_any_column_that_the_settings_name_is_not_printed(tmp_path):
    text = "Ann,Meyer,Oslo,nurse\nBea,Ng,Rome,cook\nCid,Roy,Bonn,baker\n"
    found = profiled(tmp_path, text, id="customer", label="paid")
    (fault,) = found.all_faults
    assert "none of the columns that [data] names is there (paid, customer)" in fault
    assert "Ann" not in fault
    assert found.columns == ()


def test_a_column_that_has_its_own_name_in_a_row_is_no_row(tmp_path):
    found = profiled(tmp_path, "id,colour,red\nu1,red,yes\nu2,blue,red\n", id="id")
    assert (found.all_faults, len(found.columns)) == ([], 3)


@pytest.mark.parametrize(
    ("names", "settings"),
    [
        (["Ann", "Oslo", "nurse"], {"id": "user", "label": "income"}),
        (["Ann", "Oslo", "34"], {"id": "user"}),
        (["user_1", "34", "34"], {"id": "user_id", "label": "income"}),
    ],
)
def test_a_row_in_the_place_of_names_is_not_quoted(names, settings):
    """Whose file lacks its first line would else print a person's row."""
    with pytest.raises(DataError, match=r"none of the columns that \[data\] names is there") as error:
        roles_of(names, DataSettings(path="unused", **settings))
    assert not any(name in str(error.value) for name in names)


@pytest.mark.parametrize("settings", [{"id": "usr"}, {"id": "usr", "label": "incme"}, {"id": "customer"}])
def test_misspelt_names_are_told_with_those_that_are_there(settings):
    with pytest.raises(DataError, match="there are: user, age, city, income, share"):
        roles_of(NAMES, DataSettings(path="unused", **settings))
