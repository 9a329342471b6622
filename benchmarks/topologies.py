"""Runs of the same rows over a server, at a party that hosts it, and without any, over lines of any delay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.cluster import Cluster, write_run
from benchmarks.network_profiles import LOOPBACK, NetworkProfile, proxies
from benchmarks.ports import reserved_port
from fdml.federation.join import join
from fdml.federation.machine_limits import tune_party_process
from fdml.federation.run_folder import RUNS, STATE
from fdml.federation.serve import serve
from fdml.monitor.listeners import ignore_events

Kind = Literal["server", "host", "mesh"]
KINDS: tuple[Kind, ...] = ("server", "host", "mesh")
_BLIND = 'align = "ecdh"\n{settings}\n[privacy]\nserver = "blind"\n'
_SECONDS = 300.0


@contextmanager
def topology(
    home: Path,
    kind: Kind,
    settings: str,
    parts: Sequence[NDArray[np.float32]],
    labels: NDArray[np.int64],
    models: Sequence[str],
    line: NetworkProfile = LOOPBACK,
) -> Iterator[Cluster]:
    """The processes of such a run, started; whatever still runs at the end is killed.

    Every line between two machines of the run has the delay of `line`; a party's own session is on its machine.
    """
    names = [f"p{number}" for number in range(len(parts))]
    write_run(home, _BLIND.format(settings=settings), parts, labels, models)
    with ExitStack() as held:
        listening = ["server"] if kind == "server" else names[:1] if kind == "host" else names
        ports = {name: held.enter_context(reserved_port()) for name in listening}
        reached = {name: held.enter_context(proxies(port, line, 1))[0] for name, port in ports.items()}
        _write(home, kind, names, ports, reached)
        cluster = Cluster(home, ports[listening[0]], _SECONDS, live)
        try:
            for name in sides(kind, names):
                cluster.start(name)
            yield cluster
        finally:
            cluster.stop()


def sides(kind: Kind, names: Sequence[str]) -> tuple[str, ...]:
    """Every process of such a run."""
    return (*(("server",) if kind == "server" else ()), *names)


def state_at(home: Path, kind: Kind, party: str) -> Path:
    """Where the session that serves a party keeps the run."""
    return (home / party if kind == "mesh" else home) / "server" / RUNS / "first" / STATE


def live(home: Path, name: str, address: str) -> None:
    """Be the server of a run or one of its parties, to the end."""
    if name == "server":
        serve(home / "federation.toml", home / "run.toml", listen=address, on_event=ignore_events)
    else:
        tune_party_process()
        join(home / name / "party.toml", on_event=ignore_events)


def _write(home: Path, kind: Kind, names: Sequence[str], ports: dict[str, int], reached: dict[str, int]) -> None:
    federation = home / "federation.toml"
    text = federation.read_text()
    if kind == "mesh":
        text = "\n".join(line for line in text.splitlines() if not line.startswith("server ="))
        listed = "\n".join(f'{name} = "127.0.0.1:{port}"' for name, port in reached.items())
        text = f'server = "none"\n{text}\n[addresses]\n{listed}\n'
    else:
        (port,) = reached.values()
        host = f'host = "{names[0]}"\n' if kind == "host" else ""
        text = text.replace('server = "127.0.0.1:0"\n', f'server = "127.0.0.1:{port}"\n{host}')
    federation.write_text(text)
    for name in names:
        if name in ports:
            own = home / name / "party.toml"
            own.write_text(f'listen = "127.0.0.1:{ports[name]}"\n' + own.read_text())
