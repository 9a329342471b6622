"""The accounts of a party's ledger as figures, for `fdml budget show` and the live page."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fdml.party.settings import PartySettings
from fdml.privacy.accounts import LedgerAccounts, RunAccount
from fdml.privacy.ledger import DIRECT, RECORD_LEVEL


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


def _bounded(epsilon: float) -> float | None:
    return None if math.isinf(epsilon) else epsilon
