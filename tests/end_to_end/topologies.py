"""Runs of one set of rows on several topologies: over a server, at a party that hosts it, without any."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow.csv as pacsv

from benchmarks.ports import reserved_port
from fdml.align.party_secrets import Secrets
from fdml.errors import ExchangeError
from fdml.federation.alignment_folders import alignment_folder
from fdml.federation.key_files import read_credentials
from fdml.monitor.status import RunStatus
from fdml.settings.federation import read_run
from fdml.storage.disk import FolderDisk
from fdml.storage.two_slots import TwoSlots
from fdml.transport.grpc_endpoint import Endpoint
from fdml.transport.grpc_status import ask_status
from tests.end_to_end.cluster import RUN, Cluster, Started

PARTIES = ("ann", "bob", "cat", "dan", "eve")
BLIND = '\n[privacy]\nserver = "blind"\n'


class Topology(Cluster):
    """A cluster whose server is a process of its own or inside the first party's, or that has none.

    In a "tunnel" there is none either, and the last party accepts no connections.
    """

    def __init__(self, home: Path, kind: str, parties: Sequence[str], rows: int = 400, **training: object) -> None:
        self.kind = kind
        super().__init__(home, parties, rows, **training)
        run = home / "run.toml"
        run.write_text('align = "ecdh"\n' + run.read_text() + BLIND)
        if kind == "host":
            self.change("parties =", f'host = "{parties[0]}"\nparties =', "federation.toml")
        if kind in ("mesh", "tunnel"):
            self._reach_each_other()
        fix_scalars(home)

    def _reach_each_other(self) -> None:
        ports = {party: self._held.enter_context(reserved_port()) for party in self.parties}
        self.port = ports[self.parties[0]]
        path = self.home / "federation.toml"
        lines = [line for line in path.read_text().splitlines() if not line.startswith("server =")]
        if self.kind == "tunnel":  # the last party accepts no connections
            own = self.home / self.parties[-1] / "party.toml"
            own.write_text(f'listen = "127.0.0.1:{ports.pop(self.parties[-1])}"\n' + own.read_text())
        listed = [f'{party} = "127.0.0.1:{port}"' for party, port in ports.items()]
        path.write_text("\n".join(['server = "none"', *lines, "[addresses]", *listed]) + "\n")

    def status(self) -> RunStatus:
        """What the server says of the run, or the first party's own session."""
        party = self.parties[0]
        answers = party if self.kind in ("mesh", "tunnel") else ""
        keys = read_credentials(self.home / party / "keys")
        return ask_status(Endpoint(f"127.0.0.1:{self.port}", "e2e", party, keys, answers_as=answers))

    @property
    def sides(self) -> tuple[str, ...]:
        """Every process there is."""
        return (*(["server"] if self.kind == "server" else []), *self.parties)

    def launch(self, side: str, *words: str) -> Started:
        """Start one of them, for the first time or again."""
        return self.serve(*words) if side == "server" else self.join(side, *words)

    def stand_by(self) -> None:
        """Let every process stand by, for runs and for questions."""
        if self.kind == "server":
            self._start("server", Started, "serve", self.home / "federation.toml")
        for party in self.parties:
            self.up(party)

    def up(self, party: str) -> Started:
        """Let a party stand by, for the first time or again."""
        return self._start(party, Started, "up", self.home / party / "party.toml")

    def start_command(self, *words: object) -> Started:
        """Start a command that names its party itself."""
        return self._start(str(words[0]), Started, *words)

    def has_served(self, run: str, step: int) -> bool:
        """Whether the first party was served a step of a run that parties who stand by have."""
        party = self.parties[0]
        keys, answers = read_credentials(self.home / party / "keys"), "" if self.kind in ("server", "host") else party
        try:
            endpoint = Endpoint(f"127.0.0.1:{self.port}", "e2e", party, keys, run=run, answers_as=answers)
            found = {each.name: each.served for each in ask_status(endpoint).parties}
        except ExchangeError:
            return False
        return found[party] >= step

    def parameters(self) -> dict[str, bytes]:
        """Every party's parameters."""
        return {party: (self.home / party / RUN / "model" / "parameters.npz").read_bytes() for party in self.parties}

    def ask(self, command: str, *words: object, party: str = "", code: int = 0) -> str:
        """What a command of a party's operator says; of the first party, by default."""
        started = self._start(command, Started, command, self.home / (party or self.parties[0]) / "party.toml", *words)
        return started.expect(code)

    def predict(self, out: Path, *words: object, party: str = "") -> dict[str, list[object]]:
        """The answers for all ids of the first party, once all parties answer."""
        command = ("--ids", self.home / self.parties[0] / "data.csv", "--out", out, "--retry", 20, *words)
        self.ask("predict", *command, party=party)
        found: dict[str, list[object]] = pacsv.read_csv(out).to_pydict()
        return found

    def run(self, seconds: float = 60.0) -> dict[str, str]:
        """All of them to the end; gives the hash of every model."""
        for side in self.sides:
            self.launch(side)
        for side in self.sides:
            self.members[side].expect(0, seconds=seconds)
        return self.model_hashes()


def fix_scalars(home: Path) -> None:
    """Have every party blind its ids as in any other run: then the rows come in the same order."""
    run = read_run(home / "run.toml")
    for number, party in enumerate(run.parties):
        disk, keys = FolderDisk(alignment_folder(home / party, run)), read_credentials(home / party / "keys")
        drawn = Secrets.load_or_make(disk, run, party, keys)
        stored = json.loads(TwoSlots(disk, "align-secrets").load() or b"")
        stored["values"]["scalar"] = bytes([number + 1] * len(drawn.scalar)).hex()
        TwoSlots(disk, "align-secrets").save(json.dumps(stored).encode())


@contextlib.contextmanager
def topology(
    home: Path, kind: str, parties: Sequence[str] = PARTIES[:2], rows: int = 400, **training: object
) -> Iterator[Topology]:
    """One that is stopped at the end."""
    made = Topology(home, kind, parties, rows, **training)
    try:
        yield made
    finally:
        made.stop()
