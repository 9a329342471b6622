"""Consent before the shared rows are told: every party sees how many rows each brought and how many are shared.

Whoever brings guessed ids learns which of them the others hold. So no party is told
row numbers before all parties have agreed to the counts.
"""

from __future__ import annotations

from collections.abc import Callable

from fdml.align.conversation import Conversation, fetch, post
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import Consent, RowSummary
from fdml.settings import RunSettings

Decide = Callable[[RowSummary], Consent]
"""A party's answer to the counts; may ask a person."""


def consent_to_all(_: RowSummary) -> Consent:
    """The answer where all parties are in one hand anyway."""
    return Consent(True)


def exchange_consent(run: RunSettings, party: str, summary: RowSummary, decide: Decide) -> Conversation[None]:
    """Tell the others whether this party consents, and wait until all have; whoever does not is named."""
    own = decide(summary)
    yield from post(own)
    if not own.given:
        yield from fetch(Consent, party)  # so that the others are told before this party ends
        raise AlignmentError(
            f"party {party!r} does not consent: {own.reason}. No row number was told to anyone. If the counts are "
            f"right after all, change what this party allows, then run the same command again at every party"
        )
    for other in run.parties:
        if other != party:
            theirs = yield from fetch(Consent, other)
            if not theirs.given:
                raise AlignmentError(
                    f"party {other!r} does not consent to the shared rows: {theirs.reason}. No row number was told to "
                    f"anyone; settle it with that party, which goes first, then run the same command again"
                )


def objection(
    summary: RowSummary, run: RunSettings, party: str, *, max_rows: int | None, min_shared: int | None
) -> str:
    """What a party's limits have against these counts; empty if nothing."""
    for counts in (summary.rows, summary.test_rows):
        for other, rows in zip(run.parties, counts, strict=False):
            if max_rows is not None and other != party and rows > max_rows:
                return f"party {other!r} brings {rows} rows, and align.max_rows of {party!r} is {max_rows}"
    if min_shared is not None and summary.shared < min_shared:
        return f"{summary.shared} rows are shared, and align.min_shared of {party!r} is {min_shared}"
    return ""


def summary_text(summary: RowSummary, run: RunSettings) -> str:
    """The counts for a person."""
    rows = ", ".join(f"{party} {count:,}" for party, count in zip(run.parties, summary.rows, strict=True))
    test = ", ".join(f"{party} {count:,}" for party, count in zip(run.parties, summary.test_rows, strict=False))
    more = f"; test rows: {test}, shared {summary.shared_test:,}" if test else ""
    return f"rows: {rows}, shared {summary.shared:,}{more}"
