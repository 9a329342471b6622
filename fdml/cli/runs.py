"""fdml runs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from fdml.cli.options import JsonOption, PartyOption, PlainOption, ServerOption
from fdml.cli.output import check_writable, echo, stdout, write_json
from fdml.cli.run_texts import run_json, runs_table, state_text, time_text
from fdml.federation import runs as federation_runs
from fdml.federation.compare_runs import compare_runs, comparison_remarks, comparison_table
from fdml.federation.deciding import runs_without_decision
from fdml.federation.decision_log import Choice
from fdml.federation.party_home import PartyHome
from fdml.federation.versions import Promotions, held_versions, run_of_version, version_named
from fdml.party.settings import read_party

runs = typer.Typer(
    help="Runs of the federation: what there is, and what this party says to them.", no_args_is_help=True
)

Name = Annotated[str, typer.Argument(help="The run's name.")]
Reason = Annotated[str, typer.Option(help="Why: the other parties read it.")]


@runs.command("list")
def list_runs(
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    server: ServerOption = None,
    json: JsonOption = None,
) -> None:
    """List all runs of the federation, and who stands by."""
    check_writable(json)
    found = federation_runs.listing(PartyHome.read(party, plain=plain, server=server))
    stdout.print(runs_table(found.runs))
    echo(f"standing by: {', '.join(found.here) or 'nobody'}")
    write_json(json, {"runs": [run_json(each) for each in found.runs], "here": list(found.here)})


@runs.command()
def show(
    name: Name,
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    server: ServerOption = None,
    json: JsonOption = None,
) -> None:
    """Show one run: its settings, which its starter has signed, and what every party has decided."""
    check_writable(json)
    facts = federation_runs.looked_at(PartyHome.read(party, plain=plain, server=server), name)
    echo(state_text(facts))
    for each in facts.decisions:
        more = ": ".join(text for text in (each.rule, each.reason) if text)
        echo(f"  {each.party}: {each.choice}, {time_text(each.time)}{f' ({more})' if more else ''}")
    for setting, value in _flat(run_json(facts)["settings"]):
        echo(f"  {setting} = {value}")
    write_json(json, run_json(facts))


@runs.command()
def approve(
    name: Name,
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    server: ServerOption = None,
    reason: Reason = "",
    json: JsonOption = None,
) -> None:
    """Let this party take part in a run that waits for a person. `fdml up` starts it once all parties have accepted."""
    _decide(PartyHome.read(party, plain=plain, server=server), name, "accepted", reason, json)


@runs.command()
def refuse(
    name: Name,
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    server: ServerOption = None,
    reason: Reason = "",
    json: JsonOption = None,
) -> None:
    """Refuse a run that waits; it ends for all parties."""
    _decide(PartyHome.read(party, plain=plain, server=server), name, "refused", reason, json)


@runs.command()
def stop(
    name: Name,
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    server: ServerOption = None,
    reason: Reason = "",
    json: JsonOption = None,
) -> None:
    """End a run for all parties, before its end. It cannot go on; what it has released stays counted."""
    _decide(PartyHome.read(party, plain=plain, server=server), name, "stopped", reason, json)


@runs.command()
def compare(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of runs; without, all that have finished here.")
    ] = None,
    party: PartyOption = Path("party.toml"),
    json: JsonOption = None,
) -> None:
    """Compare runs of this party by their held-out figures, with the settings in which they differ. Offline.

    A file of --json has all figures.
    """
    check_writable(json)
    found = compare_runs(party.parent, read_party(party).party, names or ())
    stdout.print(comparison_table(found))
    for line in comparison_remarks(found):
        echo(line)
    write_json(json, {"runs": [asdict(each) for each in found]})


@runs.command()
def versions(party: PartyOption = Path("party.toml"), json: JsonOption = None) -> None:
    """List the versions that this party holds, and every promotion there was, the last one being the one. Offline."""
    check_writable(json)
    home = party.parent
    held, promotions = held_versions(home), Promotions(home).all()
    for name, card in held.items():
        mark = "  promoted" * bool(promotions and promotions[-1].version == card.version)
        echo(f"{card.version}  {name}  {card.created}{mark}")
    for each in promotions:
        echo(f"{each.time}  {each.run} ({each.version[:8]}) was promoted by {each.by}: {each.reason or '-'}")
    if not promotions:
        echo("nothing was promoted yet")
    listed = [{"version": card.version, "run": name, "created": card.created} for name, card in held.items()]
    write_json(json, {"versions": listed, "promotions": [asdict(each) for each in promotions]})


@runs.command()
def promote(
    name: Name,
    party: PartyOption = Path("party.toml"),
    reason: Annotated[str, typer.Option(help="Why.")] = "",
    json: JsonOption = None,
) -> None:
    """Let the version of a finished run be the one to predict with at this party; an earlier one rolls back. Offline.

    Every party does it for itself, unless [promotion] of the run.toml does it for all.
    """
    check_writable(json)
    version = version_named(party.parent, "the run", name)
    made = Promotions(party.parent).promote(
        version, run_of_version(party.parent, read_party(party).party, version), "person", reason
    )
    echo(f"version {made.version} of run {made.run!r} is promoted since {made.time}")
    write_json(json, asdict(made))


@runs.command()
def decisions(
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    json: JsonOption = None,
) -> None:
    """Print this party's log of decisions, after checking that every line holds. Offline.

    Also says which runs have begun here without a line that accepts them.
    """
    check_writable(json)
    home = PartyHome.read(party, plain=plain)
    entries = home.log.read()
    for each in entries:
        made = each.decision
        more = ": ".join(text for text in (made.rule, made.reason) if text)
        echo(f"{each.number}  {each.time}  {made.run}  {made.choice} by {made.by}{f' ({more})' if more else ''}")
    older, missing = len(home.log.older()), runs_without_decision(home)
    echo(f"{len(entries)} decisions{f', {older} more in logs of older keys' if older else ''}, every line holds")
    for name in missing:
        echo(f"run {name!r} has begun here and no line accepts it: was the end of the log cut off?")
    listed = [{**asdict(each.decision), "time": each.time} for each in entries]
    write_json(json, {"decisions": listed, "older": older, "without_decision": missing})


def _decide(home: PartyHome, name: str, choice: Choice, reason: str, json: Path | None) -> None:
    check_writable(json)
    facts = federation_runs.decide(home, name, choice, reason)
    echo(state_text(facts))
    write_json(json, run_json(facts))


def _flat(settings: dict[str, object], place: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in settings.items():
        if isinstance(value, dict):
            found += _flat(value, f"{place}{name}.")
        elif value is not None:
            found.append((f"{place}{name}", value))
    return found
