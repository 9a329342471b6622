"""`fdml keys` as it is typed: what it prints, what it asks, and what it leaves where."""

import re
import stat
import tomllib

import pytest
from typer.testing import CliRunner

from fdml.cli.app import app_for
from fdml.errors import SettingsError
from tests.cli.commands import call, fail, succeed

FINGERPRINT = re.compile(r"sha256:[0-9a-f]{64}")


def member(folder, name):
    """The folder of one side, with its settings and nothing else."""
    folder = folder / name
    folder.mkdir()
    (folder / "federation.toml").write_text('name = "shop"\nparties = ["store", "browser"]\n')
    if name != "server":
        (folder / "party.toml").write_text(
            f'party = "{name}"\nfederation = "federation.toml"\n[data]\npath = "x.csv"\n'
        )
    return folder / ("federation.toml" if name == "server" else "party.toml")


@pytest.fixture
def sides(tmp_path):
    return {name: member(tmp_path, name) for name in ("store", "browser", "server")}


def keys_of(settings):
    return settings.parent / ("server/keys" if settings.name == "federation.toml" else "keys")


def request_of(settings):
    (found,) = keys_of(settings).glob("*.request.pem")
    return found


def asked(*words, answer):
    return CliRunner().invoke(app_for(["keys"]), ["keys", *map(str, words)], input=answer)


@pytest.fixture
def signed(sides, tmp_path):
    """The fingerprints that each side was told, once all were signed for."""
    told = {}
    for name, settings in sides.items():
        told[name] = FINGERPRINT.search(succeed("keys", "request", settings)).group()
    requests = [request_of(settings) for settings in sides.values()]
    table = succeed("keys", "sign", *requests, "--authority", tmp_path / "authority", "--yes")
    assert tomllib.loads(table)["members"] == told
    for settings in sides.values():
        certificate = request_of(settings).with_name(request_of(settings).name.replace("request", "certificate"))
        assert told[settings.parent.name] in succeed("keys", "install", settings, certificate)
    return told


def test_every_side_makes_its_own_key_and_all_see_the_same_fingerprints(sides, signed, tmp_path):
    for name, settings in sides.items():
        assert signed[name] in succeed("keys", "show", settings)
        assert stat.S_IMODE((keys_of(settings) / "key.pem").stat().st_mode) == 0o600
    for path in (tmp_path / "authority", *(keys_of(settings) for settings in sides.values())):
        assert set(tomllib.loads(succeed("keys", "members", path))["members"].values()) <= set(signed.values())
    everyone = succeed("keys", "members", *(keys_of(settings) for settings in sides.values()))
    assert tomllib.loads(everyone)["members"] == signed


def test_the_table_can_be_put_at_the_end_of_a_file_without_a_last_line_end(signed, tmp_path):
    before = 'parties = ["store", "browser"]'
    table = succeed("keys", "members", tmp_path / "authority")
    assert tomllib.loads(before + table)["members"] == signed


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_nothing_is_signed_unless_someone_has_compared(sides, tmp_path, answer):
    succeed("keys", "request", sides["store"])
    ended = asked("sign", request_of(sides["store"]), "--authority", tmp_path / "authority", answer=answer)
    assert ended.exit_code == 1
    assert list(keys_of(sides["store"]).glob("*.certificate.pem")) == []
    assert FINGERPRINT.search(ended.output)
    assert "by phone?" in ended.output


def test_a_request_with_another_key_than_before_is_pointed_out(sides, signed, tmp_path):
    succeed("keys", "renew", sides["browser"], "--new-key")
    ended = asked("sign", request_of(sides["browser"]), "--authority", tmp_path / "authority", answer="y\n")
    assert ended.exit_code == 0
    assert f"ANOTHER KEY than before ({signed['browser']})" in " ".join(ended.output.split())


def test_a_renewed_certificate_is_not_pointed_out(sides, signed, tmp_path):
    text = succeed("keys", "renew", sides["browser"])
    assert signed["browser"] in text
    ended = asked("sign", request_of(sides["browser"]), "--authority", tmp_path / "authority", answer="y\n")
    assert "ANOTHER KEY" not in ended.output


def test_who_is_revoked_is_shown_as_such_and_falls_out_of_the_table(signed, tmp_path):
    text = succeed("keys", "revoke", "browser", "--authority", tmp_path / "authority")
    assert "browser: 1 certificate revoked" in text
    assert "into the keys folder of the server and of every party" in text
    shown = succeed("keys", "show", tmp_path / "authority")
    assert [line.split()[0] for line in shown.splitlines() if "revoked" in line] == ["browser"]
    assert set(tomllib.loads(succeed("keys", "members", tmp_path / "authority"))["members"]) == {"server", "store"}


def test_days_are_those_of_the_option(sides, tmp_path):
    succeed("keys", "request", sides["store"])
    words = ("--authority", tmp_path / "authority", "--yes", "--days", 7)
    succeed("keys", "sign", request_of(sides["store"]), *words)
    shown = succeed("keys", "show", keys_of(sides["store"]) / "store.certificate.pem")
    assert " good " in shown
    assert call("keys", "sign", request_of(sides["store"]), *words[:3], "--days", 0).exit_code == 2


def test_what_is_not_there_is_named(sides, tmp_path):
    assert "key.pem" in fail(SettingsError, "keys", "renew", sides["store"])
    assert "there is no file" in fail(SettingsError, "keys", "sign", tmp_path / "none.request.pem")
    assert "cannot be read" in fail(SettingsError, "keys", "show", tmp_path / "none.pem")
    assert "certificate.pem" in fail(SettingsError, "keys", "revoke", "x", "--authority", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_help_lists_what_there_is():
    text = succeed("keys", "--help")
    assert all(name in text for name in ("request", "sign", "install", "renew", "revoke", "show", "members"))
