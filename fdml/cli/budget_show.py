"""The accounts of a party's ledger, for `fdml budget show`: as a table and sentences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from fdml.privacy.ledger import DIRECT, RECORD_LEVEL

_SHORT = 12


def table_of(figures: Mapping[str, Any]) -> Table:
    """One line for each run, under its data file."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("data file", "run"):
        table.add_column(heading)
    for heading in ("releases", "evaluations", "direct", "record level"):
        table.add_column(heading, justify="right")
    for account in figures["accounts"]:
        table.add_row(f"{account['file']} ({account['data'][:_SHORT]})", "all", "", "", *_scope_texts(account))
        for run in account["runs"]:
            table.add_row("", run["run"], str(run["releases"]), str(run["evaluations"]), *_scope_texts(run))
    return table


def lines_of(figures: Mapping[str, Any]) -> list[str]:
    """What the table comes to, and what it means."""
    direct, record_level = _scope_texts(figures["spent"])
    lines = [
        f"epsilon spent of a row that was in all of these runs, at delta {figures['delta']:g}:",
        f"  direct: {direct} ({DIRECT})",
        f"  {RECORD_LEVEL.replace(': ', f': {record_level} (', 1)})",
    ]
    for column, epsilon in figures["label_epsilon"].items():
        ways = sum(each["column"] == column for each in figures["labels"])
        lines.append(f"  labels {column!r}: {_text(epsilon)} (shown in {ways} way{'s' * (ways != 1)})")
    if figures["total_epsilon"] is None:
        lines.append("no total is set: guard.total_epsilon would refuse runs beyond one")
    else:
        lines.append(f"left of guard.total_epsilon {figures['total_epsilon']:g}: {figures['left']:.4g}")
    return [*lines, "rows of all files are taken to be the same people: the sums hold for each of them"]


def _scope_texts(figures: Mapping[str, Any]) -> tuple[str, str]:
    return _text(figures["direct"]), _text(figures["record_level"])


def _text(epsilon: float | None) -> str:
    return "no bound" if epsilon is None else f"{epsilon:.4g}"
