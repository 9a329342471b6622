"""A standing server in a thread of the test process, on plain lines."""

from __future__ import annotations

import asyncio
import contextlib
import threading

from fdml.federation.party_home import PartyHome
from fdml.federation.serve import serve_federation
from tests.federation.homes import write_homes
from tests.transport.served import SECONDS, until


class ServedFederation:
    """Use it as a context; it can be stopped and started again at the same port."""

    def __init__(self, folder, party="", **options):
        self.folder = write_homes(folder, party=f"[align]\nmax_rows = 100\n{party}", **options)
        self.events = []
        self._port = 0
        self._port_file = folder / "port"

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self._port_file.unlink(missing_ok=True)
        self._stop = None
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        until(self._port_file.exists, "the server")
        self._port = int(self._port_file.read_text())

    def stop(self):
        if self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._stop()
            self._thread.join(SECONDS)
            assert not self._thread.is_alive()

    @property
    def address(self):
        return f"127.0.0.1:{self._port}"

    def home(self, party):
        return PartyHome.read(self.folder / party / "party.toml", plain=True, server=self.address)

    def _serve(self):
        def started(stop):
            self._stop = stop

        with contextlib.suppress(asyncio.CancelledError):
            serve_federation(
                self.folder / "federation.toml",
                plain=True,
                listen=f"127.0.0.1:{self._port}",
                port_file=self._port_file,
                on_event=self.events.append,
                on_start=started,
            )
