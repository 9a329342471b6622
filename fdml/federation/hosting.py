"""A server in a thread of a party's own process: that of all, at the `host`, or its own, where there is no server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Protocol

from fdml.errors import FdmlError
from fdml.events import Event, Listener, Remark
from fdml.federation.mesh import Mesh
from fdml.federation.page_process import reached_here
from fdml.federation.serve import Stop, serve_federation, serve_run
from fdml.federation.standing import STANDING
from fdml.protocol.certificates import SERVER
from fdml.settings import RunSettings
from fdml.storage.lock import is_locked


class Serve(Protocol):
    """A server that runs until it has ended, or was stopped."""

    def __call__(
        self, *, on_event: Listener, on_start: Callable[[Stop], None], on_listen: Callable[[str], None]
    ) -> object:
        """Serve."""
        ...


def hosts(party: str, host: str | None, federation: Path) -> bool:
    """Whether a party's process has to run the server: it is the host, and no standing one of it does."""
    return party == host and not is_locked(federation.parent / SERVER / STANDING)


@contextmanager
def hosted_run(
    path: Path,
    run: RunSettings,
    *,
    plain: bool,
    listen: str | None,
    port_file: Path | None,
    on_event: Listener,
    mesh: Mesh | None = None,
) -> Iterator[str]:
    """Serve a run while the block goes on and until all parties have finished; gives where the server is reached.

    `path` is the federation.toml; where there is no server (`mesh`), the party.toml of whoever sums for itself.
    """
    party = "" if mesh is None else mesh.party

    def serve(*, on_event: Listener, on_start: Callable[[Stop], None], on_listen: Callable[[str], None]) -> object:
        return serve_run(
            path,
            run,
            plain=plain,
            listen=listen,
            port_file=port_file,
            on_event=on_event,
            on_start=on_start,
            on_listen=on_listen,
            party=party,
            tunnels=None if mesh is None else mesh.tunnels,
        )

    with ServerThread(serve, on_event) as server, ExitStack() as tunnels:
        address = reached_here(server.address)
        if mesh is not None:
            tunnels.enter_context(mesh.way_back(address))
        yield address
        on_event(Remark(party or SERVER, "the others need this process until all have finished; then it ends"))
        server.wait()


@contextmanager
def hosted_federation(
    path: Path, *, plain: bool, listen: str | None, on_event: Listener, mesh: Mesh | None = None
) -> Iterator[str]:
    """Serve all runs of a federation while the block goes on; gives where the server is reached.

    `path` is as `hosted_run` takes it.
    """

    def serve(*, on_event: Listener, on_start: Callable[[Stop], None], on_listen: Callable[[str], None]) -> object:
        serve_federation(
            path,
            plain=plain,
            listen=listen,
            on_event=on_event,
            on_start=on_start,
            on_listen=on_listen,
            party="" if mesh is None else mesh.party,
            tunnels=None if mesh is None else mesh.tunnels,
        )
        return None

    with ServerThread(serve, on_event) as server, ExitStack() as tunnels:
        address = reached_here(server.address)
        if mesh is not None:
            mesh.store_ports()
            tunnels.enter_context(mesh.way_back(address))
        yield address


class ServerThread:
    """A server in a thread. Entering waits until it listens; leaving stops it, and raises what has ended it before."""

    def __init__(self, serve: Serve, on_event: Listener) -> None:
        """Of the server's events only remarks reach `on_event`: the others tell a party what it knows of itself."""
        self._serve = serve
        self._on_event = on_event
        self._changed = threading.Condition()
        self._stop: Stop | None = None
        self._error: FdmlError | None = None
        self._has_ended = False
        self.address = ""
        """Where it listens."""
        self._thread = threading.Thread(target=self._run, name="server", daemon=True)

    def __enter__(self) -> ServerThread:
        self._thread.start()
        with ExitStack() as interrupted:
            interrupted.callback(self._end)
            with self._changed:
                self._changed.wait_for(lambda: bool(self.address) or self._has_ended)
            interrupted.pop_all()
        self._check()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._end()
        if kind is None or isinstance(error, FdmlError):
            self._check()

    def wait(self) -> None:
        """Wait until it ends by itself; raises what has ended it."""
        with self._changed:
            self._changed.wait_for(lambda: self._has_ended)
        self._check()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _end(self) -> None:
        with self._changed:
            if self._stop is not None and not self._has_ended:
                with suppress(RuntimeError):  # its loop has just ended
                    self._stop()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._serve(on_event=self._heard, on_start=self._started, on_listen=self._listens)
        except asyncio.CancelledError:
            pass
        except FdmlError as error:
            self._error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _started(self, stop: Stop) -> None:
        with self._changed:
            self._stop = stop

    def _listens(self, address: str) -> None:
        with self._changed:
            self.address = address
            self._changed.notify_all()

    def _heard(self, event: Event) -> None:
        if isinstance(event, Remark):
            self._on_event(event)
