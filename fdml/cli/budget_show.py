"""The accounts of a party's ledger, for `fdml budget show`: as figures, a table and sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from fdml.party.settings import PartySettings
from fdml.privacy.accounts import LedgerAccounts, RunAccount
from fdml.privacy.ledger import DIRECT, RECORD_LEVEL

_SHORT = 12


def figures_of(book: LedgerAccounts, settings: PartySettings) -> dict[str, Any]:
    """All accounts by data file, what they come to, and what is left; an epsilon of None has no bound."""
    guard = settings.guard
    files: dict[str, dict[str, RunAccount]] = {}
    for name, run in book.runs.items():
        files.setdefault(run.data, {})[name] = run
    record_level = guard.training is not None
    total, spent = guard.total_epsilon, book.spent(guard.delta, record_level=record_level)
    return {
        "ledger": str(settings.ledger),
        "delta": guard.delta,
        "accounts": [_account(data, runs, guard.delta) for data, runs in files.items()],
        "spent": _both_scopes(book, guard.delta),
        "total_epsilon": total,
        "total_scope": RECORD_LEVEL if record_level else DIRECT,
        "left": None if total is None else max(0.0, total - spent),
        "labels": [
            {"column": each.column, "epsilon": each.epsilon, "classes": each.classes, "runs": list(each.runs)}
            for each in book.labels.values()
        ],
        "label_epsilon": {column: _bounded(epsilon) for column, epsilon in book.label_epsilons().items()},
    }


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


def _account(data: str, runs: Mapping[str, RunAccount], delta: float) -> dict[str, Any]:
    first = next(iter(runs.values()))
    return {
        "file": first.file,
        "data": data,
        **_both_scopes(LedgerAccounts(runs), delta),
        "runs": [_run(name, run, delta) for name, run in runs.items()],
    }


def _run(name: str, run: RunAccount, delta: float) -> dict[str, Any]:
    return {
        "run": run.run,
        "life": name,
        "noise": run.mechanism.noise,
        "releases": run.counts.releases,
        "evaluations": run.counts.held_out,
        "exact_evaluation": bool(run.counts.exact),
        "uses": run.counts.uses,
        **_both_scopes(LedgerAccounts({name: run}), delta),
    }


def _both_scopes(book: LedgerAccounts, delta: float) -> dict[str, float | None]:
    return {
        "direct": _bounded(book.spent(delta, record_level=False)),
        "record_level": _bounded(book.spent(delta, record_level=True)),
    }


def _scope_texts(figures: Mapping[str, Any]) -> tuple[str, str]:
    return _text(figures["direct"]), _text(figures["record_level"])


def _text(epsilon: float | None) -> str:
    return "no bound" if epsilon is None else f"{epsilon:.4g}"


def _bounded(epsilon: float) -> float | None:
    return None if math.isinf(epsilon) else epsilon
