"""What would more rows, parties, shards or a longer line take? The real sessions in virtual time, with measured costs.

An epoch is simulated (`simulator/timed.py`), as no machine here has 50 parties or a billion rows. What a row and a
message cost was measured on one machine; every process is given a core of its own unless it says otherwise.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from benchmarks.machine import commit, machine
from benchmarks.measure import Progress, Report, row, spread
from fdml.protocol.agreed_training import agreed_training
from fdml.settings import TrainingSettings
from simulator.timed import epoch_of
from simulator.timed_setup import Costs, Setup, Timed

MEASURED = Costs(
    train_row=53e-9,
    predict_row=15.5e-9,
    carry_row=11e-9,
    party_step=0.65e-3,
    server_row=12e-9,
    server_push=1.06e-3,
    hand_over=0.65e-3,
)
"""LR with 20 non-zeros a row at each party. Rows: docs/performance.md, "Where the time of a step goes" (808baf3), the
server's 36 ms for three parties' million rows. A push at the server: 158 - 50 ms for 34 steps of three parties
(2f3dcdb). A step at a party and a hand-over: a message between local processes (benchmarks/results/exchange.json)."""
_LINES = {"100 Mbit/s": 12.5e6, "1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9}
_MILLION = 1_000_000
_MOST = 64
_KNOWN = {"an epoch of 1 M rows on 2 cores, 5 exchanges": (0.148, Setup(rows=_MILLION, blocks=5, cores=2))}
"""Measured seconds (808baf3) of what can be measured here, beside the same simulated."""


def exchanges(rows: int, parties: int) -> int:
    """How many exchanges an epoch has by default; no more than 64, which larger blocks give for more rows."""
    agreed = agreed_training(TrainingSettings(), rows, parties)
    return min(_MOST, -(-rows // (agreed.batch_size * int(agreed.batches_per_block))))


def setups() -> dict[str, Setup]:
    """All that is simulated, by name."""
    base, found = Setup(), {}
    for name, line in _LINES.items():
        for millions in (1, 10, 100, 1000):
            found[f"{millions:,} M rows, {name}"] = replace(base, rows=millions * _MILLION, line=line)
    for parties in (2, 3, 5, 10, 20, 50):
        several = replace(base, rows=10 * _MILLION, parties=parties)
        found[f"10 M rows, {parties} parties"] = several
        found[f"10 M rows, {parties} parties, server with 8 cores"] = replace(several, server_cores=8)
    for shards in (1, 2, 4, 8, 16):
        found[f"100 M rows, {shards} shards"] = replace(base, rows=100 * _MILLION, shards=shards)
    for milliseconds in (0, 20, 100):
        for lookahead in (0, 1, 2, 4):
            far = replace(base, rows=_MILLION, round_trip=milliseconds / 1000, lookahead=lookahead)
            found[f"1 M rows, {milliseconds} ms, lookahead {lookahead}"] = far
    found["10 M rows, one party half as fast"] = replace(base, rows=10 * _MILLION, slowest=2.0)
    found["1,000 M rows, 50 parties, 8 shards, server with 16 cores, 10 Gbit/s"] = replace(
        base, rows=1000 * _MILLION, parties=50, shards=8, server_cores=16, line=1.25e9, server_line=12.5e9
    )
    return {name: _with_exchanges(setup) for name, setup in found.items()}


def _with_exchanges(setup: Setup) -> Setup:
    return replace(setup, blocks=exchanges(setup.rows, setup.parties))


def run(progress: Progress) -> Report:
    """Simulate all setups."""
    before, results = machine(), []
    for name, setup in setups().items():
        progress(name)
        results.append(_line(name, setup, epoch_of(setup, MEASURED)))
    ratios = {}
    for name, (seconds, setup) in _KNOWN.items():
        ratios[f"{name}: simulated/measured"] = spread([epoch_of(setup, MEASURED).seconds / seconds])
    question = "How long would an epoch take, and what would be busy most of the time? Simulated, with measured costs."
    return Report("scale", question, results, ratios, before, commit())


def _line(name: str, setup: Setup, found: Timed) -> dict[str, Any]:
    figures = row(f"{name}: bound by {found.bound_by}", [found.seconds], "seconds an epoch")
    return {**figures, "bound_by": found.bound_by, "busy": asdict(found), "setup": asdict(setup)}
