"""What of a party someone saw: a line of its statement; and the lines of rows that point to other parties' rows."""

from __future__ import annotations

from dataclasses import dataclass

from fdml.settings import RunSettings


@dataclass(frozen=True)
class Exposure:
    """Something of this party that someone saw."""

    role: str
    saw: str
    form: str
    times: str
    protection: str
    attacks: str
    """The tests of `fdml audit` that apply, and what they are."""


def pointer_exposures(run: RunSettings, party: str) -> list[Exposure]:
    """What the alignment showed of this party, where rows of the label party point to those of the others."""
    if run.pointing_party is None:
        return []
    return _of_label_party(run) if party == run.label_party else _of_other(run, party)


def _of_label_party(run: RunSettings) -> list[Exposure]:
    found = []
    for other in run.parties:
        if other == run.label_party:
            continue
        saw = "which rows of the run it does not hold" if run.unmatched == "keep" else "which of its rows the run has"
        if other in run.keys:
            saw += ", and which of them, and how many, have the same key (group sizes), training and held-out rows"
        form = "a pointer to its own row for each row of the run, sealed from the server and all others"
        found.append(Exposure(other, saw, form, "once", "none", ""))
    found.append(
        Exposure(
            "server",
            "how many different keys lead to each other party, and how many of them that party holds",
            _form(run),
            "once",
            "a context of its own for each party: no two parties' keys can be linked",
            "",
        )
    )
    return found


def _of_other(run: RunSettings, party: str) -> list[Exposure]:
    found = [
        Exposure(
            f"{run.label_party} and server",
            "how many rows it has, and the label party also which of the keys that lead to it",
            _form(run),
            "once",
            "none at the label party",
            "",
        )
    ]
    if party in run.keys:
        saw = "that rows of the run which point to the same row of it have the same prediction"
        found.append(Exposure("whoever sees its predictions", saw, "equal values", "every exchange", "none", ""))
    if run.unmatched == "keep":
        saw = "which rows of the run it does not hold"
        found.append(Exposure("whoever sees its predictions", saw, "exact zeros", "every exchange", "none", ""))
    return found


def _form(run: RunSettings) -> str:
    return "keyed hashes" if run.align == "tokens" else "blinded points"
