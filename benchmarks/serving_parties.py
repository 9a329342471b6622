"""The federation that `serving` asks: a server, three parties and an endpoint as processes over mutual TLS.

The run is trained on a few rows, and then every party gets its features of all: what a question costs does not
depend on how good the answers are. Beside it a pipeline of scikit-learn stands behind the same HTTP stack, with all
features in its own process.
"""

from __future__ import annotations

import json
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import uvicorn
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from benchmarks.cluster import Cluster
from fdml.errors import ExchangeError, PeerTimeout
from fdml.federation.endpoint import serve_endpoint
from fdml.federation.party_home import PartyHome
from fdml.federation.runs import listing, start
from fdml.federation.scaffold import write_keys
from fdml.federation.serve import serve_federation
from fdml.federation.up import up
from fdml.monitor.listeners import ignore_events
from fdml.serving.online.access import Access
from fdml.serving.online.inference import HEADER_LENGTH, read_request, write_response
from fdml.serving.online.tensors import Output

PARTIES = ("p0", "p1", "p2")
WIDTH = 8
"""Features of each party."""
ENDPOINT, PIPELINE = "endpoint", "pipeline"
_PORT = "port.json"
_DEADLINE = 1800.0


def id_of(row: int) -> str:
    """Of a row."""
    return f"user-{row:08d}"


def write_federation(home: Path, rows: int, trained: int, port: int) -> None:
    """Settings, keys and Parquet files; only the first rows have ids in common before training, so it is short."""
    home.mkdir(parents=True)
    chance = np.random.default_rng(0)
    X = chance.normal(size=(rows, WIDTH * len(PARTIES))).astype(np.float32)
    labels = (X @ chance.normal(size=X.shape[1]) > 0).astype(np.int64)
    np.savez(home / "pooled.npz", X=X, y=labels)
    names = json.dumps(list(PARTIES))
    (home / "federation.toml").write_text(f'name = "bench"\nserver = "127.0.0.1:{port}"\nparties = {names}\n')
    (home / "run.toml").write_text(
        'name = "first"\nlabel_party = "p0"\n[training]\nepochs = 1\nbatch_size = 256\n[evaluation]\nevery = "end"\n'
    )
    write_keys(home, "bench", PARTIES)
    for number, name in enumerate(PARTIES):
        part = X[:, number * WIDTH : (number + 1) * WIDTH]
        write_rows(home, name, part[:trained], labels[:trained])
        label = 'label = "y"\n' if name == "p0" else ""
        (home / name / "party.toml").write_text(
            f'party = "{name}"\nfederation = "../federation.toml"\n[align]\nmax_rows = {10**9}\n'
            f'[data]\npath = "data.parquet"\nid = "id"\n{label}[policy]\naccept = "policy"\n'
        )


def add_rows(home: Path) -> None:
    """Give every party its features of all rows, once the run is trained."""
    pooled = np.load(home / "pooled.npz")
    for number, name in enumerate(PARTIES):
        write_rows(home, name, pooled["X"][:, number * WIDTH : (number + 1) * WIDTH], pooled["y"])


def write_rows(home: Path, name: str, part: np.ndarray[Any, Any], labels: np.ndarray[Any, Any]) -> None:
    """A party's file, in an order of its own."""
    order = np.random.default_rng(len(name) + ord(name[-1])).permutation(len(part))
    columns: dict[str, Any] = {"id": pa.array([id_of(row) for row in order])}
    columns |= {f"x{at}": part[order, at] for at in range(part.shape[1])}
    if name == "p0":
        columns["y"] = labels[order]
    beside = home / name / ".data.parquet"
    pq.write_table(pa.table(columns), beside)
    beside.rename(home / name / "data.parquet")


def stand_by(cluster: Cluster, home: Path, port: int) -> None:
    """Start server and parties, and train the run."""
    for name in ("server", *PARTIES):
        cluster.start(name)
    party = PartyHome.read(home / "p0" / "party.toml", server=f"127.0.0.1:{port}")

    def are_here() -> bool:
        with suppress(ExchangeError):
            return set(listing(party).here) == set(PARTIES)
        return False

    until(are_here)
    start(party, home / "run.toml")
    until(lambda: [each.state for each in listing(party).runs] == ["finished"])


def until(true: Callable[[], bool], pause: float = 0.2) -> None:
    """Wait for something to come about, with a deadline."""
    end = time.monotonic() + _DEADLINE
    while not true():
        if time.monotonic() > end:
            raise PeerTimeout(f"it did not come about within {_DEADLINE:g} s")
        time.sleep(pause)


def live(home: Path, name: str, address: str) -> None:
    """Be one of the processes."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        if name == "server":
            serve_federation(home / "federation.toml", listen=address, on_event=ignore_events)
        elif name == ENDPOINT:
            party = home / "p0" / "party.toml"
            serve_endpoint(
                party, Access(), port=0, server=address, on_start=lambda port, _: note_port(home, name, port)
            )
        elif name == PIPELINE:
            serve_pipeline(home)
        else:
            up(home / name / "party.toml", server=address, on_event=ignore_events)


def serve_pipeline(home: Path) -> None:
    """A pipeline of scikit-learn that knows the features of all rows by their ids, behind the same HTTP stack."""
    pooled = np.load(home / "pooled.npz")
    X, y = pooled["X"], pooled["y"]
    pipeline = make_pipeline(StandardScaler(), LogisticRegression(max_iter=20, tol=1e-2)).fit(X[:5000], y[:5000])
    places = {id_of(row): row for row in range(len(X))}

    async def infer(request: Request) -> Response:
        body = await request.body()
        asked = read_request(body, request.headers.get(HEADER_LENGTH), 2**16)
        rows = X[[places[each] for each in asked.inputs["id"].to_pylist()]]
        chance = pipeline.predict_proba(rows)[:, 1]
        outputs = [(Output("probability", chance.astype(np.float64)), asked.is_binary)]
        content, length = write_response({"model_name": "pipeline", "model_version": "1"}, outputs)
        return Response(content, media_type="application/octet-stream", headers={HEADER_LENGTH: str(length)})

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, as asyncio needs it
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    note_port(home, PIPELINE, listening.getsockname()[1])
    app = Starlette(routes=[Route("/infer", infer, methods=["POST"])])
    config = uvicorn.Config(app, log_config=None, access_log=False, ws="none", server_header=False, proxy_headers=False)
    uvicorn.Server(config).run(sockets=[listening])


def note_port(home: Path, name: str, port: int) -> None:
    """Write down where a process listens."""
    beside = home / f".{name}-{_PORT}"
    beside.write_text(json.dumps(port))
    beside.rename(home / f"{name}-{_PORT}")


def port_of(home: Path, name: str) -> int | None:
    """Where a process listens; None before it does."""
    path = home / f"{name}-{_PORT}"
    return int(path.read_text()) if path.exists() else None
