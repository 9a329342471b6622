"""Settings files: read, refused with the setting and the way out, and written."""

import tomllib
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.settings.file import RENAMED, Settings, read_settings, read_table, written_table

values = st.booleans() | st.integers(-(2**60), 2**60) | st.text('ab"\\\n é', max_size=5) | st.lists(st.integers(0, 9))
tables = st.recursive(
    st.dictionaries(st.text('ab. "', min_size=1, max_size=3), values, min_size=1, max_size=3),
    lambda inner: st.dictionaries(st.text("cd", min_size=1, max_size=2), values | inner, min_size=1, max_size=3),
    max_leaves=4,
)


class Part(Settings):
    rate: float = 0.5
    steps: int | Literal["auto"] = "auto"


class Whole(Settings):
    name: str
    part: Part = Part()


@given(tables)
def test_what_is_written_is_read_again(table):
    assert tomllib.loads(written_table(table)) == table


def test_a_setting_that_is_not_set_is_not_written():
    assert written_table({"a": None, "b": {"c": None, "d": 1}}) == "b.d = 1\n"


def given_file(folder, text):
    path = folder / "whole.toml"
    path.write_text(text)
    return path


def test_a_file_becomes_frozen_values(tmp_path):
    found = read_settings(given_file(tmp_path, 'name = "x"\npart.steps = 3\n'), Whole)
    assert found == Whole(name="x", part=Part(steps=3))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "setting 'name' is missing"),
        ('name = "x"\nnane = 1', "unknown setting 'nane'; did you mean 'name'?"),
        ('name = "x"\nzzz = 1', "unknown setting 'zzz'; known here: name, part"),
        ('name = "x"\npart.rte = 1', r"\[part\] unknown setting 'rte'; did you mean 'rate'"),
        ("name = 3", "setting 'name' is 3: input should be a valid string"),
        ('name = "x"\npart.steps = "few"', r"setting 'part' is 'few': .* or 'auto'|setting 'steps' is 'few'"),
        ('name = "x"\npart.rate = nan', "should be a finite number"),
        ("name = ", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_named_with_the_setting_and_the_way_out(tmp_path, text, message):
    path = given_file(tmp_path, text)
    with pytest.raises(SettingsError, match=message) as refused:
        read_settings(path, Whole)
    assert str(refused.value).startswith(f"{path}: ")


def test_a_file_that_is_taken_for_another_is_told_apart_before_anything_else(tmp_path):
    path = given_file(tmp_path, "party = 1\nzzz = 2")
    with pytest.raises(SettingsError, match=r"this is a party.toml"):
        read_settings(path, Whole, other=("party", "this is a party.toml"))


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_setting_under_its_old_name_is_refused_with_the_new_one(old, new):
    with pytest.raises(SettingsError, match=f"setting '{old}' is now called '{new}'; rename it"):
        Part(**{old: 1})


def test_no_file_and_a_folder_are_said_as_such(tmp_path):
    with pytest.raises(SettingsError, match="there is no file"):
        read_table(tmp_path / "none.toml")
    with pytest.raises(SettingsError, match="is a folder; name the file in it"):
        read_table(tmp_path)
