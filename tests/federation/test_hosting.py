"""A server in a thread of a party's process: it is there while it is needed, and its errors are the party's."""

import asyncio
import threading

import pytest

from fdml.errors import SettingsError, StateCorrupt
from fdml.events import EpochDone, Remark
from fdml.federation.hosting import ServerThread, hosted_federation, hosts
from fdml.federation.join import align
from fdml.federation.party_home import PartyHome
from fdml.federation.up import up
from fdml.protocol.certificates import SERVER
from fdml.protocol.run_messages import RunQuery
from fdml.storage.lock import exclusive_lock
from tests.federation.folders import write_run
from tests.federation.homes import write_homes


class FakeServer:
    """Listens at once and serves until it is stopped, or fails."""

    def __init__(self, error=None, before=None):
        self.stopped = threading.Event()
        self.error = error
        self.before = before

    def __call__(self, *, on_event, on_start, on_listen):
        on_event(Remark(SERVER, "at work"))
        on_event(EpochDone("ann", 1))
        if self.before is not None:
            raise self.before
        on_start(self.stopped.set)
        on_listen("0.0.0.0:7443")
        if self.error is not None:
            raise self.error
        self.stopped.wait()
        raise asyncio.CancelledError


def test_a_server_is_stopped_when_the_party_leaves():
    server, said = FakeServer(), []
    with ServerThread(server, said.append) as thread:
        assert thread.address == "0.0.0.0:7443"
        assert not server.stopped.is_set()
    assert server.stopped.is_set()
    assert said == [Remark(SERVER, "at work")]  # what it knows of the parties, they know themselves


def test_a_server_that_cannot_listen_is_told_before_anything_begins():
    with (
        pytest.raises(SettingsError, match="cannot listen"),
        ServerThread(FakeServer(before=SettingsError("cannot listen")), lambda _: None),
    ):
        raise AssertionError("nothing may begin")


def test_what_has_ended_the_server_is_said_and_not_that_it_was_gone():
    error = StateCorrupt("cannot store the run")
    with pytest.raises(StateCorrupt, match="cannot store"), ServerThread(FakeServer(error), lambda _: None):
        raise SettingsError("no server at 127.0.0.1:7443")


def test_an_interrupted_party_stops_its_server_and_stays_interrupted():
    server = FakeServer()
    with pytest.raises(KeyboardInterrupt), ServerThread(server, lambda _: None):
        raise KeyboardInterrupt
    assert server.stopped.is_set()


def test_the_host_alone_runs_the_server_unless_a_standing_one_does(tmp_path):
    federation = tmp_path / "federation.toml"
    assert hosts("ann", "ann", federation)
    assert not hosts("bob", "ann", federation)
    assert not hosts("ann", None, federation)
    with exclusive_lock(tmp_path / SERVER / "standing", "server"):
        assert not hosts("ann", "ann", federation)


def test_a_standing_server_answers_from_inside_the_host(tmp_path):
    folder = write_homes(tmp_path, rights='host = "ann"', port=0)
    with hosted_federation(folder / "federation.toml", plain=True, listen=None, on_event=lambda _: None) as address:
        home = PartyHome.read(folder / "bob" / "party.toml", plain=True, server=address)
        with home.client() as client:
            assert client.runs(RunQuery()).runs == ()


def test_the_host_that_stands_by_runs_the_server(tmp_path):
    own = 'listen = "127.0.0.1:0"\n[align]\nmax_rows = 9'
    folder, said = write_homes(tmp_path, rights='host = "ann"', party=own), []
    up(folder / "ann" / "party.toml", plain=True, on_event=said.append, is_over=lambda: True)
    texts = [each.text for each in said if isinstance(each, Remark)]
    assert any(text.startswith("serving federation 'shop' at 127.0.0.1:") for text in texts)
    assert (folder / SERVER).is_dir()


def test_a_host_does_not_align_alone_as_its_server_would_end_with_it(tmp_path):
    home = tmp_path / "run"
    write_run(home)
    text = (home / "federation.toml").read_text()
    (home / "federation.toml").write_text(text.replace("parties", 'host = "ann"\nparties', 1))
    run = (home / "run.toml").read_text()
    (home / "run.toml").write_text('align = "ecdh"\n' + run + '\n[privacy]\nserver = "blind"\n')
    with pytest.raises(
        SettingsError, match="has what the others align with in its own process, and `fdml align` would end"
    ):
        align(home / "ann" / "party.toml", plain=True, on_event=lambda _: None)
