"""Parties that stand by without a server, in threads of the test process, on plain lines."""

from __future__ import annotations

import contextlib
import threading

from benchmarks.ports import reserved_port
from fdml.federation.join import join
from fdml.federation.party_home import PartyHome
from fdml.federation.up import up
from tests.federation.folders import together
from tests.serving.trained import PARTIES, write_federation
from tests.transport.served import SECONDS

BLIND = '\n[privacy]\nserver = "blind"\n'


def without_a_server(folder, parties, held, hidden=""):
    """Let federation.toml say where each party is reached; a hidden one accepts no connections."""
    ports = {name: held.enter_context(reserved_port()) for name in parties}
    path = folder / "federation.toml"
    lines = ["" if line.startswith("server =") else line for line in path.read_text().splitlines()]
    if hidden:
        own = folder / hidden / "party.toml"
        own.write_text(f'listen = "127.0.0.1:{ports.pop(hidden)}"\n' + own.read_text())
    listed = [f'{name} = "127.0.0.1:{port}"' for name, port in ports.items()]
    path.write_text("\n".join(['server = "none"', *lines, "[addresses]", *listed]) + "\n")
    run = folder / "run.toml"
    run.write_text('align = "ecdh"\n' + run.read_text() + BLIND)


class StandingMesh:
    """Use it as a context. Parties stand by only once `up` is called for them."""

    address = None
    """There is no server."""

    def __init__(self, folder, hidden="", **options):
        self.folder, self._held, self._up = folder, contextlib.ExitStack(), {}
        self.run_toml = write_federation(folder, **options)
        self.parties = options.get("parties", PARTIES)
        without_a_server(folder, self.parties, self._held, hidden)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for over, *_ in self._up.values():
            over.set()
        for party in list(self._up):
            self.down(party)
        self._held.close()

    def train(self):
        """All parties join at once, each with a session for the one run."""
        together(*(lambda name=name: join(self.party(name), plain=True, yes=True) for name in self.parties))

    def party(self, name):
        return self.folder / name / "party.toml"

    def home(self, name):
        return PartyHome.read(self.party(name), plain=True)

    def up(self, *names):
        """Let parties stand by."""
        for name in names:
            over, told, errors = threading.Event(), [], []
            thread = threading.Thread(target=self._stand, args=(name, over, told, errors), daemon=True)
            thread.start()
            self._up[name] = (over, thread, told, errors)

    def down(self, name):
        """End a party that stands by."""
        over, thread, _, errors = self._up.pop(name)
        over.set()
        thread.join(SECONDS)
        assert not thread.is_alive()
        assert not errors

    def told(self, name):
        """What a party that stands by has said."""
        return [each.text for each in self._up[name][2] if hasattr(each, "text")]

    def _stand(self, name, over, told, errors):
        try:
            up(self.party(name), plain=True, is_over=over.is_set, on_event=told.append)
        except BaseException as error:
            errors.append(error)
            raise
