"""The commands of a run as a user types them: what they show, what they refuse, and how they stop."""

import json
import os
import shutil
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.ports import reserved_port
from fdml.errors import ServerUnreachable
from fdml.federation.certificates import Authority
from fdml.federation.key_files import write_credentials
from tests.end_to_end.cluster import FDML, Cluster, Started, Terminal, running, until

pytestmark = pytest.mark.slow
EPOCHS = 120


def command(folder: Path, *words: object) -> Started:
    return Started(folder / f"{words[0]}-{time.monotonic_ns()}.log", *words)


# Stopping by hand.


def processes_of(home: Path) -> list[str]:
    """The command lines of all processes that work in a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if str(home) in words:
                found.append(words)
    return found


def stop_three_terminals(home: Path) -> dict:
    """Ctrl-C in the terminals of the server and one party, `kill` for the other; then the same commands again."""
    cluster = Cluster(home, epochs=EPOCHS)
    try:
        cluster.start(kind=Terminal)
        cluster.await_step(40)
        stopped = dict(cluster.members)
        for name, member in stopped.items():
            member.send(signal.SIGTERM if name == "bob" else signal.SIGINT)
        codes = {name: member.wait() for name, member in stopped.items()}
        left = processes_of(home)
        cluster.start()
        cluster.finish()
        said = {name: member.text for name, member in stopped.items()}
        return {"codes": codes, "said": said, "left": left, "hashes": cluster.model_hashes()}
    finally:
        cluster.stop()


def stop_simulate(home: Path) -> dict:
    """Ctrl-C in the terminal of a simulation, then the same command again."""
    cluster = Cluster(home, epochs=EPOCHS)
    run = cluster.home / "run.toml"
    first = second = None
    try:
        first = Terminal(home / "first.log", "simulate", run)
        cluster.await_step(40)
        first.send(signal.SIGINT)
        code = first.wait()
        left = processes_of(home)
        second = Terminal(home / "second.log", "simulate", run, "--json", home / "out.json")
        again = second.expect(0)
        figures = json.loads((home / "out.json").read_text())
        return {"code": code, "left": left, "said": first.text, "again": again, "figures": figures}
    finally:
        for each in (first, second):
            if each is not None and each.code is None:
                each.kill()


def leave_alone(home: Path) -> dict[str, str]:
    with running(home, epochs=EPOCHS) as cluster:
        cluster.start()
        cluster.finish()
        return cluster.model_hashes()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    home = tmp_path_factory.mktemp("stopped")
    with ThreadPoolExecutor() as pool:
        found = {work.__name__: pool.submit(work, home / work.__name__) for work in (stop_three_terminals, leave_alone)}
        found["stop_three_terminals"].exception()
        found["stop_simulate"] = pool.submit(stop_simulate, home / "simulate")
        return found


def one_line(text: str) -> str:
    """The only line that is not progress."""
    lines = [line for line in text.splitlines() if line.startswith("fdml: ")]
    assert len(lines) == 1, text
    assert "Traceback" not in text
    return lines[0]


def test_ctrl_c_and_kill_end_server_and_parties_and_leave_nothing_behind(stopped):
    found = stopped["stop_three_terminals"].result()
    assert found["codes"] == {"server": 130, "ann": 130, "bob": 130}
    assert found["left"] == []


def test_each_says_in_one_line_how_to_go_on(stopped):
    said = stopped["stop_three_terminals"].result()["said"]
    for name, command in (("server", "fdml serve"), ("ann", "fdml join"), ("bob", "fdml join")):
        line = one_line(said[name])
        assert f"stopped; `{command} " in line
        assert "goes on from here" in line


def test_the_same_commands_go_on_to_the_same_models(stopped):
    assert stopped["stop_three_terminals"].result()["hashes"] == stopped["leave_alone"].result()


def test_ctrl_c_ends_a_simulation_with_all_its_processes(stopped):
    found = stopped["stop_simulate"].result()
    assert found["code"] == 130
    assert found["left"] == []
    assert "stopped; `fdml simulate " in one_line(found["said"])


def test_the_same_simulation_goes_on_and_ends_as_if_it_had_not_been_stopped(stopped):
    found = stopped["stop_simulate"].result()
    assert "going on with run 'first' of 320 rows" in found["again"]
    for model in stopped["leave_alone"].result().values():
        assert model in found["again"]
    assert [row["epoch"] for row in found["figures"]["history"]] == list(range(1, EPOCHS + 1))
    assert found["figures"]["alignment"]["shared_rows"] == 400
    assert found["figures"]["metrics"] == found["figures"]["history"][-1]


# Looking at a run.


def test_status_shows_steps_waits_and_bytes_and_who_is_away(tmp_path):
    with running(tmp_path / "run", ("ann", "bob", "cyd"), epochs=5000) as cluster:
        who = cluster.home / "federation.toml"
        command(tmp_path, "status", who).expect(1, f"no server at 127.0.0.1:{cluster.port}", "connection refused")
        cluster.start()
        cluster.await_step(50)
        cluster["cyd"].kill()
        until(lambda: cluster.statuses()["ann"].waiting_seconds > 1, "ann waits")
        asked = command(tmp_path, "status", who, "--run", "first", "--json", tmp_path / "status.json")
        text = asked.expect(0, "run first")
        figures = json.loads((tmp_path / "status.json").read_text())
    parties = {party["name"]: party for party in figures["parties"]}
    ann, cyd = parties["ann"], parties["cyd"]
    assert ann["waits_for"] == ["cyd"]
    assert 1 <= ann["waiting_seconds"] <= ann["waited_seconds"] < 60
    assert int(ann["served"]) >= 50
    assert int(figures["steps"]) == 5000 * 16
    assert int(ann["bytes_in"]) > 50 * 20 * 8 < int(ann["bytes_out"])
    assert not cyd.get("connected", False)
    for words in (f"{int(ann['served']) + 1}/80000", "waiting", "cyd for ", "gone", "MB"):
        assert words in text


def test_status_can_be_asked_for_from_the_server_s_machine_or_a_party_s(tmp_path):
    with running(tmp_path / "run") as cluster:
        cluster.serve()
        until(lambda: cluster.status().run == "first", "the server runs")
        asked = []
        for name in ("server", "bob"):
            elsewhere = tmp_path / f"at-{name}"
            elsewhere.mkdir()
            shutil.copy(cluster.home / "federation.toml", elsewhere)
            asked.append(command(tmp_path, "status", elsewhere / "federation.toml"))
            (cluster.home / name).rename(elsewhere / name)
            asked.append(command(tmp_path, "status", elsewhere / "federation.toml"))
        for without, with_keys in zip(asked[::2], asked[1::2], strict=True):
            without.wait()
            with_keys.expect(0, "not here yet")


# What is refused before anything happens.


def test_a_new_run_has_keys_for_their_owner_only_and_nothing_is_overwritten(tmp_path):
    folder = tmp_path / "shop"
    words = ("new", folder, "--parties", "store,browser")
    command(tmp_path, *words).expect(0, f"fdml serve {folder}/federation.toml --run {folder}/run.toml", "fdml simulate")
    keys = sorted(folder.rglob("key.pem"))
    assert [str(key.relative_to(folder).parent) for key in keys] == [
        "authority", "browser/keys", "server/keys", "store/keys",
    ]  # fmt: skip
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    command(tmp_path, *words).expect(1, "holds a federation.toml already; choose another folder")
    for name in ("federation.toml", "run.toml"):
        (folder / name).unlink()
        del before[folder / name]
    command(tmp_path, *words).expect(1, "would be overwritten")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_plain_lines_are_for_loopback_only(tmp_path):
    with running(tmp_path / "run") as cluster:
        party = cluster.home / "bob" / "party.toml"
        party.write_text('server = "example.org:7443"\n' + party.read_text())
        cluster.join("bob", "--plain").expect(1, "for loopback only", "'example.org:7443'")
        cluster.change("127.0.0.1", "0.0.0.0", "federation.toml")
        for each in (
            cluster.serve("--plain"),
            cluster.join("ann", "--plain"),
            command(tmp_path, "status", cluster.home / "federation.toml", "--plain"),
        ):
            each.expect(1, "plain lines are for loopback only", "leave --plain out")


def test_a_server_may_listen_elsewhere_than_where_the_parties_reach_it(tmp_path):
    with running(tmp_path / "run") as cluster, reserved_port() as port:
        for party in cluster.parties:
            cluster.through(party, port)
            cluster.join(party)
        cluster.serve("--plain", "--listen", f"0.0.0.0:{port}").expect(1, "for loopback only")
        cluster.serve("--listen", f"127.0.0.1:{port}")
        cluster.finish()
        assert f"at 127.0.0.1:{port}" in cluster["server"].text


def test_a_run_on_plain_lines_gives_the_same_models(tmp_path, stopped):
    with running(tmp_path / "run", epochs=EPOCHS) as cluster:
        for folder in ("server", *cluster.parties):
            for key in (cluster.home / folder / "keys").iterdir():
                key.unlink()
        cluster.start("--plain")
        cluster.finish()
        assert cluster.model_hashes() == stopped["leave_alone"].result()


def test_a_party_with_keys_that_will_not_do_says_so_at_once(tmp_path):
    authority = Authority("e2e")
    bad = {
        "ran out on": authority.issue("party", "bob", days=-1),
        "names fdml://e2e/party/ann, not fdml://e2e/party/bob": authority.issue("party", "ann"),
        "names fdml://other/party/bob": authority.issue("party", "bob", federation="other"),
        "has another key": authority.issue("party", "bob"),
    }
    with running(tmp_path / "run") as cluster:
        for words, credentials in bad.items():
            write_credentials(cluster.home / "bob" / "keys", credentials)
            cluster.join("bob").expect(1, words)
        (cluster.home / "bob" / "keys" / "key.pem").chmod(0o644)
        cluster.join("bob").expect(1, "can be read by others", "chmod 600")


def test_a_party_with_keys_of_another_authority_says_so_soon(tmp_path):
    with running(tmp_path / "run") as cluster:
        cluster.serve()
        key = (cluster.home / "bob" / "keys" / "key.pem").read_bytes()
        write_credentials(cluster.home / "bob" / "keys", Authority("e2e").issue("party", "bob", key=key))
        until(lambda: cluster.status().run == "first", "the server runs")
        cluster.join("bob").expect(1, "of another authority than", "check the address and the keys")
        assert cluster["server"].code is None


def test_a_server_that_a_script_put_in_the_background_ends_at_a_word(tmp_path):
    """A shell without a terminal lets what it puts in the background ignore Ctrl-C; `kill` must end it all the same."""
    with running(tmp_path / "run") as cluster:
        script = f'"$@" & echo $! > {tmp_path / "pid"}; wait'
        words = [*FDML, "serve", str(cluster.home / "federation.toml"), "--run", str(cluster.home / "run.toml")]
        shell = subprocess.Popen(["sh", "-c", script, "sh", *words], stderr=subprocess.DEVNULL)
        until(lambda: cluster.status().run == "first", "the server runs")
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGTERM)
        shell.wait(20)
        with pytest.raises(ServerUnreachable):
            cluster.status()
