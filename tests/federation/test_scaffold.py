import stat

import pytest

from fdml.errors import SettingsError
from fdml.federation.key_files import own_credentials
from fdml.federation.scaffold import scaffold
from fdml.party.settings import read_party
from fdml.protocol.identity import Identity
from fdml.settings.federation import read_run

ADDRESS = "127.0.0.1:7443"


def test_a_new_run_can_be_read_and_its_keys_are_for_whom_they_say(tmp_path):
    scaffold(tmp_path / "shop", ["store", "browser"], ADDRESS)
    run = read_run(tmp_path / "shop" / "run.toml")
    assert (run.federation, run.parties, run.label_party, run.server) == (
        "shop",
        ("store", "browser"),
        "store",
        ADDRESS,
    )
    own_credentials(tmp_path / "shop" / "server" / "keys", Identity("shop", "server", "server"), run)
    for party in run.parties:
        settings = read_party(tmp_path / "shop" / party / "party.toml")
        assert settings.party == party
        assert settings.data.path.is_file()
        own_credentials(tmp_path / "shop" / party / "keys", Identity("shop", "party", party), run)


@pytest.mark.parametrize(
    "there", ["federation.toml", "run.toml", "store/data.csv", "browser/party.toml", "store/keys", "authority"]
)
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


@pytest.mark.parametrize(
    ("folder", "name"), [('a "b" \\c', "a-b-c"), (".run", "run"), ("ü", "federation"), ("x" * 99, "x" * 64)]
)
def test_a_folder_s_name_that_no_federation_can_have_still_gives_one(tmp_path, folder, name):
    scaffold(tmp_path / folder, ["one", "two"], ADDRESS)
    assert read_run(tmp_path / folder / "run.toml").federation == name


def test_a_name_that_is_asked_for_is_not_changed_but_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"federation name '\.\./x' cannot name a folder"):
        scaffold(tmp_path / "run", ["one", "two"], ADDRESS, "../x")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("address", ["localhost", "7443", "", ":7443", 'x":1', "a b:1"])
def test_an_address_without_host_or_port_is_refused(tmp_path, address):
    with pytest.raises(SettingsError, match="host:port"):
        scaffold(tmp_path / "run", ["one", "two"], address)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("party", ["server", "authority", "../x", "a/b", "", "-x", "n" * 65])
def test_names_that_cannot_be_folders_are_refused(tmp_path, party):
    with pytest.raises(SettingsError):
        scaffold(tmp_path / "run", ["one", party], ADDRESS)
    assert not (tmp_path / "run").exists()


def columns(path):
    return path.read_text().splitlines()[0].replace('"', "").split(",")


def test_the_example_has_the_same_ids_at_every_party_and_no_feature_twice(tmp_path):
    scaffold(tmp_path / "run", ["one", "two", "three"], ADDRESS)
    files = [tmp_path / "run" / party / "data.csv" for party in ("one", "two", "three")]
    ids = [[line.split(",")[0] for line in path.read_text().splitlines()[1:]] for path in files]
    assert len(set(ids[0])) == len(ids[0]) == 4000
    assert sorted(ids[0]) == sorted(ids[1]) == sorted(ids[2])
    assert ids[0] != ids[1] != ids[2], "every party has an order of its own"
    features = [set(columns(path)) - {"user_id"} for path in files]
    assert not features[0] & features[1]
    assert not features[1] & features[2]
    assert not features[0] & features[2]


def test_the_first_party_alone_has_the_labels(tmp_path):
    scaffold(tmp_path / "run", ["one", "two"], ADDRESS)
    assert "income" in columns(tmp_path / "run" / "one" / "data.csv")
    assert "income" not in columns(tmp_path / "run" / "two" / "data.csv")
    assert read_party(tmp_path / "run" / "one" / "party.toml").data.label == "income"
    assert read_party(tmp_path / "run" / "two" / "party.toml").data.label is None


def test_private_keys_are_for_their_owner_only(tmp_path):
    scaffold(tmp_path / "run", ["one", "two"], ADDRESS)
    keys = list((tmp_path / "run").rglob("key.pem"))
    assert len(keys) == 4
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_a_federation_may_have_another_name_than_its_folder_and_leave_the_port_open(tmp_path):
    scaffold(tmp_path / "run", ["one", "two"], "127.0.0.1:0", "sales")
    run = read_run(tmp_path / "run" / "run.toml")
    assert (run.name, run.federation, run.server) == ("first", "sales", "127.0.0.1:0")


@pytest.mark.parametrize("parties", [[], ["one", "one"]])
def test_parties_must_be_named_once(tmp_path, parties):
    with pytest.raises(SettingsError):
        scaffold(tmp_path / "run", parties, ADDRESS)
    assert not (tmp_path / "run").exists()
