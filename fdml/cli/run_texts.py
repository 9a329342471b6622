"""Runs as people and programs read them, for `fdml run` and `fdml runs`."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.table import Table

from fdml.federation.runs import waits_text
from fdml.protocol.run_messages import RunFacts


def state_text(facts: RunFacts) -> str:
    """Where a run stands, in a sentence."""
    begin = f"run {facts.name!r} of {facts.starter}"
    if facts.state == "running":
        return f"{begin} is accepted by all parties and under way"
    if facts.state == "finished":
        return f"{begin} is finished"
    if facts.state == "waiting":
        return f"{begin} waits for {waits_text(facts)}"
    reason = f" ({facts.ended_reason})" if facts.ended_reason else ""
    return f"{begin} was {facts.state} by {facts.ended_by}{reason}"


def run_json(facts: RunFacts) -> dict[str, Any]:
    """A run for programs."""
    return {
        "name": facts.name,
        "state": facts.state,
        "starter": facts.starter,
        "proposed_at": time_text(facts.proposed_at),
        "decisions": [{**asdict(each), "time": time_text(each.time)} for each in facts.decisions],
        "ended_by": facts.ended_by,
        "ended_reason": facts.ended_reason,
        "ended_at": time_text(facts.ended_at) if facts.ended_at else None,
        "settings": json.loads(facts.proposal.settings),
    }


def runs_table(runs: Sequence[RunFacts]) -> Table:
    """One line for each run."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("run", "state", "started by", "at", "more"):
        table.add_column(heading)
    for facts in runs:
        more = waits_text(facts) if facts.state == "waiting" else facts.ended_reason
        state = f"{facts.state} by {facts.ended_by}" if facts.ended_by else facts.state
        table.add_row(facts.name, state, facts.starter, time_text(facts.proposed_at), more)
    return table


def time_text(seconds: float) -> str:
    """A moment in UTC."""
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
