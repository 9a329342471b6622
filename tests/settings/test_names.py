"""Names of federations, runs, parties and versions: they become folders, certificates and lines of a log."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fdml.errors import SettingsError
from fdml.settings.names import (
    LONGEST_NAME,
    check_keys,
    check_members,
    check_name,
    check_parties,
    check_party_names,
    check_version,
    is_name,
    is_version,
)

PARTIES = ("store", "browser")
KEY, OTHER, THIRD = (f"sha256:{digit * 64}" for digit in "abc")
MEMBERS = {"server": KEY, "store": OTHER, "browser": THIRD}


@given(st.text(max_size=12))
def test_no_name_has_what_a_path_or_a_terminal_takes_for_more(text):
    if is_name(text):
        assert re.fullmatch(r"[\x20-\x7e]+", text)
        assert not {"/", "\\", "~", ":"} & set(text)
        assert text[0] not in ".- "
        assert text[-1] != " "


@pytest.mark.parametrize("name", ["a", "7", "shop.2026-11", "the first run", "A_b", "x" * LONGEST_NAME])
def test_usual_names_are_names(name):
    assert is_name(name)
    check_name("run name", name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "-v", "a/b", "a  b", "a ", "é", "a\n", "x" * (LONGEST_NAME + 1)]
)
def test_others_are_refused_by_what_they_were_to_name(name):
    with pytest.raises(SettingsError, match=r"^run name .* cannot name a folder; use at most 64 letters"):
        check_name("run name", name)


def test_a_name_that_is_far_too_long_is_not_repeated_whole():
    with pytest.raises(SettingsError) as refused:
        check_name("run name", "x" * 10_000)
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize("text", ["0" * 32, "0123456789abcdef" * 2])
def test_a_version_is_32_digits(text):
    assert is_version(text)
    check_version("from", text)
    check_version("from", None)


@pytest.mark.parametrize("text", ["", "promoted", "0" * 31, "0" * 33, "A" * 32, f"{'0' * 32}\n"])
def test_what_is_no_version_is_refused_with_where_versions_are_listed(text):
    assert not is_version(text)
    with pytest.raises(
        SettingsError, match=r"evaluation.against is .*; give a version.*`fdml runs versions` lists them"
    ):
        check_version("evaluation.against", text)


@pytest.mark.parametrize("role", ["server", "authority"])
def test_no_party_has_the_name_of_another_role(role):
    with pytest.raises(SettingsError, match=f"party name '{role}' is taken"):
        check_party_names(("store", role))


def test_the_first_name_that_is_there_twice_is_said():
    with pytest.raises(SettingsError, match="party 'a' is listed twice"):
        check_party_names(("b", "a", "b", "a"))


def test_the_label_party_is_a_party():
    check_parties(PARTIES, "browser")
    with pytest.raises(SettingsError, match="label_party 'bank' is not among the parties store, browser"):
        check_parties(PARTIES, "bank")


def test_members_are_none_or_the_server_and_all_parties():
    check_members({}, PARTIES)
    check_members(MEMBERS, PARTIES)


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_that_is_missing_is_named(name):
    with pytest.raises(SettingsError, match=rf"\[members\] lacks '{name}'; `fdml keys members` prints"):
        check_members({other: key for other, key in MEMBERS.items() if other != name}, PARTIES)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"bank": "sha256:" + "d" * 64}, r"\[members\] names 'bank', which is neither a party nor the server"),
        ({"browser": OTHER}, r"two of the \[members\] have the same key; each makes its own"),
    ],
)
def test_a_member_too_many_and_a_key_of_two_are_refused(more, message):
    with pytest.raises(SettingsError, match=message):
        check_members({**MEMBERS, **more}, PARTIES)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"bank": ("id",)}, r"\[keys\] names 'bank', which is not among the parties"),
        ({"store": ("id",)}, r"\[keys\] names the label party 'store'"),
        ({"browser": ("day", "day")}, r"\[keys\] of party 'browser' names a column twice"),
    ],
)
def test_keys_lead_from_the_label_party_to_others_by_distinct_columns(keys, message):
    check_keys({"browser": ("day", "hour")}, PARTIES, "store")
    with pytest.raises(SettingsError, match=message):
        check_keys(keys, PARTIES, "store")
