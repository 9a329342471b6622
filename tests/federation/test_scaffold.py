import tomllib

import pytest

from fdml.errors import SettingsError
from fdml.federation.certificates import own_credentials
from fdml.federation.scaffold import scaffold
from fdml.party.settings import read_party
from fdml.protocol.identity import Identity
from fdml.settings import read_run

ADDRESS = "127.0.0.1:7443"


def test_a_new_run_can_be_read_and_its_keys_are_for_whom_they_say(tmp_path):
    scaffold(tmp_path / "shop", ["store", "browser"], ADDRESS)
    run = read_run(tmp_path / "shop" / "run.toml")
    assert (run.name, run.parties, run.label_party, run.server) == ("shop", ("store", "browser"), "store", ADDRESS)
    own_credentials(tmp_path / "shop" / "server" / "keys", Identity("shop", "server", "server"))
    for party in run.parties:
        settings = read_party(tmp_path / "shop" / party / "party.toml")
        assert settings.party == party
        assert settings.data.path.is_file()
        own_credentials(tmp_path / "shop" / party / "keys", Identity("shop", "party", party))


@pytest.mark.parametrize("there", ["run.toml", "store/data.csv", "browser/party.toml", "store/keys", "authority"])
def test_nothing_that_is_there_is_overwritten(tmp_path, there):
    path = tmp_path / there
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    with pytest.raises(SettingsError, match="choose another folder"):
        scaffold(tmp_path, ["store", "browser"], ADDRESS)
    assert path.read_text() == "mine"
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == [path]


def test_own_files_beside_it_are_left_alone(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "sales.csv").write_text("mine")
    scaffold(tmp_path, ["store", "browser"], ADDRESS)
    assert (tmp_path / "store" / "sales.csv").read_text() == "mine"


def test_a_folder_s_name_that_toml_cannot_hold_is_still_a_run(tmp_path):
    scaffold(tmp_path / 'a "b" \\c', ["one", "two"], ADDRESS)
    text = (tmp_path / 'a "b" \\c' / "run.toml").read_text()
    assert tomllib.loads(text)["name"] == "a -b- -c"


@pytest.mark.parametrize("address", ["localhost", "7443", "", ":7443", 'x":1', "a b:1"])
def test_an_address_without_host_or_port_is_refused(tmp_path, address):
    with pytest.raises(SettingsError, match="host:port"):
        scaffold(tmp_path / "run", ["one", "two"], address)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("party", ["server", "authority", "../x", "a b", "", "-x"])
def test_names_that_cannot_be_folders_are_refused(tmp_path, party):
    with pytest.raises(SettingsError):
        scaffold(tmp_path / "run", ["one", party], ADDRESS)
    assert not (tmp_path / "run").exists()
