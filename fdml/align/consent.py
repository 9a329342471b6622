"""Consent before the shared rows are told: every party sees how many rows each brought and how many are shared.

Whoever brings guessed ids learns which of them the others hold. So no party is told
row numbers before all parties have agreed to the counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from fdml.align.conversation import Conversation, fetch, post
from fdml.errors import AlignmentError
from fdml.protocol.alignment_messages import SERVER, Consent, RowSummary
from fdml.settings import RunSettings

Decide = Callable[[RowSummary], Consent]
"""A party's answer to the counts; may ask a person."""
LineClass = Callable[[], int]
"""The class of a party's line, from the answers that have come by then."""
_ROUND_TRIPS = 5
"""Answers that only measure the line."""
_FURTHER_ROUND_TRIPS = 15
"""At most, where the line seems slow: on a busy machine one of these is fast, on a slow line none is."""


def fast_line() -> int:
    """The class of a line that takes no time."""
    return 0


def consent_to_all(_: RowSummary) -> Consent:
    """The answer where all parties are in one hand anyway."""
    return Consent(True)


def exchange_consent(
    run: RunSettings, party: str, summary: RowSummary, decide: Decide, line: LineClass = fast_line
) -> Conversation[int]:
    """Tell the others whether this party consents, and wait until all have; whoever does not is named.

    Returns the class of the slowest line. What counts is what the server has stored: a party that posts
    again after a crash may have measured another.
    """
    for _ in range(_ROUND_TRIPS):
        yield from fetch(RowSummary, SERVER)  # it is there, so the answer takes as long as the line
    for _ in range(_FURTHER_ROUND_TRIPS):
        if line() == fast_line():
            break
        yield from fetch(RowSummary, SERVER)
    own = decide(summary)
    yield from post(replace(own, line=line()))
    stored = yield from fetch(Consent, party)  # so that the others are told before this party ends
    if not own.given:
        raise AlignmentError(
            f"party {party!r} does not consent: {own.reason}. No row number was told to anyone. If the counts are "
            f"right after all, change what this party allows, then run the same command again at every party"
        )
    slowest = stored.line
    for other in run.parties:
        if other != party:
            theirs = yield from fetch(Consent, other)
            if not theirs.given:
                raise AlignmentError(
                    f"party {other!r} does not consent to the shared rows: {theirs.reason}. No row number was told to "
                    f"anyone; settle it with that party, which goes first, then run the same command again"
                )
            slowest = max(slowest, theirs.line)
    return slowest


def objection(
    summary: RowSummary, run: RunSettings, party: str, *, max_rows: int | None, min_shared: int | None
) -> str:
    """What a party's limits have against these counts; empty if nothing.

    `max_rows` bounds all rows that another party has ever brought to the alignment, those that have gone included, as
    it learns of each whether it is shared.
    """
    for counts in (summary.brought or summary.rows, summary.test_rows):
        for other, rows in zip(run.parties, counts, strict=False):
            if max_rows is not None and other != party and rows > max_rows:
                return f"party {other!r} brings {rows} rows, and align.max_rows of {party!r} is {max_rows}"
    own = run.parties.index(party)
    shared = summary.matched[own] if summary.matched and party != run.label_party else summary.shared
    if min_shared is not None and shared < min_shared:
        return f"{shared} rows are shared, and align.min_shared of {party!r} is {min_shared}"
    return ""


def summary_text(summary: RowSummary, run: RunSettings) -> str:
    """The counts for a person."""
    if summary.matched:
        held = zip(run.parties, summary.rows, summary.matched, strict=True)
        listed = [
            f"{party} {rows:,}, {matched:,} of them pointed to"
            for party, rows, matched in held
            if party != run.label_party
        ]
        own = summary.rows[run.parties.index(run.label_party)]
        return f"rows: {run.label_party} {own:,}; " + "; ".join(listed)
    rows = ", ".join(f"{party} {count:,}" for party, count in zip(run.parties, summary.rows, strict=True))
    test = ", ".join(f"{party} {count:,}" for party, count in zip(run.parties, summary.test_rows, strict=False))
    more = f"; test rows: {test}, shared {summary.shared_test:,}" if test else ""
    return f"rows: {rows}, shared {summary.shared:,}{more}{_additions(summary, run)}"


def _additions(summary: RowSummary, run: RunSettings) -> str:
    """What is new in a generation that adds to another."""
    if not summary.new_rows:
        return ""
    new = ", ".join(f"{party} {count:,}" for party, count in zip(run.parties, summary.new_rows, strict=True))
    return f"; new rows: {new}, {summary.new_shared:,} of the shared rows are new and {summary.left:,} have gone"
