"""Parts of the live page that are made of a party's own files: privacy, accounts, rows, lag, settings, its own time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fdml.errors import FdmlError
from fdml.federation.run_record import RunRecord
from fdml.federation.run_report import flat
from fdml.monitor.measures import Measures
from fdml.party.account_figures import figures_of
from fdml.party.settings import PartySettings
from fdml.privacy.accounts import AccountFile
from fdml.settings import GuardSettings, run_hash
from fdml.storage.disk import FolderDisk

NOTHING_OWN: dict[str, Any] = {
    "privacy": ["The server's machine sees no figures and no statement: ask at a party."],
    "accounts": None,
    "rows": None,
    "lag": {},
    "settings": [],
    "next": None,
}
"""Where this side has no files of the run."""
_RELEASED = {
    "push": "predictions of a block of training rows",
    "held-out": "predictions of the held-out rows",
    "gradient": "gradients of a block of training rows",
}
"""What each purpose of a release means."""


def own_sections(record: RunRecord, guard: GuardSettings) -> dict[str, Any]:
    """What a party's files of a run say, as JSON values."""
    run, measures, statement = record.settings, record.measures, record.statement
    aligned = measures.aligned
    return {
        "privacy": running_privacy(guard, measures.releases) if statement is None else statement.spent_lines,
        "rows": None
        if aligned is None
        else {
            "shared": aligned.shared,
            "train": aligned.train,
            "held_out": aligned.held_out,
            "lost": dict(aligned.lost),
        },
        "lag": {str(lag): count for lag, count in sorted(measures.lag.items())},
        "settings": [
            ["run hash", run_hash(run).hex()],
            *([] if record.card is None else [["version", record.card.version]]),
            *map(list, flat(run.model_dump(mode="json", by_alias=True, exclude_unset=True))),
        ],
    }


def account_rows(settings: PartySettings) -> dict[str, Any] | None:
    """What every run has spent by this party's ledger, and what all of it comes to; None where there is no ledger.

    Names of files and of label columns are left out.
    """
    try:
        figures = figures_of(AccountFile(FolderDisk(settings.ledger)).read(), settings)
    except (FdmlError, OSError):  # `fdml budget show` says what is wrong with it
        return None
    runs = [run for account in figures["accounts"] for run in account["runs"]]
    if not runs:
        return None
    kept = ("run", "releases", "evaluations", "direct", "record_level")
    return {
        "runs": [{name: run[name] for name in kept} for run in runs],
        "spent": figures["spent"],
        "delta": figures["delta"],
        "total": figures["total_epsilon"],
        "left": figures["left"],
        "is_record_level": settings.guard.training is not None,
    }


def with_own_shares(rows: Sequence[dict[str, Any]], measures: Measures | None) -> list[dict[str, Any]]:
    """Rows of parties, each with the shares of its time.

    Of others the server knows how much they wait for others. Of this party its own process knows how long it could do
    nothing; what of that was no wait for others was its line: sending, the server's work, receiving.
    """
    return [{**row, "shares": _shares(row, measures if row["own"] else None)} for row in rows]


def _shares(row: Mapping[str, Any], measures: Measures | None) -> dict[str, float] | None:
    seconds = 0.0 if measures is None else sum(each.seconds for each in measures.starts)
    if row["waited_seconds"] is None or row["state"].startswith("gone"):
        return None
    if measures is None or seconds <= 0.0:
        waiting = row["waiting_share"]
        return None if waiting is None else {"waiting": waiting, "rest": round(1.0 - waiting, 3)}
    idle = min(1.0, sum(each.waited_seconds for each in measures.starts) / seconds)
    waiting = min(idle, row["waited_seconds"] / seconds)
    return {
        "computing": round(1.0 - idle, 3),
        "waiting": round(waiting, 3),
        "line": round(idle - waiting, 3),
    }


def running_privacy(guard: GuardSettings, releases: Mapping[str, int]) -> list[str]:
    """While a run goes on: what protects this party's predictions, and how often values have left so far."""
    if guard.noise == "none" and guard.training is None:
        first = "nothing protects this party's predictions: they leave without noise, so there is no epsilon"
    elif guard.noise == "none":
        first = "noise in training protects this party's rows; its predictions leave as they are"
    else:
        budget = "" if guard.epsilon is None else f"; the budget of this run is epsilon {guard.epsilon:g} for each row"
        first = f"{guard.noise} noise protects this party's predictions{budget}"
    counts = [
        f"{_RELEASED.get(name, name)} have left {count:,} times so far" for name, count in sorted(releases.items())
    ]
    return [first, *counts, "the statement with what was spent is written at the end"]
