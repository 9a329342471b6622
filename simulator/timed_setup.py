"""What is simulated in virtual time, what it costs, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Costs:
    """Seconds of one core."""

    train_row: float
    predict_row: float
    carry_row: float
    """At a party: what a row costs on its way out and back, encoding and encryption included."""
    party_step: float
    """At a party, for a step whatever its rows."""
    server_row: float
    """At the server, for each row of each push, all that happens to it included."""
    server_push: float
    """At the server, for a push whatever its rows, its part of the log's sync included."""
    hand_over: float
    """At a party, to give a shard its part of a step and take the change of parameters back."""


@dataclass(frozen=True)
class Setup:
    """What is run. Bandwidths are bytes a second each way."""

    parties: int = 3
    rows: int = 1_000_000
    blocks: int = 16
    """Exchanges of an epoch."""
    lookahead: int = 1
    shards: int = 1
    """Cores that share a party's kernels."""
    round_trip: float = 0.0
    line: float = 125e6
    """Of a party."""
    server_line: float = 1.25e9
    row_bytes: int = 2
    cores: int = 0
    """That all processes share; 0 gives each its own."""
    server_cores: int = 1
    slowest: float = 1.0
    """By how much the last party's kernels are slower than the others'."""

    @property
    def block_rows(self) -> float:
        """Rows of a block."""
        return self.rows / self.blocks


@dataclass(frozen=True)
class Timed:
    """How long an epoch took, and which part of it each side was busy."""

    seconds: float
    party: float
    """Share of the time in which the busiest party computed."""
    server: float
    """Share in which the server's cores did."""
    line: float
    """Share in which the busiest line carried bytes."""
    server_line: float

    @property
    def bound_by(self) -> str:
        """What was busy for most of the time; waiting, where nothing was."""
        shares = {
            "party": self.party,
            "server": self.server,
            "party's line": self.line,
            "server's line": self.server_line,
        }
        most = max(shares, key=lambda name: shares[name])
        return most if shares[most] > 0.6 else "round trips"
