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
from fdml.federation.compare_runs import compare_runs, comparison_table
from fdml.federation.party_home import PartyHome
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
    """Show one run: its settings, and what every party has decided."""
    check_writable(json)
    facts = federation_runs.show(PartyHome.read(party, plain=plain, server=server), name)
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
    check_writable(json)
    home = PartyHome.read(party, plain=plain, server=server)
    facts = federation_runs.decide(home, name, "accepted", reason)
    echo(state_text(facts))
    write_json(json, run_json(facts))


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
    check_writable(json)
    facts = federation_runs.decide(PartyHome.read(party, plain=plain, server=server), name, "refused", reason)
    echo(state_text(facts))
    write_json(json, run_json(facts))


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
    check_writable(json)
    facts = federation_runs.decide(PartyHome.read(party, plain=plain, server=server), name, "stopped", reason)
    echo(state_text(facts))
    write_json(json, run_json(facts))


@runs.command()
def compare(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of runs; without, all that have finished here.")
    ] = None,
    party: PartyOption = Path("party.toml"),
    json: JsonOption = None,
) -> None:
    """Compare runs of this party by their held-out figures, with the settings in which they differ. Offline."""
    check_writable(json)
    found = compare_runs(party.parent, read_party(party).party, names or ())
    stdout.print(comparison_table(found))
    write_json(json, {"runs": [asdict(each) for each in found]})


@runs.command()
def decisions(
    party: PartyOption = Path("party.toml"),
    plain: PlainOption = False,
    json: JsonOption = None,
) -> None:
    """Print this party's log of decisions, after checking that every line holds. Offline."""
    check_writable(json)
    home = PartyHome.read(party, plain=plain)
    entries = home.log.read()
    for each in entries:
        made = each.decision
        more = ": ".join(text for text in (made.rule, made.reason) if text)
        echo(f"{each.number}  {each.time}  {made.run}  {made.choice} by {made.by}{f' ({more})' if more else ''}")
    echo(f"{len(entries)} decisions, every line holds")
    write_json(json, {"decisions": [{**asdict(each.decision), "time": each.time} for each in entries]})


def _flat(settings: dict[str, object], place: str = "") -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for name, value in settings.items():
        if isinstance(value, dict):
            found += _flat(value, f"{place}{name}.")
        elif value is not None:
            found.append((f"{place}{name}", value))
    return found
