"""docs/two-companies.md, typed as it stands: four folders, none of which ever sees another's private key."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.ports import reserved_port
from fdml.models.bundle import Bundle
from tests.end_to_end.cluster import FDML, RUN, Terminal, write_csv

pytestmark = pytest.mark.slow
PAGE = Path(__file__).parents[2] / "docs" / "two-companies.md"
MACHINES = ("store", "browser", "server", "signer")
ADDRESS = "train.example.org:7443"
_SECONDS = 120.0


def commands_of(heading):
    """The lines that a section of the page says to type, each with its machine."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL) for line in block.splitlines()]
    return [tuple(line.split("$ ", 1)) for line in lines]


def files_of_the_page():
    """Each TOML file of the page, by its first line."""
    blocks = re.findall(r"```toml\n# (.*?)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return dict(blocks)


class Sites:
    """A folder per machine; a command is typed in its machine's folder, and `scp` copies from one to another."""

    def __init__(self, home, port):
        self.home = home
        self._port = port
        self._started = []
        for machine in MACHINES:
            (home / machine).mkdir()

    def write(self, machine, name, text):
        """A file of the page, with an address of this machine in place of the example's."""
        (self.home / machine / name).write_text(text.replace(ADDRESS, f"127.0.0.1:{self._port}"))

    def type(self, machine, command):
        """Type a command and wait for its end; whoever is asked says yes."""
        folder, words = self.home / machine, shlex.split(command)
        if words[0] == "scp":
            _, source, target = words
            to, _, place = target.partition(":")
            shutil.copy(folder / source, self.home / to / place)
            return ""
        if words[0] == "fdml":
            command = command.replace("fdml", shlex.join(FDML), 1)
        ended = subprocess.run(
            ["sh", "-c", command], cwd=folder, input="y\n", capture_output=True, text=True, timeout=_SECONDS
        )
        assert ended.returncode == 0, f"{machine}$ {command}\n{ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr

    def start(self, machine, command):
        """Start a command that goes on."""
        words = shlex.split(command)
        assert words[0] == "fdml"
        log = self.home / f"{machine}-{len(self._started)}.log"
        path = [str(self.home / machine / word) if word.endswith(".toml") else word for word in words[1:]]
        self._started.append(Terminal(log, *path))
        return self._started[-1]

    def stop(self):
        for each in self._started:
            each.kill()

    def private_keys(self):
        """Every private key, with the machine it is on."""
        files = [path for path in self.home.rglob("*") if path.is_file() and path.suffix != ".log"]
        return {path: path.relative_to(self.home).parts[0] for path in files if b"PRIVATE KEY" in path.read_bytes()}


def own_files(sites):
    """What the two companies have: other columns, other orders, other names for the id."""
    chance = np.random.default_rng(5)
    people = 600
    age, hours = chance.integers(18, 80, people), chance.normal(40, 9, people).round(2)
    bought = np.where((age > 45).astype(int) + (hours > 42) >= 1, "yes", "no")
    customer = np.array([f"c{number:04}" for number in range(people)])
    store = {"customer": customer, "age": age, "bought": bought}
    write_csv(sites.home / "store" / "sales.csv", store, chance.permutation(people))
    write_csv(sites.home / "browser" / "sessions.csv", {"user": customer, "hours": hours}, chance.permutation(people))


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """The set-up of the page, sections 1 to 4."""
    with reserved_port() as port:
        made = Sites(tmp_path_factory.mktemp("sites"), port)
        own_files(made)
        files = files_of_the_page()
        for name in ("federation.toml", "run.toml"):
            made.write("store", name, files[name])
        for party in ("store", "browser"):
            made.write(party, "party.toml", files[f"party.toml at {party}"])
        for heading in (
            r"1\. The federation and the run",
            r"2\. A key at every side",
            r"3\. Certificates",
            r"4\. Who is who",
        ):
            for machine, command in commands_of(heading):
                made.type(machine, command)
        try:
            yield made
        finally:
            made.stop()


def test_the_private_key_of_each_side_is_in_its_own_folder_and_nowhere_else(sites):
    """Finding 12: whoever made a run had every private key."""
    keys = sites.private_keys()
    assert sorted(keys.values()) == sorted(MACHINES), "one each, the signer's own included"
    for key, machine in keys.items():
        secret = key.read_bytes().split(b"\n")[1]
        for path in sites.home.rglob("*"):
            if path.is_file() and path.relative_to(sites.home).parts[0] != machine:
                assert secret not in path.read_bytes(), f"{key} is also in {path}"


def test_all_sides_have_the_same_run_and_see_the_same_fingerprints(sites):
    for name in ("run.toml", "federation.toml"):
        texts = {machine: (sites.home / machine / name).read_text() for machine in ("store", "browser", "server")}
        assert len(set(texts.values())) == 1
    for machine, file in (("store", "party.toml"), ("browser", "party.toml"), ("server", "federation.toml")):
        shown = re.search(r"sha256:[0-9a-f]{64}", sites.type(machine, f"fdml keys show {file}"))
        assert f'{machine} = "{shown.group()}"' in texts["server"]


def test_the_run_trains_to_its_end_and_a_renewed_certificate_goes_on_with_it(sites):
    lines = commands_of(r"5\. Train")
    started = {machine: sites.start(machine, command) for machine, command in lines[:2]}
    joining = dict(lines)["browser"]
    before = (sites.home / "browser" / "keys" / "certificate.pem").read_bytes()
    for machine, command in commands_of("Renew a certificate"):
        sites.type(machine, command)
    assert (sites.home / "browser" / "keys" / "certificate.pem").read_bytes() != before
    started["browser"] = sites.start("browser", joining)
    for machine in ("store", "browser", "server"):
        started[machine].expect(0, seconds=_SECONDS)
    for party in ("store", "browser"):
        assert Bundle.load(sites.home / party / RUN / "model").card.party == party
    assert sorted(sites.private_keys().values()) == sorted(MACHINES)


def test_a_member_that_is_revoked_as_the_page_says_is_not_let_in_again(sites):
    for machine, command in commands_of("Revoke a certificate"):
        sites.type(machine, command)
    (sites.home / "browser" / "keys" / "revoked.pem").unlink()  # it does not want to know
    for machine in ("browser", "server"):
        path = sites.home / machine / "run.toml"
        path.write_text(path.read_text().replace('name = "first"', 'name = "second"'))
    server = sites.start("server", "fdml serve federation.toml --run run.toml")
    sites.start("browser", "fdml join party.toml").expect(
        1, "the certificate of 'browser' is revoked", seconds=_SECONDS
    )
    assert server.code is None
    server.send(signal.SIGINT)
    server.wait(_SECONDS)


def test_the_page_says_all_that_is_needed():
    said = {
        command.split()[2] for _, command in re.findall(r"^(\w+)\$ (fdml keys .*)$", PAGE.read_text(), re.MULTILINE)
    }
    assert said == {"request", "sign", "install", "members", "show", "renew", "revoke"}
    assert sys.executable in FDML
