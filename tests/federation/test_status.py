import numpy as np
import pytest

from fdml.align.group_key import GroupKey
from fdml.align.sealed_metrics import seal_metrics
from fdml.errors import AlignmentError, MessageRefused, ServerUnreachable, SettingsError
from fdml.federation.key_files import members_table, write_credentials
from fdml.federation.run_folder import RunFolder
from fdml.federation.status import status
from fdml.party.alignment import AlignmentReport, SharedRows
from fdml.party.alignment_store import AlignmentStore
from fdml.protocol.messages import Metrics
from fdml.settings import run_hash
from fdml.storage.disk import FolderDisk
from tests.end_to_end.cluster import until
from tests.end_to_end.served import RawStream, labels, served

KEY = GroupKey(bytes(range(32)))
FOUND = [Metrics(1, 0.5, 0.75, 0.625, 0.875), Metrics(2, 1.0, 0.5, 0.25, 0.9375)]


def write_run(folder, address, members=None):
    path = folder / "federation.toml"
    text = f'name = "e2e"\nserver = "{address}"\nparties = ["ann", "bob"]\n'
    path.write_text(text + (members_table(members) if members else ""))
    return path


def write_party(folder, name, server=None):
    (folder / name).mkdir(exist_ok=True)
    path = folder / name / "party.toml"
    where = "" if server is None else f'server = "{server}"\n'
    path.write_text(f'party = "{name}"\nfederation = "../federation.toml"\n{where}[data]\npath = "data.csv"\n')
    return path


def write_alignment(folder, run, key):
    """What an aligned party has stored."""
    report = AlignmentReport("tokens", {}, 3, 2, 1, 0.0)
    shared = SharedRows(np.arange(2), np.arange(1), b"d" * 32, key, report)
    begun = RunFolder(folder, run.settings)
    begun.begin()
    AlignmentStore(FolderDisk(begun.state), run_hash=run_hash(run.settings), data="").save(shared)


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    with served(tmp_path_factory.mktemp("secure")) as run:
        yield run


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A server to which ann has reported two epochs."""
    with served(tmp_path_factory.mktemp("evaluated")) as run:
        with RawStream(run.target, run.credentials("ann")) as line:
            line.send(run.hello(), labels(), *(seal_metrics(KEY, each) for each in FOUND))
            until(lambda: len(run.state.history) == 2, "both epochs are reported")
        yield run


@pytest.mark.parametrize("name", ["server", "ann", "bob"])
def test_the_keys_of_any_side_will_do(secure, tmp_path, name):
    write_credentials(tmp_path / name / "keys", secure.credentials(name))
    found = status(write_run(tmp_path, secure.target, secure.settings.members), plain=False).status
    assert found.run == "e2e"
    assert [party.name for party in found.parties] == ["ann", "bob"]
    assert {party.state for party in found.parties} == {"aligned, not joined yet"}


def test_the_server_is_where_the_option_says(secure, tmp_path):
    write_credentials(tmp_path / "ann" / "keys", secure.credentials("ann"))
    path = write_run(tmp_path, "127.0.0.1:0", secure.settings.members)
    assert status(path, plain=False, server=secure.target).status.run == "e2e"
    with pytest.raises(SettingsError, match="leaves the port open"):
        status(path, plain=False)


@pytest.mark.parametrize("by", ["federation.toml", "party.toml"])
def test_the_server_is_where_party_toml_says(secure, tmp_path, by):
    write_credentials(tmp_path / "bob" / "keys", secure.credentials("bob"))
    own = write_party(tmp_path, "bob", secure.target)
    run = write_run(tmp_path, "127.0.0.1:1", secure.settings.members)
    assert status(run if by == "federation.toml" else own, plain=False).status.run == "e2e"


def test_a_run_that_the_server_does_not_host_is_named(secure, tmp_path):
    write_credentials(tmp_path / "ann" / "keys", secure.credentials("ann"))
    path = write_run(tmp_path, secure.target, secure.settings.members)
    assert status(path, "e2e", plain=False).status.run == "e2e"
    with pytest.raises(MessageRefused, match=r"has run 'e2e' alone, not 'second'"):
        status(path, "second", plain=False)


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
        assert status(write_run(tmp_path, run.target), plain=True).status.run == "e2e"
    assert not (tmp_path / "ann").exists(), "nothing is made by asking"
    with pytest.raises(SettingsError, match="for loopback only"):
        status(write_run(tmp_path, "example.org:7443"), plain=True)


@pytest.mark.slow
def test_a_server_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ServerUnreachable, match=r"no server at 127.0.0.1:1 .*connection refused.* `fdml serve`"):
        status(write_run(tmp_path, "127.0.0.1:1"), plain=True)


# Metrics


def test_a_party_opens_the_metrics_with_the_key_of_its_alignment(evaluated, tmp_path):
    """Finding 1: they are sealed under way and at the server, and for the other parties to read."""
    write_run(tmp_path, evaluated.target, evaluated.settings.members)
    write_credentials(tmp_path / "bob" / "keys", evaluated.credentials("bob"))
    own = write_party(tmp_path, "bob")
    write_alignment(tmp_path / "bob", evaluated, KEY)
    assert status(own, plain=False).metrics == tuple(FOUND)
    assert status(tmp_path / "federation.toml", plain=False).metrics == tuple(FOUND)


@pytest.mark.parametrize("name", ["server", "bob"])
def test_the_server_and_a_party_that_has_not_aligned_see_the_epochs_alone(evaluated, tmp_path, name):
    """Finding 1: exact figures told the server the labels of the held-out rows."""
    write_credentials(tmp_path / name / "keys", evaluated.credentials(name))
    found = status(write_run(tmp_path, evaluated.target, evaluated.settings.members), plain=False)
    assert found.metrics == (Metrics(1), Metrics(2))
    assert [each.epoch for each in found.status.history] == [1, 2]


def test_a_key_of_another_alignment_is_named(evaluated, tmp_path):
    write_run(tmp_path, evaluated.target, evaluated.settings.members)
    write_credentials(tmp_path / "bob" / "keys", evaluated.credentials("bob"))
    write_alignment(tmp_path / "bob", evaluated, GroupKey(bytes(32)))
    with pytest.raises(AlignmentError, match="the sealed metrics of epoch 1 of 60 bytes cannot be opened"):
        status(write_party(tmp_path, "bob"), plain=False)
