import pytest

from fdml.errors import ServerUnreachable, SettingsError
from fdml.federation.key_files import members_table, write_credentials
from fdml.federation.status import status
from tests.end_to_end.served import served


def write_run(folder, address, members=None):
    path = folder / "run.toml"
    text = f'name = "e2e"\nserver = "{address}"\nparties = ["ann", "bob"]\nlabel_party = "ann"\n'
    path.write_text(text + (members_table(members) if members else ""))
    return path


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with served(tmp_path_factory.mktemp("secure")) as run:
        yield run


@pytest.mark.parametrize("name", ["server", "ann", "bob"])
def test_the_keys_of_any_side_will_do(secure, tmp_path, name):
    write_credentials(tmp_path / name / "keys", secure.credentials(name))
    found = status(write_run(tmp_path, secure.target, secure.settings.members), plain=False)
    assert found.run == "e2e"
    assert [party.name for party in found.parties] == ["ann", "bob"]
    assert {party.state for party in found.parties} == {"aligned, not joined yet"}


def test_the_server_is_where_the_option_says(secure, tmp_path):
    write_credentials(tmp_path / "ann" / "keys", secure.credentials("ann"))
    path = write_run(tmp_path, "127.0.0.1:0", secure.settings.members)
    assert status(path, plain=False, server=secure.target).run == "e2e"
    with pytest.raises(SettingsError, match="leaves the port open"):
        status(path, plain=False)


def test_the_server_is_where_party_toml_says(secure, tmp_path):
    write_credentials(tmp_path / "bob" / "keys", secure.credentials("bob"))
    (tmp_path / "bob" / "party.toml").write_text(
        f'party = "bob"\nrun = "../run.toml"\nserver = "{secure.target}"\n[data]\npath = "data.csv"\n'
    )
    assert status(write_run(tmp_path, "127.0.0.1:1", secure.settings.members), plain=False).run == "e2e"


def test_another_server_that_the_authority_names_is_not_asked(secure, tmp_path):
    """Finding 12: whoever keeps the authority could stand in for the server."""
    write_credentials(tmp_path / "ann" / "keys", secure.credentials("ann"))
    members = {**secure.settings.members, "server": "sha256:" + "0" * 64}
    with pytest.raises(ServerUnreachable, match=r"the certificate of the server at .* has another key"):
        status(write_run(tmp_path, secure.target, members), plain=False)
    with pytest.raises(SettingsError, match=r"`fdml keys members` .* prints the \[members\] table"):
        status(write_run(tmp_path, secure.target), plain=False)


def test_without_keys_there_is_nobody_to_ask_as(secure, tmp_path):
    with pytest.raises(SettingsError, match=r"neither the server's folder nor a party's beside .*; ask on a machine"):
        status(write_run(tmp_path, secure.target), plain=False)


def test_a_plain_run_needs_no_keys_but_loopback(tmp_path):
    with served(tmp_path / "plain", plain=True) as run:
        assert status(write_run(tmp_path, run.target), plain=True).run == "e2e"
    with pytest.raises(SettingsError, match="for loopback only"):
        status(write_run(tmp_path, "example.org:7443"), plain=True)


def test_a_server_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ServerUnreachable, match=r"no server of run 'e2e' answers at 127.0.0.1:1 .* `fdml serve`"):
        status(write_run(tmp_path, "127.0.0.1:1"), plain=True)
