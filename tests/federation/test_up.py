"""A party that stands by: what it must know before it does, as nobody is there to be asked."""

from pathlib import Path

import pytest

from fdml.errors import SettingsError
from fdml.federation.decision_log import Decision
from fdml.federation.up import _text_of, up
from tests.federation.homes import write_homes


def test_a_party_without_a_limit_on_what_others_bring_does_not_stand_by(tmp_path):
    """It consented to any counts, so that a party whose runs it takes could list its ids by guessing them."""
    folder = write_homes(tmp_path, party='[policy]\naccept = "policy"')
    with pytest.raises(SettingsError, match=r"nothing says how many rows another party may bring.*set align\.max_rows"):
        up(folder / "bob" / "party.toml", plain=True, is_over=lambda: True)
    assert not (folder / "bob" / "standing").exists()


def test_a_party_with_a_limit_stands_by(tmp_path):
    folder, said = write_homes(tmp_path, party="[align]\nmax_rows = 100"), []
    up(folder / "bob" / "party.toml", plain=True, on_event=said.append, is_over=lambda: True)
    assert "party 'bob' stands by for runs at 127.0.0.1:7443" in [each.text for each in said]


def test_a_run_that_waits_is_told_with_the_command_that_lets_it_begin_from_any_folder():
    waits = Decision("first", "ab12", "ann", "waits", "policy", "policy.accept", "it asks")
    text = _text_of(waits, Path("shop/bob/party.toml"))
    assert text.endswith("; `fdml runs approve first --party shop/bob/party.toml` or `refuse`")
