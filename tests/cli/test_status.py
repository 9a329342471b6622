import json

import pytest

from fdml.cli.status import _cells
from fdml.errors import ServerUnreachable, SettingsError
from fdml.federation.status import status
from fdml.monitor.status import PartyStatus
from tests.cli.commands import fail, succeed
from tests.end_to_end.cluster import until
from tests.end_to_end.served import RawStream, labels, served


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A server to which ann has given its labels."""
    folder = tmp_path_factory.mktemp("status")
    with served(folder, plain=True) as run:
        (folder / "federation.toml").write_text('name = "e2e"\nserver = "127.0.0.1:0"\nparties = ["ann", "bob"]\n')
        run.file = folder / "federation.toml"
        yield run


def test_the_table_names_every_party_and_its_state(run):
    text = succeed("status", run.file, "--plain", "--server", run.target)
    lines = text.splitlines()
    assert lines[0] == "run e2e"
    assert lines[1].split() == ["party", "state", "step", "waits", "for", "waited", "sent", "received", "starts"]
    assert [line.split()[0] for line in lines[2:4]] == ["ann", "bob"]
    assert "aligned, not joined yet" in lines[3]


def test_who_waits_for_whom_is_in_the_table_and_in_the_file(run, tmp_path):
    with RawStream(run.target, None, "bob") as line:
        line.send(run.hello())
        until(lambda: status(run.file, plain=True, server=run.target).status.parties[1].waits_for, "bob waits")
        text = succeed("status", run.file, "--plain", "--server", run.target, "--json", tmp_path / "status.json")
    bob = json.loads((tmp_path / "status.json").read_text())["parties"][1]
    assert bob["waits_for"] == ["ann"]
    assert bob["connected"] is True
    assert bob["served"] == -1
    assert "waiting" in text
    assert "ann for " in text


def test_of_a_finished_run_that_its_server_has_closed_nothing_is_said_to_be_none():
    closed = PartyStatus("ann", served=9, incarnation=1, finished=True)
    assert _cells(closed, 10)[4:7] == ("-", "-", "-")
    counted = PartyStatus("ann", served=9, incarnation=1, finished=True, bytes_in=2_000_000, waited_seconds=1.5)
    assert _cells(counted, 10)[4:7] == ("1.5 s", "2.0 MB", "0.0 MB")


def test_what_was_refused_is_counted(run):
    with RawStream(run.target, None, "ann") as line:
        line.send(labels()).end()
    assert "refused: 1 invalid" in succeed("status", run.file, "--plain", "--server", run.target)


def test_the_address_is_needed_where_run_toml_leaves_the_port_open(run):
    assert "with --server HOST:PORT" in fail(SettingsError, "status", run.file, "--plain")


@pytest.mark.slow
def test_a_server_that_does_not_answer_is_named(run):
    assert "127.0.0.1:1" in fail(ServerUnreachable, "status", run.file, "--plain", "--server", "127.0.0.1:1")
