"""How fast are joint predictions? Single rows over HTTP, and batches, of three parties as processes over mutual TLS.

Server, parties, endpoint and callers share this machine. A share is a difference: of a request over HTTP and a question
asked in Python; of that and one to parties in the same process.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.cluster import Cluster
from benchmarks.http_load import Load, load, request
from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from benchmarks.ports import reserved_port
from benchmarks.serving_parties import (
    ENDPOINT,
    PARTIES,
    PIPELINE,
    add_rows,
    id_of,
    live,
    port_of,
    stand_by,
    until,
    write_federation,
)
from fdml.errors import ExchangeError, PeerTimeout, RequestRefused
from fdml.federation.asked_files import asked_file
from fdml.federation.predicting import answerer_of, asking
from fdml.federation.run_folder import RUNS
from fdml.party.settings import read_party
from fdml.serving.asking import AskedRows, Asker
from fdml.serving.batch import predict_batch
from fdml.serving.client import EndpointClient
from fdml.serving.local_line import LocalLine
from fdml.serving.publication import FOLDER, Publication

CALLERS = 16
_DEADLINE = 1800.0
_TRAINED = 2000
_AT_ONCE = 50_000
"""Rows of one request of a batch over HTTP."""
_PATH = "/v2/models/first/infer"


def run(progress: Progress, rows: int = 1_000_000, rounds: int = 5, seconds: float = 5.0) -> Report:
    """Ask for rows one by one and in batches."""
    facts = machine()
    with tempfile.TemporaryDirectory(prefix="fdml-serving-") as folder, reserved_port() as port:
        home = Path(folder) / "home"
        write_federation(home, rows, min(rows, _TRAINED), port)
        cluster = Cluster(home, port, _DEADLINE, live)
        try:
            _prepare(cluster, home, port, rows, progress)
            results, ratios = _measure(home, rows, rounds, seconds, progress)
        finally:
            cluster.stop()
    question = (
        f"How fast are joint predictions of {len(PARTIES)} parties with {rows:,} rows each, asked one by one by "
        f"{CALLERS} callers, and in batches?"
    )
    return Report("serving", question, results, ratios, facts, commit())


def _prepare(cluster: Cluster, home: Path, port: int, rows: int, progress: Progress) -> None:
    """Train on a few rows, give the parties all of theirs, and start the endpoints."""
    stand_by(cluster, home, port)
    progress("the run is trained")
    add_rows(home)
    for name in (ENDPOINT, PIPELINE):
        cluster.start(name)
    until(lambda: all(port_of(home, name) is not None for name in (ENDPOINT, PIPELINE)))
    with EndpointClient(f"http://127.0.0.1:{port_of(home, ENDPOINT)}") as client:
        until(lambda: _answers(client, id_of(rows - 1)))
    progress(f"all {rows:,} rows can be asked for")


def _answers(client: EndpointClient, row: str) -> bool:
    with suppress(ExchangeError, RequestRefused):
        return bool(client.predict("first", [row]).answered[0] == ",".join(PARTIES))
    return False


def _measure(
    home: Path, rows: int, rounds: int, seconds: float, progress: Progress
) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    chance = np.random.default_rng(1)
    some = [id_of(at) for at in chance.integers(0, rows, 5000)]
    single = {
        ENDPOINT: [request(_PATH, [each]) for each in some],
        PIPELINE: [request("/infer", [each]) for each in some],
    }
    whole = [id_of(at) for at in chance.permutation(rows)]
    many = [whole[first : first + _AT_ONCE] for first in range(0, rows, _AT_ONCE)]
    ports = {name: port_of(home, name) or 0 for name in single}
    singles: dict[str, list[Load]] = {name: [] for name in single}
    batches: dict[str, list[float]] = {"HTTP": [], "pipeline": [], "fdml predict": []}
    alone: dict[str, list[float]] = {"request": [], "question": [], "in process": []}
    with asking(home / "p0" / "party.toml") as asker:
        local = _local(home)
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            for name, requests in single.items():
                singles[name].append(load(ports[name], requests, CALLERS, seconds))
            batches["HTTP"].append(_http_rows(ports[ENDPOINT], _PATH, many))
            batches["pipeline"].append(_http_rows(ports[PIPELINE], "/infer", many))
            batches["fdml predict"].append(_predicted(home, asker, whole))
            alone["request"].append(load(ports[ENDPOINT], single[ENDPOINT], 1, seconds / 5).quantile(0.5))
            alone["question"].append(_asked(asker, some[:200]))
            alone["in process"].append(_asked(local, some[:200]))
    return _results(singles, batches, alone), _ratios(singles, batches)


def _results(
    singles: dict[str, list[Load]], batches: dict[str, list[float]], alone: dict[str, list[float]]
) -> list[dict[str, Any]]:
    found = []
    for name, what in ((ENDPOINT, "joint"), (PIPELINE, "scikit-learn in one process")):
        loads = singles[name]
        found += [
            row(f"{what}: single rows, {CALLERS} callers", [each.per_second for each in loads], "requests/s"),
            row(f"{what}: single rows, p50", [1e3 * each.quantile(0.5) for each in loads], "ms"),
            row(f"{what}: single rows, p99", [1e3 * each.quantile(0.99) for each in loads], "ms"),
        ]
    found += [
        row("joint: batch by fdml predict", batches["fdml predict"], "rows/s"),
        row(f"joint: batch over HTTP, {_AT_ONCE:,} rows a request", batches["HTTP"], "rows/s"),
        row(
            f"scikit-learn in one process: batch over HTTP, {_AT_ONCE:,} rows a request", batches["pipeline"], "rows/s"
        ),
    ]
    pairs = zip(alone["request"], alone["question"], alone["in process"], strict=True)
    shares = [(request - question, question - local, local) for request, question, local in pairs]
    names = ("HTTP", "exchange", "look-up, tokens and seals")
    found.append(row("one caller, one row: all", [1e3 * each for each in alone["request"]], "ms"))
    found += [
        row(f"one caller, one row: {name}", [1e3 * each[at] for each in shares], "ms") for at, name in enumerate(names)
    ]
    return found


def _ratios(singles: dict[str, list[Load]], batches: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    joint = singles[ENDPOINT]
    return {
        "single-row requests a second / 500": {**spread([each.per_second / 500 for each in joint]), "target": 1.0},
        "50 ms / p99 of single rows": {**spread([0.05 / each.quantile(0.99) for each in joint]), "target": 1.0},
        "rows a second in batch / 300,000": {
            **spread([each / 300_000 for each in batches["fdml predict"]]),
            "target": 1.0,
        },
    }


def _http_rows(port: int, path: str, parts: Sequence[Sequence[str]]) -> float:
    """Rows a second, of two callers."""
    requests = [request(path, part) for part in parts]
    found = load(port, requests, 2, 3.0)
    return len(found.latencies) * len(parts[0]) / found.seconds


def _predicted(home: Path, asker: Asker, ids: Sequence[str]) -> float:
    """Rows a second, from a Parquet file to a Parquet file."""
    file, out = home / "ids.parquet", home / "scores.parquet"
    pq.write_table(pa.table({"id": ids}), file)
    table = asked_file(file, read_party(home / "p0" / "party.toml"), asker.own.run).table
    began = time.perf_counter()
    result = predict_batch(asker, table, out)
    spent = time.perf_counter() - began
    if result.scored != len(ids):
        raise PeerTimeout(f"{len(ids) - result.scored} rows have no score: {result.why}")
    return len(ids) / spent


def _asked(asker: Asker, ids: Sequence[str]) -> float:
    """Seconds of a question for one row."""
    seconds = []
    for each in ids:
        began = time.perf_counter()
        asker.ask(AskedRows(pa.array([each], pa.large_string())))
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def _local(home: Path) -> Asker:
    """The same question to parties in this process."""
    found = {name: Publication.load(home / name / RUNS / "first" / FOLDER) for name in PARTIES}
    answerers = {name: answerer_of(read_party(home / name / "party.toml"), found[name]) for name in PARTIES[1:]}
    return Asker(found["p0"], LocalLine("p0", answerers, PARTIES))
