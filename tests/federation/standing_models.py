"""A standing server and parties in threads of the test process, with a run that was trained over it and is published."""

from __future__ import annotations

import threading

from fdml.federation.join import join
from fdml.federation.up import up
from tests.federation.folders import together
from tests.federation.served_federation import ServedFederation
from tests.serving.trained import PARTIES, write_federation
from tests.transport.served import SECONDS, until


class StandingModels(ServedFederation):
    """Use it as a context. Parties stand by only once `up` is called for them."""

    def __init__(self, folder, **options):
        self.run_toml = write_federation(folder, **options)
        self.parties = options.get("parties", PARTIES)
        self.folder, self.events = folder, []
        self._port, self._port_file = 0, folder / "port"
        self._up = {}

    def __exit__(self, *_):
        for party in list(self._up):
            self.down(party)
        super().__exit__()

    def train(self):
        """All parties join at once; the run is finished at the server when this returns."""
        together(
            *(
                lambda name=name: join(self.party(name), plain=True, server=self.address, yes=True)
                for name in self.parties
            )
        )
        until(lambda: self.state() == "finished", "the end of the run")

    def state(self, name="first"):
        with self.home("ann").client() as client:
            found = client.run(name)
        return None if found is None else found.state

    def party(self, name):
        return self.folder / name / "party.toml"

    def up(self, *names):
        """Let parties stand by."""
        for name in names:
            over, told = threading.Event(), []
            thread = threading.Thread(
                target=up,
                args=(self.party(name),),
                kwargs={"plain": True, "server": self.address, "is_over": over.is_set, "on_event": told.append},
                daemon=True,
            )
            thread.start()
            self._up[name] = (over, thread, told)

    def down(self, name):
        """End a party that stands by."""
        over, thread, _ = self._up.pop(name)
        over.set()
        thread.join(SECONDS)
        assert not thread.is_alive()
