"""What of a party someone saw: a line of its statement; and the lines of pointers, of noise and of answers."""

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


def summing(run: RunSettings) -> str:
    """Who gets what a party sends, and sums it."""
    if run.is_mesh:
        return "every other party, as there is no server"
    return "server" if run.host is None else f"server, inside the process of {run.host}"


def host_exposures(run: RunSettings, party: str, evaluations: int, protection: str) -> list[Exposure]:
    """What a party that hosts the server sees of this one besides what every party sees."""
    if run.host in (None, party, run.label_party):
        return []
    form = f"the sum of all {len(run.parties)}, of which it can take off the mask"
    if len(run.parties) == 2:
        form = "the sum of two: less its own part, exactly this party's"
    times = f"{evaluations} times each held-out row"
    return [Exposure(f"{run.host}, as host", "its predictions of held-out rows", form, times, protection, "")]


def answer_exposures(run: RunSettings, party: str, protection: str) -> list[Exposure]:
    """What questions and answers about the run's model show of this party, from the end of the run on."""
    askers = run.serving.may_ask or (run.label_party,)
    who, found = ", ".join(name for name in askers if name != party), []
    if who:
        saw = "its predictions of any row of its files, shared or not, and which ids it holds"
        often = f"whenever they are asked for; counted in the ledger as '{run.name} (predictions)', not above"
        found.append(Exposure(who, saw, _answer_form(run), often, protection, ""))
    if who and party == run.label_party:
        saw = "how a score is read: the names of its classes, or mean and spread of its targets"
        found.append(Exposure(who, saw, "with every answer, sealed from the server", "always", "none", ""))
    if party in askers and len(run.parties) > 1:
        unsure = party == run.label_party and run.serving.ask == "unsure"
        saw = "which rows it asks for, and when" + (", and that it is unsure of them" if unsure else "")
        form = "tokens of their ids; the server sees how many rows, when, and who is asked"
        found.append(Exposure("every other party", saw, form, "every question", "none", ""))
    return found


def _answer_form(run: RunSettings) -> str:
    if len(run.parties) == 2:
        return "exactly this party's"
    if run.serving.absent == "calibrated":
        return "exactly this party's, where it is asked alone"
    kept = "; of rows that it alone of them holds, exactly this party's" if run.unmatched == "keep" else ""
    return "the sum of all parties that answer" + kept


def noise_exposures(variance: float) -> list[Exposure]:
    """What is told of a party's noise."""
    if not variance:
        return []
    return [Exposure("server and every other party", "how much noise it adds", "its variance", "always", "none", "")]


def single_sums(run: RunSettings, party: str) -> str:
    """Where, of three or more parties, a sum lacks some and so shows this one: for the form of its predictions."""
    label_party, form = run.label_party, ""
    if run.training.absence:
        form += "; in blocks that are trained without a party, the sum without it"
    if run.training.absence and len(run.parties) == 3:
        form += ": exactly this party's" + ("" if party == label_party else f", to {label_party}")
    if run.unmatched == "keep" and party == label_party:
        form += "; of rows that one other party alone holds, exactly this party's, to that one"
    elif run.unmatched == "keep":
        form += f"; of rows that no other party but {label_party} holds, exactly this party's, to {label_party}"
    if run.training.frozen_epochs and party in run.new_parties:
        whose = "this party's" if len(run.new_parties) == 1 else "that of the new parties together"
        form += f"; while the parties of the version are frozen, what changes in the sum is exactly {whose}"
    if run.compared_version and run.new_parties and party not in (label_party, *run.new_parties):
        form += f"; of the version compared with, the sum without {', '.join(run.new_parties)}"
        if len(run.parties) - len(run.new_parties) == 2:
            form += f": exactly this party's, to {label_party}"
    return form


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
