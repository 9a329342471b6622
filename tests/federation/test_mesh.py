"""A party of a run without a server: whom it calls, how it is reached, and what it is refused."""

import pytest

from fdml.errors import ServerUnreachable, SettingsError
from fdml.federation.addresses import own_address, server_address
from fdml.federation.certificates import Authority
from fdml.federation.join import align, join
from fdml.federation.mesh import Mesh
from fdml.federation.party_home import PartyHome
from fdml.federation.status import AskedRun
from fdml.settings.federation import FederationSettings
from fdml.transport.tunnels import WayBack
from tests.server.meshes import PARTIES, SETTINGS

WHO = FederationSettings.of_run(SETTINGS)
HIDDEN = SETTINGS.model_copy(update={"addresses": {name: SETTINGS.addresses[name] for name in ("ann", "bob")}})


def of(party, run=SETTINGS, folder=None, credentials=None):
    return Mesh(FederationSettings.of_run(run), party, folder, credentials)


def test_a_party_calls_others_where_federation_toml_says_and_itself_where_it_listens():
    mesh = of("bob")
    found = {name: mesh.endpoint(name, "127.0.0.1:9") for name in PARTIES}
    assert {name: each.target for name, each in found.items()} == {**SETTINGS.addresses, "bob": "127.0.0.1:9"}
    assert {each.party for each in found.values()} == {"bob"}
    assert [each.answers_as for each in found.values()] == list(PARTIES)
    assert found["ann"].place == f"the party 'ann' at {SETTINGS.addresses['ann']}"


def test_a_party_without_an_address_is_reached_by_a_way_of_its_own():
    mesh = of("ann", HIDDEN)
    mesh.tunnels.ports["cat"] = 4711
    assert mesh.endpoint("cat").target == "127.0.0.1:4711"
    assert mesh.endpoint("bob").target == SETTINGS.addresses["bob"]
    assert isinstance(of("cat", HIDDEN).way_back("127.0.0.1:9"), WayBack)
    assert not isinstance(mesh.way_back("127.0.0.1:9"), WayBack)


def test_where_a_party_listens():
    assert own_address(WHO, "ann") == SETTINGS.addresses["ann"]
    assert own_address(WHO, "ann", "0.0.0.0:7443") == "0.0.0.0:7443"
    hidden = FederationSettings.of_run(HIDDEN)
    assert own_address(hidden, "cat", "127.0.0.1:7443") == "127.0.0.1:7443"
    with pytest.raises(SettingsError, match=r"has no address in \[addresses\].*set listen = .127\.0\.0\.1:7443"):
        own_address(hidden, "cat")


def test_a_certificate_of_an_older_fdml_is_told_to_be_renewed(tmp_path, monkeypatch):
    good = Authority("federation").issue("party", "ann")
    of("ann", folder=tmp_path, credentials=good)
    monkeypatch.setattr("fdml.federation.mesh.ExtendedKeyUsageOID.SERVER_AUTH", "another usage")
    with pytest.raises(SettingsError, match=r"made by an older fdml, and others cannot call whoever shows it.*renew"):
        of("ann", folder=tmp_path, credentials=good)


def test_other_processes_of_a_party_find_the_ways_that_the_standing_one_has_written_down(tmp_path):
    (tmp_path / "server").mkdir()
    with pytest.raises(
        ServerUnreachable, match=r"no way to party 'cat', which accepts no connections; start `fdml up`"
    ):
        of("ann", HIDDEN, tmp_path).endpoint("cat")
    standing = of("ann", HIDDEN, tmp_path)
    standing.tunnels.ports["cat"] = 4711
    standing.store_ports()
    assert of("ann", HIDDEN, tmp_path).endpoint("cat").target == "127.0.0.1:4711"
    (tmp_path / "server" / "ways.json").write_text("{half")
    with pytest.raises(ServerUnreachable, match="no way to party 'cat'"):
        of("ann", HIDDEN, tmp_path).endpoint("cat")


def test_all_others_are_told_of_runs_and_may_ask():
    assert of("bob").others == ("ann", "cat")


def test_what_needs_a_server_says_that_there_is_none():
    with pytest.raises(SettingsError, match=r'server = "none", and this needs one.*have a party host the server'):
        server_address("none")
    assert server_address("none", None, "127.0.0.1:7443") == "127.0.0.1:7443"


@pytest.fixture
def home(tmp_path):
    listed = "\n".join(f'{name} = "{address}"' for name, address in SETTINGS.addresses.items())
    (tmp_path / "federation.toml").write_text(f'server = "none"\nparties = {list(PARTIES)!r}\n[addresses]\n{listed}\n')
    (tmp_path / "run.toml").write_text('label_party = "ann"\nalign = "ecdh"\n[privacy]\nserver = "blind"\n')
    for name in PARTIES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "data.csv").write_text("id,x\n1,2\n")
        data = '[data]\npath = "data.csv"\nid = "id"\n'
        (tmp_path / name / "party.toml").write_text(f'party = "{name}"\nfederation = "../federation.toml"\n{data}')
    return tmp_path


def test_a_server_that_there_is_not_is_refused(home):
    """Also to commands that are for standing parties."""
    for call in (join, PartyHome.read):
        with pytest.raises(
            SettingsError, match=r'has server = "none", and the server is said to be at .127\.0\.0\.1:7'
        ):
            call(home / "ann" / "party.toml", plain=True, server="127.0.0.1:7443")


@pytest.mark.parametrize("address", ["bob.example.org", "10.0.0.2:99999"])
def test_an_address_that_is_none_is_named_before_anything_begins(address):
    run = SETTINGS.model_copy(update={"addresses": {**SETTINGS.addresses, "bob": address}})
    with pytest.raises(SettingsError, match=f"is '{address}'; write it as host:port"):
        of("ann", run)


def test_a_party_at_home_calls_its_own_session_and_hears_questions_from_all_others(home):
    found = PartyHome.read(home / "bob" / "party.toml", plain=True)
    assert (found.endpoint.target, found.endpoint.answers_as) == (SETTINGS.addresses["bob"], "bob")
    assert {name: each.target for name, each in found.relays.items()} == {
        name: SETTINGS.addresses[name] for name in ("ann", "cat")
    }


def test_a_party_that_accepts_no_connections_calls_its_own_session_where_it_listens(home):
    path = home / "cat" / "party.toml"
    path.write_text('listen = "0.0.0.0:7555"\n' + path.read_text())
    assert PartyHome.read(path, plain=True).endpoint.target == "127.0.0.1:7555"


def test_rows_are_aligned_with_the_run_alone(home):
    with pytest.raises(SettingsError, match=r"has what the others align with in its own process.*`fdml join` aligns"):
        align(home / "ann" / "party.toml", plain=True, on_event=lambda _: None)


@pytest.mark.parametrize("path", ["bob/party.toml", "federation.toml"])
def test_the_status_of_a_run_is_asked_of_the_own_session(home, path):
    asked = AskedRun(home / path, "first", plain=True)
    party = "bob" if path.startswith("bob") else "ann"
    assert asked.side == party
    assert asked._endpoint.target == SETTINGS.addresses[party]
    assert asked._endpoint.answers_as == party
