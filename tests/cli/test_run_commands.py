"""The commands of a run: server and parties as processes that log their events and write their figures."""

import json
import stat
import time

import pytest

from fdml.errors import DataError, SettingsError
from fdml.federation.processes import Children
from fdml.monitor.listeners import ignore_events
from tests.cli.commands import fail, succeed
from tests.end_to_end.cluster import write_run

PARTIES, EPOCHS = ("ann", "bob"), 3


@pytest.fixture
def home(tmp_path):
    write_run(tmp_path / "run", 0, PARTIES, 200, {"epochs": EPOCHS})
    return tmp_path / "run"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a run that was served and joined with --log, --json and --port-file."""
    home = tmp_path_factory.mktemp("commands") / "run"
    write_run(home, 0, PARTIES, 200, {"epochs": EPOCHS})
    port = home / "port"
    with Children(home, ignore_events) as children:
        files = ("--log", str(home / "server.jsonl"), "--json", str(home / "server.json"), "--port-file", str(port))
        children.start("server", "serve", str(home / "federation.toml"), "--run", str(home / "run.toml"), *files)
        while not port.exists() and children.are_running():
            time.sleep(0.05)
        for party in PARTIES:
            address = f"127.0.0.1:{int(port.read_text())}"
            files = ("--log", str(home / f"{party}.jsonl"), "--json", str(home / f"{party}.json"), "--server", address)
            children.start(party, "join", str(home / party / "party.toml"), *files)
        while children.are_running():
            time.sleep(0.05)
    return home


def events(home, side):
    return [json.loads(line) for line in (home / f"{side}.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_a_party_logs_every_step_epoch_and_its_end(finished):
    kinds = [event["kind"] for event in events(finished, "bob")]
    assert kinds.count("EpochDone") == EPOCHS
    assert kinds.count("StepDone") == EPOCHS * 8
    assert kinds[-1] == "Finished"
    times = [event["time"] for event in events(finished, "bob")]
    assert times == sorted(times)


@pytest.mark.slow
def test_only_the_label_party_logs_figures(finished):
    assert [event["epoch"] for event in events(finished, "ann") if event["kind"] == "Evaluated"] == [1, 2, 3]
    assert not [event for event in events(finished, "bob") if event["kind"] == "Evaluated"]


@pytest.mark.slow
def test_the_server_logs_where_it_listens(finished):
    texts = [event["text"] for event in events(finished, "server") if event["kind"] == "Remark"]
    assert f"serving run 'first' at 127.0.0.1:{int((finished / 'port').read_text())}" in texts


@pytest.mark.slow
def test_logs_are_for_their_owner_only(finished):
    for side in ("server", *PARTIES):
        assert stat.S_IMODE((finished / f"{side}.jsonl").stat().st_mode) == 0o600


@pytest.mark.slow
def test_a_party_s_figures_name_its_model(finished):
    for party in PARTIES:
        found = json.loads((finished / f"{party}.json").read_text())
        assert found["party"] == party
        assert found["resumed_at"] == 0
        assert found["model_path"] == str(finished / party / "runs" / "first" / "model")
        assert f"(hash {found['model_hash'][:16]})" in (finished / f"{party}.log").read_text()


@pytest.mark.slow
def test_the_label_party_ends_with_its_figures_and_says_which_class_is_1(finished):
    found = {party: json.loads((finished / f"{party}.json").read_text()) for party in PARTIES}
    assert (found["bob"]["metrics"], found["bob"]["convergence"]) == ({}, None)
    assert found["ann"]["metrics"]["figures"]["brier"] > 0
    assert found["ann"]["convergence"] in ("converged", "falling", "diverged")
    said = {party: (finished / f"{party}.log").read_text() for party in PARTIES}
    assert "'yes' is 1, 'no' is 0" in said["ann"]
    assert "Brier score" in said["ann"]
    assert "is 1" not in said["bob"]


@pytest.mark.slow
def test_the_server_knows_which_epochs_were_evaluated_and_no_figures(finished):
    found = json.loads((finished / "server.json").read_text())
    assert found["evaluated"] == [1, 2, 3]
    assert found["alignment"]["shared_rows"] == 200
    said = (finished / "server.log").read_text()
    assert "all parties have finished: 3 epochs were evaluated; their figures are for the parties" in said
    assert "test loss" not in said
    for event in events(finished, "server"):
        if event["kind"] == "Evaluated":
            assert {event[name] for name in ("seconds", "train_loss", "test_loss", "test_metric")} == {None}


@pytest.mark.slow
def test_simulate_prints_a_row_per_epoch(home, tmp_path):
    text = succeed("simulate", home / "run.toml", "--plain", "--json", tmp_path / "figures.json")
    heading, *rows, held_out, gain = text.splitlines()
    assert heading.split() == ["epoch", "seconds", "train", "loss", "test", "loss", "test", "AUC"]
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    found = json.loads((tmp_path / "figures.json").read_text())
    assert rows[-1].split()[-1] == f"{found['metrics']['test_metric']:.4f}"
    assert held_out.startswith(
        f"held-out rows, model of epoch 3: AUC {found['metrics']['figures']['auc']:.4f}, PR-AUC "
    )
    assert gain.startswith("joint brings ")
    assert found["convergence"] in ("converged", "falling", "diverged")


# What is refused before anything happens.


@pytest.mark.parametrize("command", ["join", "align"])
def test_a_party_needs_the_address_where_run_toml_leaves_the_port_open(home, command):
    text = fail(SettingsError, command, home / "bob" / "party.toml")
    assert "give the one that `fdml serve` prints with --server HOST:PORT" in text


@pytest.mark.parametrize("command", ["join", "align"])
def test_without_consent_nothing_begins_and_the_ways_out_are_named(home, command):
    """Finding 15; there is no terminal here, so nobody can be asked."""
    party = home / "bob" / "party.toml"
    party.write_text(party.read_text().replace("[align]\nmax_rows", "[align]\nmin_shared"))
    text = fail(SettingsError, command, party, "--plain", "--server", "127.0.0.1:1")
    assert "set align.max_rows in party.toml" in text
    assert "add --yes" in text


@pytest.mark.parametrize("option", ["--log", "--json"])
@pytest.mark.parametrize(("command", "file"), [("join", "bob/party.toml"), ("serve", "federation.toml")])
def test_files_that_cannot_be_written_are_named_at_once(home, command, file, option):
    assert "there is no folder" in fail(SettingsError, command, home / file, option, home / "missing" / "file")


@pytest.mark.parametrize("command", ["join", "serve", "align", "simulate", "status"])
def test_a_file_that_is_not_there_is_named(tmp_path, command):
    assert "missing.toml" in fail(SettingsError, command, tmp_path / "missing.toml")


def test_a_party_without_data_is_named_before_it_waits(home):
    (home / "bob" / "data.csv").unlink()
    assert "data.csv" in fail(DataError, "join", home / "bob" / "party.toml", "--server", "127.0.0.1:1")


def test_plain_is_for_loopback(home):
    for words in (
        ("join", home / "bob" / "party.toml"),
        ("align", home / "bob" / "party.toml"),
        ("status", home / "federation.toml"),
    ):
        assert "for loopback only" in fail(SettingsError, *words, "--plain", "--server", "example.org:7443")
    assert "for loopback only" in fail(
        SettingsError, "serve", home / "federation.toml", "--plain", "--listen", "0.0.0.0:0"
    )
